#include "node/cluster_operator.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/sync.h"
#include "cluster/placement.h"
#include "cluster/transitions.h"
#include "node/cluster_node.h"

namespace forebay::node {
namespace {

using cluster::Configuration;
using cluster::NodeId;

constexpr size_t kTrimMax = 32;  // old events that go with an act
constexpr absl::Duration kTry = absl::Seconds(2);
// An answer that was lost is looked for again after a moment.
constexpr absl::Duration kPause = absl::Milliseconds(100);

absl::Status Refuse(const std::string& why) { return absl::FailedPreconditionError(why); }

std::string Name(NodeId node) { return absl::StrCat("node ", node.value); }

absl::Status CheckNode(const ClusterState& state, NodeId node) {
  if (state.nodes.contains(node) || state.present.contains(node)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("there is no ", Name(node), " in this cluster"));
}

TransactionResult CommitNow(Coordinator* coordinator, Transaction transaction,
                            absl::Duration timeout) {
  struct Wait {
    Notification over;
    TransactionResult result;
  };
  auto wait = std::make_shared<Wait>();
  coordinator->Commit(std::move(transaction), timeout, [wait](TransactionResult result) {
    wait->result = std::move(result);
    wait->over.Notify();
  });
  wait->over.Wait();
  return std::move(wait->result);
}

bool InSyncEverywhere(const ClusterState& state, NodeId node) {
  return std::ranges::all_of(state.machines, [node](const auto& machine) {
    return machine.second.configuration.InSync(node);
  });
}

// Names of machines that `node` is not in sync with.
std::string Lacking(const ClusterState& state, NodeId node) {
  std::string names;
  for (const auto& [name, machine] : state.machines) {
    if (!machine.configuration.InSync(node)) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", name);
    }
  }
  return names;
}

// The node that is to take over, other than `from`.
absl::StatusOr<NodeId> Successor(const ClusterState& state, NodeId from, NodeId to) {
  if (state.machines.empty()) return Refuse("the cluster has not begun: it has no machines");
  if (to != NodeId()) {
    FOREBAY_RETURN_IF_ERROR(CheckNode(state, to));
    const std::string lacking = Lacking(state, to);
    if (!lacking.empty()) {
      return Refuse(absl::StrCat(Name(to), " is not in sync with ", lacking,
                                 ": it would lose what was acknowledged"));
    }
    // With none there, the operator says who is to be the first.
    if (!state.present.contains(to) && !state.present.empty()) {
      return Refuse(absl::StrCat(Name(to), " is not there: start it, or name another node"));
    }
    return to;
  }
  for (const bool drained : {false, true}) {
    for (const auto& [node, address] : state.present) {
      if (node == from || state.drained.contains(node) != drained) continue;
      if (InSyncEverywhere(state, node)) return node;
    }
  }
  return Refuse("no other node that is there is in sync with every machine");
}

}  // namespace

ClusterOperator::ClusterOperator(Coordinator* coordinator, std::string cluster, uint32_t replicas,
                                 absl::Duration timeout)
    : coordinator_(coordinator),
      cluster_(std::move(cluster)),
      prefix_(ClusterPrefix(cluster_)),
      replicas_(replicas),
      timeout_(timeout) {}

absl::StatusOr<ClusterState> ClusterOperator::Read() const {
  return ReadCluster(coordinator_, cluster_, timeout_);
}

absl::StatusOr<Done> ClusterOperator::Change(const Operator& by, const Planned& plan) const {
  const absl::Time until = absl::Now() + timeout_;
  absl::Status why = absl::DeadlineExceededError("the coordinator did not answer");
  for (bool first = true; first || absl::Now() < until; first = false) {
    if (!first) absl::SleepFor(std::min(kPause, until - absl::Now()));
    auto state = ReadCluster(coordinator_, cluster_,
                             std::clamp(until - absl::Now(), absl::Milliseconds(1), timeout_));
    if (!state.ok()) return state.status();
    Transaction transaction;
    auto done = plan(*state, &transaction);
    if (!done.ok() || transaction.changes.empty()) return done;
    transaction.changes.push_back(NewEvent(prefix_, by.who, done->what, by.why));
    for (const std::string& name : Superfluous(state->events, kTrimMax)) {
      transaction.changes.push_back({absl::StrCat(prefix_, name), std::nullopt});
    }
    const TransactionResult result =
        CommitNow(coordinator_, std::move(transaction),
                  std::clamp(until - absl::Now(), absl::Milliseconds(1), kTry));
    if (result.outcome == Outcome::kDone) {
      done->changed = true;
      done->revision = result.revision;
      return done;
    }
    if (result.outcome == Outcome::kRefused) {
      why = absl::AbortedError("the cluster changes all the time: it was never as it was read");
    } else {
      why = result.why;  // what is so already is found at the next look
    }
  }
  return why;
}

void ClusterOperator::Put(const ClusterState& state, const std::string& machine,
                          const Configuration& next, Transaction* transaction) const {
  const std::string key = absl::StrCat(prefix_, "machines/", machine);
  const auto found = state.machines.find(machine);
  transaction->conditions.push_back(
      {key, found == state.machines.end() ? 0 : found->second.revision.value});
  transaction->changes.push_back({key, cluster::EncodeConfiguration(next)});
}

// --- Pause, drain ---

absl::StatusOr<Done> ClusterOperator::Pause(const Operator& by) const {
  const std::string text = absl::StrCat(by.who, by.why.empty() ? "" : ": ", by.why);
  return Change(by, [&](const ClusterState& state, Transaction* t) -> absl::StatusOr<Done> {
    if (state.paused == text) return Done{.what = "automatic failover is paused already"};
    t->conditions.push_back({absl::StrCat(prefix_, "paused"), state.paused_revision});
    t->changes.push_back({absl::StrCat(prefix_, "paused"), text});
    return Done{.what = "automatic failover is paused"};
  });
}

absl::StatusOr<Done> ClusterOperator::Resume(const Operator& by) const {
  return Change(by, [&](const ClusterState& state, Transaction* t) -> absl::StatusOr<Done> {
    if (!state.paused) return Done{.what = "automatic failover is not paused"};
    t->conditions.push_back({absl::StrCat(prefix_, "paused"), state.paused_revision});
    t->changes.push_back({absl::StrCat(prefix_, "paused"), std::nullopt});
    return Done{.what = "automatic failover goes on"};
  });
}

absl::StatusOr<Done> ClusterOperator::Drain(NodeId node, const Operator& by) const {
  return Change(by, [&](const ClusterState& state, Transaction* t) -> absl::StatusOr<Done> {
    FOREBAY_RETURN_IF_ERROR(CheckNode(state, node));
    if (state.drained.contains(node)) {
      return Done{.what = absl::StrCat(Name(node), " is drained already"), .node = node};
    }
    t->conditions.push_back({absl::StrCat(prefix_, "drained/", node.value), 0});
    t->changes.push_back({absl::StrCat(prefix_, "drained/", node.value), by.who});
    return Done{.what = absl::StrCat(Name(node), " is drained"), .node = node};
  });
}

absl::StatusOr<Done> ClusterOperator::Undrain(NodeId node, const Operator& by) const {
  return Change(by, [&](const ClusterState& state, Transaction* t) -> absl::StatusOr<Done> {
    const auto found = state.drained.find(node);
    if (found == state.drained.end()) {
      FOREBAY_RETURN_IF_ERROR(CheckNode(state, node));
      return Done{.what = absl::StrCat(Name(node), " is not drained"), .node = node};
    }
    t->conditions.push_back({absl::StrCat(prefix_, "drained/", node.value), found->second});
    t->changes.push_back({absl::StrCat(prefix_, "drained/", node.value), std::nullopt});
    return Done{.what = absl::StrCat(Name(node), " takes replicas again"), .node = node};
  });
}

// --- Replicas ---

absl::StatusOr<Done> ClusterOperator::ChangeEach(
    const Operator& by, const std::string& machine, const std::string& what,
    const std::function<absl::StatusOr<Configuration>(const std::string&, const Configuration&)>&
        next) const {
  return Change(by, [&](const ClusterState& state, Transaction* t) -> absl::StatusOr<Done> {
    if (state.machines.empty()) return Refuse("the cluster has not begun: it has no machines");
    if (!machine.empty() && !state.machines.contains(machine)) {
      return absl::NotFoundError(
          absl::StrCat("there is no machine '", machine, "'; see them with: buffer-ctl shards"));
    }
    std::string names;
    for (const auto& [name, held] : state.machines) {
      if (!machine.empty() && name != machine) continue;
      auto changed = next(name, held.configuration);
      if (!changed.ok()) {
        return absl::Status(changed.status().code(),
                            absl::StrCat(name, ": ", std::string(changed.status().message())));
      }
      if (*changed == held.configuration) continue;
      Put(state, name, *changed, t);
      absl::StrAppend(&names, names.empty() ? "" : ", ", name);
    }
    return Done{.what = names.empty() ? absl::StrCat("nothing to do: ", what)
                                      : absl::StrCat(what, ": ", names)};
  });
}

absl::StatusOr<Done> ClusterOperator::AddReplica(NodeId node, const std::string& machine,
                                                 const Operator& by) const {
  auto state = Read();
  if (!state.ok()) return state.status();
  FOREBAY_RETURN_IF_ERROR(CheckNode(*state, node));
  if (state->drained.contains(node)) {
    return Refuse(absl::StrCat(Name(node), " is drained: undrain it first"));
  }
  return ChangeEach(
      by, machine, absl::StrCat("a replica on ", Name(node)),
      [node](const std::string&, const Configuration& now) -> absl::StatusOr<Configuration> {
        if (now.Leaving(node)) return cluster::Next(now, cluster::Stay{node});
        if (now.placed(node)) return now;
        return cluster::Next(now, cluster::Place{node});
      });
}

absl::StatusOr<Done> ClusterOperator::RemoveReplica(NodeId node, const std::string& machine,
                                                    const Operator& by) const {
  auto state = Read();
  if (!state.ok()) return state.status();
  const bool back = state->present.contains(node) && !state->drained.contains(node);
  return ChangeEach(
      by, machine, absl::StrCat("no replica on ", Name(node)),
      [&](const std::string& name, const Configuration& now) -> absl::StatusOr<Configuration> {
        if (!now.placed(node) || now.Leaving(node)) return now;
        // The node that leads would give it back.
        if (back && now.incarnations.size() - now.leaving.size() <= Replicas(*state)) {
          return Refuse(absl::StrCat("would have fewer than ", Replicas(*state),
                                     " replicas, and the placement would put this one back: "
                                     "drain ",
                                     Name(node), ", or add another one of ", name, " first"));
        }
        if (!now.InSync(node)) return cluster::Next(now, cluster::Displace{node});
        return cluster::Next(now, cluster::Retire{node});
      });
}

// --- Who leads ---

absl::StatusOr<Done> ClusterOperator::SwitchOver(NodeId to, const Operator& by) const {
  NodeId asked_of;  // by the first try
  return Change(by, [&](const ClusterState& state, Transaction* t) -> absl::StatusOr<Done> {
    const NodeId from = state.leader();
    if (to != NodeId() && from == to) {
      return Done{.what = absl::StrCat(Name(to), " leads already"), .node = to};
    }
    if (!state.present.contains(from)) {
      return Refuse("no node leads that could hand over: see buffer-ctl failover");
    }
    if (asked_of != NodeId() && asked_of != from) {
      return Done{.what = absl::StrCat(Name(from), " leads meanwhile"), .node = from};
    }
    asked_of = from;
    if (auto chosen = Successor(state, from, to); !chosen.ok()) return chosen.status();
    const SwitchoverWish wish{.from = from, .to = to, .who = by.who, .why = by.why};
    const std::string what = absl::StrCat(Name(from), " is to hand over to ",
                                          to == NodeId() ? "another node" : Name(to));
    if (state.wish == wish) return Done{.what = what, .revision = state.wish_revision, .node = to};
    t->conditions.push_back({absl::StrCat(prefix_, "wish"), state.wish_revision});
    t->changes.push_back({absl::StrCat(prefix_, "wish"), EncodeWish(wish)});
    return Done{.what = what, .node = to};
  });
}

absl::StatusOr<Done> ClusterOperator::FailOver(NodeId to, const Operator& by) const {
  NodeId chosen = to;
  return Change(by, [&](const ClusterState& state, Transaction* t) -> absl::StatusOr<Done> {
    auto successor = Successor(state, state.leader(), chosen);
    if (!successor.ok()) return successor.status();
    chosen = *successor;  // also of a try whose answer was lost
    for (const auto& [name, machine] : state.machines) {
      const Configuration& now = machine.configuration;
      if (now.primary == chosen) continue;
      auto next = cluster::Next(now, cluster::Promote{chosen, now.incarnation(chosen)});
      if (!next.ok()) {
        return absl::Status(next.status().code(),
                            absl::StrCat(name, ": ", std::string(next.status().message())));
      }
      Put(state, name, *next, t);
    }
    if (t->changes.empty()) {
      return Done{.what = absl::StrCat(Name(chosen), " leads already"), .node = chosen};
    }
    return Done{.what = absl::StrCat("failover from ", Name(state.leader()), " to ", Name(chosen)),
                .node = chosen};
  });
}

absl::StatusOr<Done> ClusterOperator::UnsafeFailOver(NodeId to, const std::string& machine,
                                                     const std::vector<ReplicaClaim>& claims,
                                                     const Operator& by) const {
  if (to == NodeId()) return absl::InvalidArgumentError("name the node that is to lead");
  std::map<std::string, const ReplicaClaim*> claimed;
  for (const ReplicaClaim& claim : claims) claimed[claim.machine] = &claim;
  return Change(by, [&](const ClusterState& state, Transaction* t) -> absl::StatusOr<Done> {
    FOREBAY_RETURN_IF_ERROR(CheckNode(state, to));
    std::set<std::string> names;
    for (const auto& [name, held] : state.machines) names.insert(name);
    for (const auto& [name, claim] : claimed) names.insert(name);
    if (!machine.empty() && !names.contains(machine)) {
      return absl::NotFoundError(absl::StrCat("there is no machine '", machine, "'"));
    }
    if (names.empty()) {
      return Refuse(absl::StrCat("the coordinator knows no machines; ask ", Name(to),
                                 " itself, which knows its own"));
    }
    for (const std::string& name : names) {
      if (!machine.empty() && name != machine) continue;
      const auto found = state.machines.find(name);
      const auto claim = claimed.find(name);
      Configuration now;
      if (found != state.machines.end()) {
        now = found->second.configuration;
      } else {
        // Its reign is to be later than all that the logs hold.
        now.epoch = claim->second->epoch;
        now.min_in_sync = claim->second->min_in_sync;
        for (const auto& [node, address] : state.nodes) {
          if (node == to || now.incarnations.size() + 1 < Replicas(state)) {
            now.incarnations[node] = cluster::Incarnation();
          }
        }
        now.incarnations[to] = claim->second->incarnation;
        now.in_sync = {to};
        if (now.epoch != cluster::Epoch()) now.primary = to;
      }
      if (found != state.machines.end() && now.primary == to &&
          now.in_sync == std::vector<NodeId>{to}) {
        continue;
      }
      const cluster::Incarnation incarnation =
          claim != claimed.end() ? claim->second->incarnation : now.incarnation(to);
      if (incarnation == cluster::Incarnation()) {
        return Refuse(absl::StrCat(name, ": it is not known which log ", Name(to),
                                   " has: start it, and ask again"));
      }
      auto next = cluster::Next(now, cluster::UnsafeFailover{to, incarnation});
      if (!next.ok()) {
        return absl::Status(next.status().code(),
                            absl::StrCat(name, ": ", std::string(next.status().message())));
      }
      Put(state, name, *next, t);
    }
    if (t->changes.empty()) {
      return Done{.what = absl::StrCat(Name(to), " alone is in sync already"), .node = to};
    }
    return Done{
        .what = absl::StrCat("UNSAFE failover of ", machine.empty() ? "all machines" : machine,
                             " to ", Name(to), ": what it lacks is lost"),
        .node = to};
  });
}

// --- Placement ---

uint32_t ClusterOperator::Replicas(const ClusterState& state) const {
  if (replicas_ > 0) return replicas_;
  size_t most = 1;
  for (const auto& [name, machine] : state.machines) {
    most = std::max(
        most, machine.configuration.incarnations.size() - machine.configuration.leaving.size());
  }
  return static_cast<uint32_t>(most);
}

std::vector<ClusterOperator::PlannedMove> ClusterOperator::Moves(const ClusterState& state) const {
  std::vector<Configuration> machines;
  std::vector<const std::string*> names;
  for (const auto& [name, machine] : state.machines) {
    names.push_back(&name);
    machines.push_back(machine.configuration);
  }
  std::set<NodeId> available;
  for (const auto& [node, address] : state.present) {
    if (!state.drained.contains(node)) available.insert(node);
  }
  std::vector<PlannedMove> moves;
  for (const cluster::Move& move : cluster::PlanPlacement(machines, available, Replicas(state))) {
    auto next = cluster::Next(machines[move.machine], move.event);
    if (!next.ok()) continue;
    const std::string& name = *names[move.machine];
    std::string what = DescribeChange(name, machines[move.machine], *next);
    if (what.empty()) what = absl::StrCat(name, ": a replica that was to leave stays");
    moves.push_back({name, *std::move(next), std::move(what)});
  }
  return moves;
}

std::vector<std::string> ClusterOperator::Plan(const ClusterState& state) const {
  std::vector<std::string> lines;
  for (PlannedMove& move : Moves(state)) lines.push_back(std::move(move.what));
  return lines;
}

absl::StatusOr<Done> ClusterOperator::Rebalance(const Operator& by) const {
  return Change(by, [&](const ClusterState& state, Transaction* t) -> absl::StatusOr<Done> {
    std::string what;
    for (const PlannedMove& move : Moves(state)) {
      Put(state, move.machine, move.next, t);
      absl::StrAppend(&what, what.empty() ? "" : "; ", move.what);
    }
    return Done{.what = what.empty() ? "all replicas are where they should be" : what};
  });
}

int ClusterOperator::Tolerated(const ClusterState& state) {
  std::set<NodeId> up;
  for (const auto& [node, address] : state.present) up.insert(node);
  int least = state.machines.empty() ? -1 : INT32_MAX;
  for (const auto& [name, machine] : state.machines) {
    least = std::min(least, cluster::FailuresTolerated(machine.configuration, up));
  }
  return least;
}

int ClusterOperator::Tolerable(const ClusterState& state, uint32_t replicas) {
  const int all = static_cast<int>(replicas);
  int least = all - 1;
  for (const auto& [name, machine] : state.machines) {
    least = std::min(least, all - static_cast<int>(machine.configuration.min_in_sync));
  }
  return std::max(least, 0);
}

}  // namespace forebay::node
