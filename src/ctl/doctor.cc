// buffer-ctl doctor
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "base/units.h"
#include "ctl/cluster_calls.h"
#include "forebay/v1/cluster.pb.h"

namespace forebay::ctl {
namespace {

constexpr uint64_t kEtcdSlowUs = 100'000;
constexpr uint64_t kSyncSlowUs = 50'000;
constexpr uint64_t kFreeBytesMin = uint64_t{2} << 30;
constexpr uint64_t kOpenFilesMin = 16'384;
constexpr absl::Duration kProbeTimeout = absl::Seconds(10);

enum class Grave : uint8_t { kGood, kLook, kBad };

// What was found, why it matters, what to do.
struct Finding {
  Grave grave = Grave::kGood;
  std::string what, why, act;
};
using Findings = std::vector<Finding>;

void Good(Findings* all, std::string what) {
  all->push_back({Grave::kGood, std::move(what), "", ""});
}

std::string Ms(uint64_t us) { return absl::StrCat(Decimal(static_cast<double>(us) / 1e3), " ms"); }

void LookAtEtcd(const NodeReport& report, Findings* all) {
  const v1::NodeState& node = *report.state;
  if (!node.coordinator_reachable()) {
    all->push_back(
        {Grave::kBad,
         absl::StrCat("node ", report.node, " does not reach etcd since ",
                      Duration(node.coordinator_away_ms()), ": ", node.coordinator_why()),
         "what runs goes on, but no node can take over, and no replica joins or leaves",
         "look at etcd's members (etcdctl endpoint status), and at cluster.etcd"});
  } else if (node.coordinator_latency_us() > kEtcdSlowUs) {
    all->push_back({Grave::kLook,
                    absl::StrCat("node ", report.node, " waits ", Ms(node.coordinator_latency_us()),
                                 " for a read of etcd"),
                    "a failover needs a few calls one after another",
                    "give etcd a disk of its own; look at its fsync times"});
  } else {
    Good(all,
         absl::StrCat("node ", report.node, " reads etcd in ", Ms(node.coordinator_latency_us())));
  }
}

// Nodes that follow speak to the one that leads, and to each other only while they hear none.
void LookAtPeers(const NodeReport& report, const std::set<uint32_t>& present, uint32_t leader,
                 Findings* all) {
  for (const v1::PeerState& peer : report.state->peers()) {
    if (peer.connected() || !present.contains(peer.node())) continue;
    if (report.node != leader && peer.node() != leader) continue;
    all->push_back({Grave::kBad,
                    absl::StrCat("node ", report.node, " does not reach node ", peer.node(), " at ",
                                 peer.address()),
                    "its replica gets nothing from there, or cannot answer",
                    "look at cluster.advertise of that node, the network between them, TLS and "
                    "cluster.token_file"});
  }
}

void LookAtReplicas(const NodeReport& report, Findings* all) {
  for (const v1::ReplicaState& replica : report.state->replicas()) {
    if (!replica.failed()) continue;
    all->push_back({Grave::kBad,
                    absl::StrCat("node ", report.node, ": the replica of ", replica.machine(),
                                 " has stopped for good"),
                    "it counts for nothing until the daemon starts anew",
                    "read the daemon's log for the reason, then restart it"});
  }
}

void LookAtDisks(const NodeReport& report, Findings* all) {
  for (const v1::DirectoryState& d : report.state->directories()) {
    const std::string where = absl::StrCat("node ", report.node, ", ", d.entry(), " ", d.path());
    if (!d.error().empty()) {
      all->push_back({Grave::kBad, absl::StrCat(where, ": ", d.error()),
                      "the daemon cannot write there either",
                      "look at the mount, its permissions and its free space"});
      continue;
    }
    if (d.free_bytes() < kFreeBytesMin) {
      all->push_back(
          {Grave::kBad, absl::StrCat(where, ": only ", BytesText(d.free_bytes()), " free"),
           "a full disk ends acknowledgements", "free some, or lower storage.retention_bytes_max"});
    }
    if (d.sync_us() > kSyncSlowUs) {
      all->push_back({Grave::kLook, absl::StrCat(where, ": a sync takes ", Ms(d.sync_us())),
                      "each acknowledgement of a push waits for one",
                      "use a disk that syncs quicker, or look at who else writes there"});
    } else {
      Good(all, absl::StrCat(where, ": a sync takes ", Ms(d.sync_us()), ", ",
                             BytesText(d.free_bytes()), " free"));
    }
  }
}

void LookAtLimits(const NodeReport& report, Findings* all) {
  const v1::NodeState& node = *report.state;
  if (node.open_files_max() >= kOpenFilesMin && node.open_files() < node.open_files_max() / 2) {
    return;
  }
  all->push_back({Grave::kLook,
                  absl::StrCat("node ", report.node, " has ", node.open_files(), " of ",
                               node.open_files_max(), " files open"),
                  "each connection and each file of rollouts takes one",
                  "raise the limit (LimitNOFILE in the unit, ulimit -n)"});
}

// Version and entries that all nodes must share.
void CompareNodes(const std::vector<NodeReport>& reports, Findings* all) {
  std::map<std::string, std::map<std::string, std::vector<uint32_t>>> values;
  for (const NodeReport& report : reports) {
    if (!report.state.ok()) continue;
    values["version"][report.state->version()].push_back(report.node);
    for (const auto& [name, value] : report.state->config()) {
      values[name][value].push_back(report.node);
    }
  }
  bool same = true;
  for (const auto& [name, nodes] : values) {
    if (nodes.size() <= 1) continue;
    same = false;
    std::vector<std::string> parts;
    for (const auto& [value, who] : nodes) {
      parts.push_back(absl::StrCat("'", value, "' on ", NodeList(who)));
    }
    all->push_back({name == "version" ? Grave::kLook : Grave::kBad,
                    absl::StrCat(name, " differs: ", absl::StrJoin(parts, ", ")),
                    "after a failover the run goes on under other rules than before",
                    name == "version" ? "upgrade the nodes that are behind, one after another"
                                      : "set it to the same in all nodes' configuration, and "
                                        "restart them one after another"});
  }
  if (same && !values.empty()) Good(all, "versions and configurations agree");
}

// Each node writes a file into the store of rollouts; each is to see all of them.
void ProbeStore(const Context& context, const std::vector<NodeReport>& reports, Findings* all) {
  std::vector<const NodeReport*> there;
  for (const NodeReport& report : reports) {
    if (report.state.ok()) there.push_back(&report);
  }
  const uint64_t nonce = RandomId();
  const auto probe = [&](const NodeReport& node, v1::ProbeStoreRequest request) {
    request.set_nonce(nonce);
    auto answer = AskNode<v1::ProbeStoreResponse>(context, node.address, "ProbeStore", request,
                                                  kProbeTimeout);
    const std::string error =
        answer.ok() ? answer->error() : std::string(answer.status().message());
    if (!error.empty()) {
      all->push_back({Grave::kBad,
                      absl::StrCat("node ", node.node, ": the store of rollouts: ", error),
                      "rollouts cannot be written or read there",
                      "look at the mount of storage.segment_directory"});
    }
    return answer;
  };
  v1::ProbeStoreRequest write, look, remove;
  write.set_write(true);
  remove.set_remove(true);
  for (const NodeReport* node : there) {
    if (probe(*node, write).ok()) look.add_look_for(node->node);
  }
  bool shared = true;
  for (const NodeReport* node : there) {
    const auto answer = probe(*node, look);
    if (!answer.ok()) continue;
    std::vector<uint32_t> missing;
    for (const uint32_t other : look.look_for()) {
      if (std::ranges::count(answer->found(), other) == 0) missing.push_back(other);
    }
    if (missing.empty()) continue;
    shared = false;
    all->push_back({Grave::kBad,
                    absl::StrCat("node ", node->node, " does not see what ", NodeList(missing),
                                 " wrote into the store, in its ", answer->directory()),
                    "after a failover to it all rollouts would be gone",
                    "mount the same file system at storage.segment_directory on all nodes"});
  }
  for (const NodeReport* node : there) shared = probe(*node, remove).ok() && shared;
  if (shared && there.size() > 1) Good(all, "all nodes share one store of rollouts");
}

void LookAtCluster(const v1::OperatorState& state, Findings* all) {
  if (!state.leader_present()) {
    all->push_back({Grave::kBad, "no node leads", "the run stands still",
                    state.paused() ? "buffer-ctl failover, or buffer-ctl failover resume"
                                   : "start the nodes; see buffer-ctl shards and events"});
  }
  if (state.tolerated() < state.tolerable()) {
    all->push_back(
        {Grave::kLook,
         absl::StrCat("can lose ", std::max(state.tolerated(), 0), " of ", state.nodes_size(),
                      " nodes now, ", state.tolerable(), " as configured"),
         "the next failure may end the service",
         "start nodes that are down; wait for those that catch up (buffer-ctl shards)"});
  }
  if (state.paused()) {
    all->push_back(
        {Grave::kLook, absl::StrCat("automatic failover is paused by ", state.paused_why()),
         "nobody takes over when the node that leads fails", "buffer-ctl failover resume"});
  }
  for (const v1::OperatorNode& node : state.nodes()) {
    if (!node.drained()) continue;
    all->push_back({Grave::kLook, absl::StrCat("node ", node.id(), " is drained"),
                    "it gets no replicas", absl::StrCat("buffer-ctl undrain ", node.id())});
  }
}

void Print(const Findings& all, std::ostream& out) {
  for (const Grave grave : {Grave::kBad, Grave::kLook, Grave::kGood}) {
    for (const Finding& finding : all) {
      if (finding.grave != grave) continue;
      out << (grave == Grave::kBad    ? "BAD   "
              : grave == Grave::kLook ? "LOOK  "
                                      : "good  ")
          << finding.what << "\n";
      if (!finding.why.empty()) out << "        why it matters: " << finding.why << "\n";
      if (!finding.act.empty()) out << "        what to do: " << finding.act << "\n";
    }
  }
}

void PrintJson(const Findings& all, std::ostream& out) {
  out << "{\"findings\": [";
  const char* separator = "\n";
  for (const Finding& finding : all) {
    out << separator << "  {\"grade\": "
        << (finding.grave == Grave::kBad    ? "\"bad\""
            : finding.grave == Grave::kLook ? "\"look\""
                                            : "\"good\"")
        << ", \"what\": " << JsonText(finding.what) << ", \"why\": " << JsonText(finding.why)
        << ", \"act\": " << JsonText(finding.act) << "}";
    separator = ",\n";
  }
  out << "\n]}\n";
}

void LookAtNodes(const v1::OperatorState& state, const std::vector<NodeReport>& reports,
                 Findings* all) {
  std::set<uint32_t> present;
  for (const v1::OperatorNode& node : state.nodes()) {
    if (node.present()) present.insert(node.id());
  }
  for (const NodeReport& report : reports) {
    if (!report.state.ok()) {
      all->push_back({Grave::kBad,
                      absl::StrCat("node ", report.node, " at ", report.address, ": ",
                                   std::string(report.state.status().message())),
                      "it is one less to take over",
                      "start it; if it runs, look at cluster.advertise and the network from here"});
      continue;
    }
    LookAtEtcd(report, all);
    LookAtPeers(report, present, state.leader(), all);
    LookAtReplicas(report, all);
    LookAtDisks(report, all);
    LookAtLimits(report, all);
  }
}

// While etcd is away the nodes are still to be found.
absl::StatusOr<v1::OperatorState> StateWithoutEtcd(const Context& context) {
  auto view = AskService<v1::ClusterView>(context.client, "ClusterService/Get",
                                          v1::GetClusterRequest(), context.timeout);
  if (!view.ok()) return view.status();
  v1::OperatorState state;
  state.set_leader(view->leader());
  for (const v1::ClusterNode& node : view->nodes()) {
    v1::OperatorNode* out = state.add_nodes();
    out->set_id(node.id());
    out->set_address(node.address());
    out->set_present(node.up());
  }
  return state;
}

absl::Status Doctor(Context& context) {
  Findings all;
  auto state = GetClusterState(context);
  if (state.ok()) {
    LookAtCluster(*state, &all);
  } else if (context.etcd.empty() &&
             (absl::IsUnavailable(state.status()) || absl::IsDeadlineExceeded(state.status()))) {
    all.push_back(
        {Grave::kBad,
         absl::StrCat("the coordinator cannot be asked: ", std::string(state.status().message())),
         "what runs goes on, but no node can take over, and no replica joins or leaves",
         "look at etcd's members (etcdctl endpoint status), and at cluster.etcd"});
    state = StateWithoutEtcd(context);
  }
  if (!state.ok()) return state.status();
  const std::vector<NodeReport> reports = AskNodes(context, *state);
  LookAtNodes(*state, reports, &all);
  CompareNodes(reports, &all);
  ProbeStore(context, reports, &all);
  if (context.json) {
    PrintJson(all, *context.out);
  } else {
    Print(all, *context.out);
  }
  for (const Finding& finding : all) {
    const int code = finding.grave == Grave::kBad    ? kExitUnavailable
                     : finding.grave == Grave::kLook ? kExitDegraded
                                                     : kExitOk;
    context.exit_code = std::max(context.exit_code, code);
  }
  return absl::OkStatus();
}

}  // namespace

void AddDoctor(Commands* commands) {
  commands->On(commands->root()->add_subcommand(
                   "doctor",
                   "Looks at etcd, every node, its disks, and whether they fit together; exits 0, "
                   "10 (look at it) or 20 (bad)"),
               Doctor);
}

}  // namespace forebay::ctl
