// buffer-ctl switchover, failover, failover pause, failover resume
#include <algorithm>
#include <iostream>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "ctl/cluster_calls.h"
#include "ctl/usage.h"

namespace forebay::ctl {
namespace {

struct Arguments {
  uint64_t to = 0;
  bool unsafe = false;
  std::string machine, yes, why;
};

// Prints what happened since `events` of them were there.
void ShowEvents(const Context& context, const v1::OperatorState& state, int events) {
  for (int i = std::min(events, state.events_size()); i < state.events_size(); ++i) {
    const v1::OperatorEvent& event = state.events(i);
    *context.progress << "  " << event.who() << ": " << event.what()
                      << (event.why().empty() ? "" : absl::StrCat(" (", event.why(), ")")) << "\n";
  }
}

bool Leads(const Context& context, const v1::OperatorState& state, uint32_t node) {
  for (const v1::OperatorNode& of : state.nodes()) {
    if (of.id() != node || !of.present()) continue;
    auto own = AskNode<v1::NodeState>(context, of.address(), "GetNode", v1::GetNodeRequest(),
                                      std::min(context.timeout, absl::Seconds(2)));
    return own.ok() && own->leads();
  }
  return false;
}

// Until another node than `from` leads, or `to` if it is not 0. Nodes that begin anew do not answer
// for a moment.
absl::Status AwaitLeader(Context& context, const v1::OperatorState& before, uint32_t to) {
  const absl::Time until = absl::Now() + context.timeout;
  absl::Status why = absl::DeadlineExceededError("no node answers");
  absl::StatusOr<v1::OperatorState> state = before;
  do {
    absl::SleepFor(absl::Milliseconds(100));
    auto now = GetClusterState(context);
    if (!now.ok()) {
      why = now.status();
      continue;
    }
    state = std::move(now);
    const uint32_t leader = state->leader();
    const bool other = to == 0 ? leader != before.leader() : leader == to;
    if (other && Leads(context, *state, leader)) {
      ShowEvents(context, *state, before.events_size());
      if (context.json) {
        *context.out << ToJson(*state) << "\n";
      } else {
        *context.out << "node " << leader << " leads, epoch " << state->epoch() << "\n";
      }
      return absl::OkStatus();
    }
    why = absl::DeadlineExceededError(
        other ? absl::StrCat("node ", leader, " is named, and does not lead yet: is it up?")
        : state->wished() ? "no node has taken up the wish yet: does one lead?"
                          : absl::StrCat("node ", leader, " leads still"));
  } while (absl::Now() < until);
  ShowEvents(context, *state, before.events_size());
  return absl::FailedPreconditionError(
      absl::StrCat("it did not come to pass in time: ", std::string(why.message()),
                   "\n  See buffer-ctl nodes, shards and events."));
}

absl::Status Change(Context& context, v1::OperatorChangeRequest request, bool wait) {
  auto before = GetClusterState(context);
  if (!before.ok()) return before.status();
  auto response = ChangeCluster(context, request);
  if (!response.ok()) return response.status();
  *context.progress << response->what() << "\n";
  if (!wait) return absl::OkStatus();
  if (!response->changed() && response->node() == before->leader() && before->leader() != 0 &&
      Leads(context, *before, before->leader())) {
    if (context.json) *context.out << ToJson(*before) << "\n";
    return absl::OkStatus();
  }
  return AwaitLeader(context, *before, response->node());
}

absl::Status SwitchOver(Context& context, const Arguments& arguments) {
  v1::OperatorChangeRequest request;
  request.set_act(v1::OPERATOR_ACT_SWITCHOVER);
  request.set_node(static_cast<uint32_t>(arguments.to));
  request.set_why(arguments.why);
  return Change(context, request, true);
}

// What the node has and others may have more of, a line for each machine.
std::vector<std::string> NameLoss(const v1::OperatorState& state,
                                  const std::vector<NodeReport>& reports,
                                  const Arguments& arguments) {
  std::vector<std::string> lines;
  const auto to = static_cast<uint32_t>(arguments.to);
  for (const v1::OperatorMachine& machine : state.machines()) {
    if (!arguments.machine.empty() && machine.name() != arguments.machine) continue;
    if (std::ranges::count(machine.in_sync(), to) > 0) {
      lines.push_back(absl::StrCat(machine.name(), ": node ", to,
                                   " is in sync, nothing is lost; `failover` without --unsafe is "
                                   "enough"));
      continue;
    }
    const v1::ReplicaState* own = ReplicaOf(reports, to, machine.name());
    uint64_t most = 0;
    bool all = own != nullptr;
    for (const uint32_t node : machine.in_sync()) {
      const v1::ReplicaState* other = ReplicaOf(reports, node, machine.name());
      all = all && other != nullptr;
      if (other != nullptr) most = std::max(most, other->last());
    }
    const std::string has = own == nullptr ? "it is not known what it has"
                                           : absl::StrCat("it has entries up to ", own->last());
    const std::string others =
        !all ? "the nodes in sync do not all answer, and what they acknowledged beyond that is lost"
        : most > own->last()
            ? absl::StrCat(most - own->last(), " entries that the nodes in sync have are lost")
            : "the nodes in sync have no more";
    lines.push_back(absl::StrCat(machine.name(), ": node ", to, " is not in sync (",
                                 NodeList(machine.in_sync()), " are); ", has, "; ", others));
  }
  if (lines.empty()) {
    lines.push_back(
        absl::StrCat("the coordinator knows no machines: the cluster begins anew with what node ",
                     to, " has; what other nodes have beyond that is lost"));
  }
  return lines;
}

void AddClaims(const std::vector<NodeReport>& reports, uint32_t to,
               v1::OperatorChangeRequest* request) {
  for (const NodeReport& report : reports) {
    if (report.node != to || !report.state.ok()) continue;
    uint32_t min_in_sync = 1;
    const auto entry = report.state->config().find("cluster.min_in_sync");
    if (entry != report.state->config().end() && !absl::SimpleAtoi(entry->second, &min_in_sync)) {
      min_in_sync = 1;
    }
    for (const v1::ReplicaState& replica : report.state->replicas()) {
      v1::ReplicaClaim* claim = request->add_claims();
      claim->set_machine(replica.machine());
      claim->set_incarnation(replica.incarnation());
      claim->set_min_in_sync(min_in_sync);
      for (const NodeReport& any : reports) {
        const v1::ReplicaState* other = ReplicaOf(reports, any.node, replica.machine());
        if (other != nullptr) claim->set_epoch(std::max(claim->epoch(), other->epoch()));
      }
    }
  }
}

absl::Status UnsafeFailOver(Context& context, const Arguments& arguments) {
  if (arguments.to == 0) return UsageError("--unsafe needs --to: name the node that is to lead");
  auto state = GetClusterState(context);
  if (!state.ok()) return state.status();
  const std::vector<NodeReport> reports = AskNodes(context, *state);
  const auto to = static_cast<uint32_t>(arguments.to);
  const std::string name = arguments.machine.empty() ? state->cluster() : arguments.machine;
  *context.progress << "This failover is UNSAFE:\n";
  for (const std::string& line : NameLoss(*state, reports, arguments)) {
    *context.progress << "  " << line << "\n";
  }
  std::string answer = arguments.yes;
  if (answer.empty()) {
    *context.progress << "To go on, give the name of the "
                      << (arguments.machine.empty() ? "cluster" : "machine") << " (" << name
                      << "): " << std::flush;
    std::getline(std::cin, answer);
  }
  if (answer != name) {
    return absl::FailedPreconditionError(
        absl::StrCat("nothing was changed: '", answer, "' is not the name, which is '", name, "'"));
  }
  v1::OperatorChangeRequest request;
  request.set_act(v1::OPERATOR_ACT_UNSAFE_FAILOVER);
  request.set_node(to);
  request.set_machine(arguments.machine);
  request.set_why(arguments.why);
  AddClaims(reports, to, &request);
  return Change(context, request, arguments.machine.empty() || arguments.machine == "ledger");
}

absl::Status FailOver(Context& context, const Arguments& arguments) {
  if (arguments.unsafe) return UnsafeFailOver(context, arguments);
  if (!arguments.machine.empty() || !arguments.yes.empty()) {
    return UsageError("--machine and --yes belong to --unsafe");
  }
  v1::OperatorChangeRequest request;
  request.set_act(v1::OPERATOR_ACT_FAILOVER);
  request.set_node(static_cast<uint32_t>(arguments.to));
  request.set_why(arguments.why);
  return Change(context, request, true);
}

absl::Status Pause(Context& context, v1::OperatorAct act, const std::string& why) {
  v1::OperatorChangeRequest request;
  request.set_act(act);
  request.set_why(why);
  auto response = ChangeCluster(context, request);
  if (!response.ok()) return response.status();
  ShowChange(context, *response);
  return absl::OkStatus();
}

void AddTo(CLI::App* command, const std::shared_ptr<Arguments>& arguments) {
  AddNumber(command, "--to", &arguments->to, "The node that is to lead; any that can if not set")
      ->check(CLI::Range(uint64_t{1}, uint64_t{UINT32_MAX}));
  command->add_option("--why", arguments->why, "Reason, for the events");
}

}  // namespace

void AddFailover(Commands* commands) {
  auto of_switchover = std::make_shared<Arguments>();
  auto* switchover = commands->root()->add_subcommand(
      "switchover", "Has the node that leads hand over, and waits until another one leads");
  AddTo(switchover, of_switchover);
  commands->On(switchover, [of_switchover](Context& c) { return SwitchOver(c, *of_switchover); });

  auto of_failover = std::make_shared<Arguments>();
  auto* failover = commands->root()->add_subcommand(
      "failover",
      "Has a node that is in sync take over, whatever became of the one that led; loses nothing");
  AddTo(failover, of_failover);
  failover->add_flag("--unsafe", of_failover->unsafe,
                     "The node of --to takes over with what it has; what it lacks is LOST");
  failover->add_option("--machine", of_failover->machine,
                       "With --unsafe: one machine, as in shards; all if not set");
  failover->add_option("--yes", of_failover->yes,
                       "With --unsafe: the name of the machine, or of the cluster if it is all, "
                       "instead of being asked for it");
  commands->On(failover, [of_failover](Context& c) { return FailOver(c, *of_failover); });

  auto why = std::make_shared<std::string>();
  auto* pause = failover->add_subcommand(
      "pause",
      "Nobody takes over by itself any more; status says so, and why, until it is resumed");
  pause->add_option("--why", *why, "Reason, for all who look")->required();
  commands->On(pause, [why](Context& c) { return Pause(c, v1::OPERATOR_ACT_PAUSE, *why); });
  auto* resume = failover->add_subcommand("resume", "Lets automatic failover go on");
  resume->add_option("--why", *why, "Reason, for the events");
  commands->On(resume, [why](Context& c) { return Pause(c, v1::OPERATOR_ACT_RESUME, *why); });
}

}  // namespace forebay::ctl
