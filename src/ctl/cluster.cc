// buffer-ctl shards, nodes, events, drain, undrain, replica, rebalance
#include <algorithm>
#include <map>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "ctl/cluster_calls.h"

namespace forebay::ctl {
namespace {

// Entries that the primary has and the others have not synced: "2:0 3:17"; "?": not known.
std::string Lag(const v1::OperatorMachine& machine, const std::vector<NodeReport>& reports) {
  const v1::ReplicaState* primary = ReplicaOf(reports, machine.primary(), machine.name());
  std::vector<std::string> lags;
  for (const v1::OperatorReplica& replica : machine.replicas()) {
    if (replica.node() == machine.primary()) continue;
    const v1::ReplicaState* of = ReplicaOf(reports, replica.node(), machine.name());
    lags.push_back(absl::StrCat(
        replica.node(), ":",
        primary == nullptr || of == nullptr
            ? "?"
            : absl::StrCat(primary->last() - std::min(primary->last(), of->synced()))));
  }
  return lags.empty() ? "-" : absl::StrJoin(lags, " ");
}

// Who leads leads without it.
bool Absent(const v1::OperatorMachine& machine, const std::vector<NodeReport>& reports) {
  return std::ranges::any_of(reports, [&](const NodeReport& report) {
    if (!report.state.ok() || !report.state->leads()) return false;
    const v1::ReplicaState* of = ReplicaOf(reports, report.node, machine.name());
    return of != nullptr && !of->serving();
  });
}

absl::Status Shards(Context& context) {
  auto state = GetClusterState(context);
  if (!state.ok()) return state.status();
  const std::vector<NodeReport> reports = AskNodes(context, *state);
  if (context.json) {
    *context.out << ClusterJson(*state, reports) << "\n";
    return absl::OkStatus();
  }
  Table table({"MACHINE", ">EPOCH", ">PRIMARY", "IN SYNC", "REPLICAS", ">MAY LOSE", "LAG"});
  for (const v1::OperatorMachine& machine : state->machines()) {
    std::vector<std::string> replicas;
    for (const v1::OperatorReplica& replica : machine.replicas()) {
      replicas.push_back(absl::StrCat(replica.node(), replica.leaving() ? " (leaving)" : ""));
    }
    table.Add({machine.name(), absl::StrCat(machine.epoch()),
               Absent(machine, reports)
                   ? "absent"
                   : (machine.primary() == 0 ? "-" : absl::StrCat(machine.primary())),
               NodeList(machine.in_sync()), absl::StrJoin(replicas, " "),
               machine.tolerated() < 0 ? "stands" : absl::StrCat(machine.tolerated()),
               Lag(machine, reports)});
  }
  context.Show(*state, table, "the cluster has not begun: it has no machines");
  return absl::OkStatus();
}

std::string RoleText(const v1::OperatorState& state, const v1::OperatorNode& node,
                     const NodeReport& report, size_t in_sync) {
  if (!node.present()) return node.id() == state.leader() ? "down, led last" : "down";
  if (!report.state.ok()) return "does not answer";
  if (report.state->leads()) return "leads";
  if (node.id() == state.leader()) return "is to lead";
  return in_sync == static_cast<size_t>(state.machines_size()) ? "follows" : "catching up";
}

absl::Status Nodes(Context& context) {
  auto state = GetClusterState(context);
  if (!state.ok()) return state.status();
  const std::vector<NodeReport> reports = AskNodes(context, *state);
  if (context.json) {
    *context.out << ClusterJson(*state, reports) << "\n";
    return absl::OkStatus();
  }
  Table table({">NODE", "ADDRESS", "HTTP", "ROLE", "IN SYNC WITH", "VERSION", "ETCD"});
  for (int i = 0; i < state->nodes_size(); ++i) {
    const v1::OperatorNode& node = state->nodes(i);
    const absl::StatusOr<v1::NodeState>& own = reports[static_cast<size_t>(i)].state;
    size_t in_sync = 0;
    for (const v1::OperatorMachine& machine : state->machines()) {
      in_sync += std::ranges::count(machine.in_sync(), node.id());
    }
    table.Add({absl::StrCat(node.id()), node.address(),
               node.http_address().empty() ? "-" : node.http_address(),
               absl::StrCat(RoleText(*state, node, reports[static_cast<size_t>(i)], in_sync),
                            node.drained() ? ", drained" : ""),
               absl::StrCat(in_sync, " of ", state->machines_size()),
               own.ok() ? own->version() : "-",
               !own.ok() ? "-"
               : own->coordinator_reachable()
                   ? absl::StrCat(Decimal(static_cast<double>(own->coordinator_latency_us()) / 1e3),
                                  " ms")
                   : absl::StrCat("away for ", Duration(own->coordinator_away_ms()))});
  }
  context.Show(*state, table, "no nodes");
  if (state->paused()) {
    *context.out << "automatic failover is paused by " << state->paused_why()
                 << " (buffer-ctl failover resume)\n";
  }
  return absl::OkStatus();
}

absl::Status Events(Context& context, uint64_t limit) {
  auto state = GetClusterState(context);
  if (!state.ok()) return state.status();
  v1::OperatorState shown;
  const auto all = static_cast<uint64_t>(state->events_size());
  Table table({"TIME", "WHO", "WHAT", "WHY"});
  for (uint64_t i = all - std::min(all, limit); i < all; ++i) {
    const v1::OperatorEvent& event = state->events(static_cast<int>(i));
    *shown.add_events() = event;
    table.Add({absl::FormatTime("%Y-%m-%d %H:%M:%E3S",
                                absl::FromUnixMillis(static_cast<int64_t>(event.time_ms())),
                                absl::LocalTimeZone()),
               event.who(), event.what(), event.why()});
  }
  context.Show(shown, table, "nothing has happened yet");
  return absl::OkStatus();
}

absl::Status Act(Context& context, v1::OperatorAct act, uint64_t node, const std::string& machine,
                 const std::string& why) {
  v1::OperatorChangeRequest request;
  request.set_act(act);
  request.set_node(static_cast<uint32_t>(node));
  request.set_machine(machine);
  request.set_why(why);
  auto response = ChangeCluster(context, request);
  if (!response.ok()) return response.status();
  ShowChange(context, *response);
  return absl::OkStatus();
}

// What is not as it should be.
std::vector<std::string> Unsettled(const v1::OperatorState& state) {
  std::vector<std::string> lines(state.plan().begin(), state.plan().end());
  std::map<uint32_t, std::vector<std::string>> behind;
  for (const v1::OperatorMachine& machine : state.machines()) {
    for (const v1::OperatorReplica& replica : machine.replicas()) {
      if (replica.leaving()) {
        lines.push_back(absl::StrCat(machine.name(), ": node ", replica.node(), " is leaving"));
      } else if (std::ranges::count(machine.in_sync(), replica.node()) == 0) {
        behind[replica.node()].push_back(machine.name());
      }
    }
  }
  for (const auto& [node, machines] : behind) {
    lines.push_back(
        absl::StrCat("node ", node, " is not in sync with ", absl::StrJoin(machines, ", ")));
  }
  return lines;
}

absl::Status Rebalance(Context& context, const std::string& why) {
  const absl::Time until = absl::Now() + context.timeout;
  v1::OperatorChangeRequest request;
  request.set_act(v1::OPERATOR_ACT_REBALANCE);
  request.set_why(why);
  std::string told;
  while (true) {
    auto response = ChangeCluster(context, request);
    if (!response.ok()) return response.status();
    if (response->changed()) *context.progress << response->what() << "\n";
    auto state = GetClusterState(context);
    if (!state.ok()) return state.status();
    const std::vector<std::string> left = Unsettled(*state);
    if (left.empty()) {
      if (context.json) {
        *context.out << ToJson(*state) << "\n";
      } else {
        *context.out << "all replicas are where they should be, and in sync\n";
      }
      return absl::OkStatus();
    }
    const std::string text = absl::StrJoin(left, "; ");
    if (text != told) *context.progress << "waits: " << (told = text) << "\n";
    if (absl::Now() >= until) {
      return absl::DeadlineExceededError(absl::StrCat("not yet as it should be: ", text));
    }
    absl::SleepFor(std::min(absl::Milliseconds(500), until - absl::Now()));
  }
}

struct Arguments {
  uint64_t node = 0, limit = 50;
  std::string machine, why;
};

// A command that is one change of a node, or of its replicas.
void AddAct(Commands* commands, CLI::App* parent, const char* name, const char* help,
            v1::OperatorAct act, bool of_machine) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = parent->add_subcommand(name, help);
  AddNumber(command, "NODE", &arguments->node, "Its id")
      ->required()
      ->check(CLI::Range(uint64_t{1}, uint64_t{UINT32_MAX}));
  if (of_machine) {
    command->add_option("--machine", arguments->machine,
                        "One machine, as in shards; all if not set");
  }
  command->add_option("--why", arguments->why, "Reason, for the events");
  commands->On(command, [arguments, act](Context& c) {
    return Act(c, act, arguments->node, arguments->machine, arguments->why);
  });
}

}  // namespace

void AddCluster(Commands* commands) {
  CLI::App* const root = commands->root();
  commands->On(root->add_subcommand(
                   "shards", "State machines of a cluster: primary, epoch, who is in sync, lag"),
               Shards);
  commands->On(
      root->add_subcommand("nodes", "Nodes of a cluster: where, who leads, who is drained"), Nodes);
  auto of_events = std::make_shared<Arguments>();
  auto* events = root->add_subcommand(
      "events", "What happened in a cluster: who led since when, changes of sets, operators' acts");
  AddNumber(events, "--limit", &of_events->limit, "The newest ones")->capture_default_str();
  commands->On(events, [of_events](Context& c) { return Events(c, of_events->limit); });

  AddAct(commands, root, "drain", "Has a node hand over what it leads, and moves its replicas away",
         v1::OPERATOR_ACT_DRAIN, false);
  AddAct(commands, root, "undrain", "Lets a node have replicas again", v1::OPERATOR_ACT_UNDRAIN,
         false);
  auto* replica = root->add_subcommand("replica", "Replicas of machines on a node");
  replica->require_subcommand(1);
  AddAct(commands, replica, "add", "Places replicas on a node", v1::OPERATOR_ACT_ADD_REPLICA, true);
  AddAct(commands, replica, "remove", "Takes replicas from a node, once others are in sync",
         v1::OPERATOR_ACT_REMOVE_REPLICA, true);
  auto of_rebalance = std::make_shared<Arguments>();
  auto* rebalance = root->add_subcommand(
      "rebalance", "Moves replicas to where they should be, and waits (--timeout) until they are");
  rebalance->add_option("--why", of_rebalance->why, "Reason, for the events");
  commands->On(rebalance, [of_rebalance](Context& c) { return Rebalance(c, of_rebalance->why); });
}

}  // namespace forebay::ctl
