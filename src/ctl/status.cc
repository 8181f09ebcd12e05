// buffer-ctl status
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/units.h"
#include "ctl/command.h"
#include "forebay/v1/admin.pb.h"
#include "forebay/v1/cluster.pb.h"

namespace forebay::ctl {
namespace {

int ExitCode(v1::Verdict verdict) {
  switch (verdict) {
    case v1::VERDICT_OK:
      return kExitOk;
    case v1::VERDICT_DEGRADED:
      return kExitDegraded;
    default:
      return kExitUnavailable;
  }
}

// How far a rewind can go back.
std::string Checkpoint(const v1::GetStatusResponse& s) {
  std::string text = s.checkpoint() == 0 ? "none yet" : absl::StrCat("step ", s.checkpoint());
  if (s.retained_bytes_max() == 0 && s.retained_bytes() == 0) {
    return absl::StrCat(text, ", no rollouts are kept for a replay");
  }
  return absl::StrCat(text, ", replay from step ", s.oldest_replay(), " on; ",
                      BytesText(s.retained_bytes()), " kept of ",
                      BytesText(s.retained_bytes_max()));
}

// What the nodes of a cluster are, as the one that was asked sees them.
void PrintCluster(const v1::ClusterView& view, std::ostream& out) {
  if (view.node() == 0) return;
  out << "  cluster     node " << view.node() << " answers";
  if (view.leader() != 0) {
    out << ", node " << view.leader() << " leads, epoch " << view.leader_epoch();
  }
  out << ";";
  const char* separator = " ";
  for (const v1::ClusterNode& node : view.nodes()) {
    out << separator << node.id() << " " << node.role();
    separator = ", ";
  }
  out << "\n";
}

// `view`: of a cluster.
void Print(const v1::GetStatusResponse& s, const v1::ClusterView* view, std::ostream& out) {
  out << absl::AsciiStrToUpper(EnumName(s.verdict()));
  for (int i = 0; i < s.reasons_size(); ++i) out << (i == 0 ? ": " : "; ") << s.reasons(i);
  out << "\n";
  if (view != nullptr) PrintCluster(*view, out);
  if (s.version().empty()) return;  // no daemon has told of itself
  const auto line = [&out](const char* name, const std::string& text) {
    out << "  " << name << std::string(12 - std::string_view(name).size(), ' ') << text << "\n";
  };
  line("daemon",
       absl::StrCat(s.version(), ", run ", Hex(s.run()), ", up ", Duration(s.uptime_ms()), ", ",
                    s.shards(), s.shards() == 1 ? " shard" : " shards", ", can lose ",
                    s.tolerated_failures(), s.tolerated_failures() == 1 ? " node" : " nodes",
                    s.node() == 0 ? std::string()
                                  : absl::StrCat(" (", s.tolerable_failures(), " as configured)")));
  line("policy",
       absl::StrCat("version ", Version(s.published()), " published, next step ", s.next_step(),
                    s.train_version().branch() == 0
                        ? ""
                        : absl::StrCat(" on version ", Version(s.train_version()))));
  line("checkpoint", Checkpoint(s));
  if (s.kept_bytes_max() > 0 || s.kept_rollouts() > 0) {
    line("kept", absl::StrCat(s.kept_rollouts(), " rollouts of committed steps for people, ",
                              BytesText(s.kept_bytes()), " of ", BytesText(s.kept_bytes_max())));
  }
  line("actors", absl::StrCat(s.actors(), ", ", s.leases(), " attempts in flight"));
  line("groups",
       absl::StrCat(s.groups_open(), " open, ", s.groups_ready(), " ready, ", s.groups_reserved(),
                    " reserved; ", s.rollouts_held(), " rollouts held"));
  line("tasks", absl::StrCat(s.tasks()));
  const double used = s.payload_bytes_max() == 0 ? 0
                                                 : 100.0 * static_cast<double>(s.payload_bytes()) /
                                                       static_cast<double>(s.payload_bytes_max());
  line("payloads",
       absl::StrCat(BytesText(s.payload_bytes()), " of ", BytesText(s.payload_bytes_max()), " (",
                    used > 0 && used < 0.1 ? "below 0.1" : Decimal(used), "%), daemon ",
                    BytesText(s.resident_bytes())));
  if (s.rollouts_damaged() > 0) {
    line("damaged",
         absl::StrCat(
             s.rollouts_damaged(), s.rollouts_damaged() == 1 ? " rollout" : " rollouts",
             " dropped, whose bytes could not be read back; by source: buffer-ctl sources"));
  }
  for (const std::string& wait : s.waits()) line("waits", wait);
}

struct Seen {
  std::string address;  // where the node that tells was asked
  v1::ClusterView view;
};

// Of the node that leads; the node that was asked says which one that is. Without one the answer
// says so.
absl::StatusOr<v1::GetStatusResponse> AskLeader(const Context& context, const Seen& seen) {
  const v1::ClusterView& view = seen.view;
  const v1::ClusterNode* leader = nullptr;
  for (const v1::ClusterNode& node : view.nodes()) {
    if (node.id() == view.leader() && node.id() != 0) leader = &node;
  }
  absl::StatusOr<v1::GetStatusResponse> response = absl::UnavailableError("no node leads");
  if (leader != nullptr) {
    const bool itself = leader->id() == view.node() || leader->address().empty();
    auto client = context.connect(itself ? seen.address : leader->address());
    if (!client.ok()) return client.status();
    response = AskService<v1::GetStatusResponse>(client->get(), "AdminService/GetStatus",
                                                 v1::GetStatusRequest(), context.timeout);
  }
  if (response.ok() ||
      (!absl::IsUnavailable(response.status()) && !absl::IsDeadlineExceeded(response.status()))) {
    return response;
  }
  v1::GetStatusResponse none;
  none.set_verdict(v1::VERDICT_UNAVAILABLE);
  none.set_run(view.run());
  none.add_reasons(leader == nullptr
                       ? "no node leads"
                       : absl::StrCat("node ", leader->id(), " is to lead, and does not answer: ",
                                      std::string(response.status().message())));
  return none;
}

// Of the first node that knows who leads, for one that has just begun does not; else of the first
// that answers. It tells of itself, whether it leads or not.
absl::StatusOr<Seen> AskView(const Context& context) {
  absl::StatusOr<Seen> first = absl::UnavailableError("no address is given");
  for (const auto piece : absl::StrSplit(context.addresses, ',', absl::SkipEmpty())) {
    const std::string address(piece);
    auto client = context.connect(address);
    if (!client.ok()) return client.status();
    auto view = AskService<v1::ClusterView>(client->get(), "ClusterService/Get",
                                            v1::GetClusterRequest(), context.timeout);
    if (view.ok()) {
      Seen seen{address, *std::move(view)};
      if (seen.view.node() == 0 || seen.view.leader() != 0) return seen;
      if (!first.ok()) first = std::move(seen);
      continue;
    }
    if (!absl::IsUnavailable(view.status()) && !absl::IsDeadlineExceeded(view.status())) {
      return view.status();
    }
    if (!first.ok()) first = view.status();
  }
  return first;
}

absl::Status Show(Context& context) {
  const auto seen = AskView(context);
  if (!seen.ok() && !absl::IsUnimplemented(seen.status())) return seen.status();
  const bool clustered = seen.ok() && seen->view.node() != 0;
  auto response = clustered
                      ? AskLeader(context, *seen)
                      : context.Ask<v1::GetStatusResponse>("GetStatus", v1::GetStatusRequest());
  if (!response.ok()) return response.status();
  if (context.json) {
    *context.out << ToJson(*response) << "\n";
  } else {
    Print(*response, clustered ? &seen->view : nullptr, *context.out);
  }
  context.exit_code = ExitCode(response->verdict());
  return absl::OkStatus();
}

}  // namespace

void AddStatus(Commands* commands) {
  auto* status = commands->root()->add_subcommand(
      "status",
      "One-line verdict with reasons, then the figures; exits 0 (ok), 10 (degraded) or 20");
  commands->On(status, Show);
}

}  // namespace forebay::ctl
