#include "node/cluster_node.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sync.h"
#include "cluster/placement.h"
#include "cluster/transitions.h"

namespace forebay::node {
namespace {

constexpr auto kTick = absl::Milliseconds(10);
constexpr uint64_t kFollowMs = 100;   // between two tries to bring a machine to the ledger's node
constexpr uint64_t kPlaceMs = 1'000;  // between two looks at the placement
constexpr uint64_t kLeaveMs = 5'000;  // between two tries of a node that is drained to hand over
constexpr size_t kTrimMax = 64;       // events that are forgotten at once
// The first nodes wait so long for others, so that the first set holds them.
constexpr uint64_t kGatherMs = 3'000;
// A planned switchover that has not come to pass is given up; once the first machine is elsewhere,
// the others are waited for.
constexpr uint64_t kHandOverMs = 2'000, kDeposedMs = 500;
// A node that leads without a shard which serves again hands over, or begins anew if for so long
// there is nobody to hand over to.
constexpr uint64_t kTakeBackMs = 500, kTakeBackAloneMs = 5'000;
constexpr uint64_t kGoodbyeMs = 1'000;  // then a node ends though it is waited for
constexpr auto kCallTimeout = absl::Seconds(2);
constexpr auto kPresence = absl::Seconds(5);

uint64_t SteadyMs() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

absl::StatusOr<KeyState> Await(Coordinator* coordinator, const std::string& prefix,
                               absl::Duration timeout) {
  auto answer = std::make_shared<absl::StatusOr<KeyState>>(absl::UnknownError(""));
  auto over = std::make_shared<Notification>();
  coordinator->GetPrefix(prefix, timeout, [answer, over](absl::StatusOr<KeyState> state) {
    *answer = std::move(state);
    over->Notify();
  });
  over->Wait();
  return *std::move(answer);
}

replication::SwapAnswer AnswerOf(uint64_t id, const TransactionResult& result) {
  using replication::SwapOutcome;
  replication::SwapAnswer answer{.id = id};
  if (result.outcome == Outcome::kDone) {
    answer.outcome = SwapOutcome::kDone;
    answer.revision = cluster::ConfigurationRevision(result.revision);
  } else if (result.outcome == Outcome::kRefused && result.now.size() == 1) {
    auto current = cluster::DecodeConfiguration(result.now[0].value);
    if (!current.ok()) return answer;  // unknown: the watch tells what stands there
    answer.outcome = SwapOutcome::kRefused;
    answer.revision = cluster::ConfigurationRevision(result.now[0].revision);
    answer.current = *std::move(current);
  }
  return answer;
}

}  // namespace

absl::StatusOr<RunIdentity> AgreeOnRun(Coordinator* coordinator, const std::string& cluster,
                                       const RunIdentity& proposed, absl::Duration timeout) {
  const std::string key = absl::StrCat(ClusterPrefix(cluster), "run");
  const absl::Time until = absl::Now() + timeout;
  absl::Status why = absl::OkStatus();
  while (absl::Now() < until) {
    const auto state = Await(coordinator, key, std::min(kCallTimeout, until - absl::Now()));
    if (state.ok() && !state->entries.empty()) {
      auto identity = DecodeIdentity(state->entries[0].value);
      if (!identity.ok()) return identity.status();
      if (identity->run_seed != proposed.run_seed || identity->shards != proposed.shards) {
        return absl::FailedPreconditionError(
            absl::StrCat("the cluster '", cluster, "' has run.seed ", identity->run_seed,
                         " and shards ", identity->shards, ", this node's configuration ",
                         proposed.run_seed, " and ", proposed.shards));
      }
      return identity;
    }
    why = state.status();
    if (!state.ok()) continue;
    auto over = std::make_shared<Notification>();
    coordinator->Commit({.conditions = {{key, 0}}, .changes = {{key, EncodeIdentity(proposed)}}},
                        std::min(kCallTimeout, until - absl::Now()),
                        [over](const TransactionResult&) { over->Notify(); });
    over->Wait();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("the coordinator did not say whose run it is: ", why.message()));
}

absl::StatusOr<ClusterState> ReadCluster(Coordinator* coordinator, const std::string& cluster,
                                         absl::Duration timeout) {
  const std::string prefix = ClusterPrefix(cluster);
  auto state = Await(coordinator, prefix, timeout);
  if (!state.ok()) return state.status();
  ClusterReader reader(prefix);
  const auto wrong = reader.Read(*state);
  if (!wrong.empty()) return absl::DataLossError(wrong[0]);
  return reader.state();
}

ClusterNode::ClusterNode(ClusterOptions options, Coordinator* coordinator,
                         ClusterCallbacks callbacks)
    : options_(std::move(options)),
      prefix_(ClusterPrefix(options_.name)),
      coordinator_(coordinator),
      callbacks_(std::move(callbacks)),
      reader_(prefix_) {}

ClusterNode::~ClusterNode() { Stop(); }

void ClusterNode::Add(std::shared_ptr<MachineReplica> replica) {
  by_name_[replica->name()] = replica.get();
  replicas_.push_back(std::move(replica));
}

absl::Status ClusterNode::Start() {
  std::vector<bool> needed;
  for (const auto& replica : replicas_) needed.push_back(!replica->name().starts_with("shard-"));
  leadership_.emplace(std::move(needed), options_.lead_without_after_ms);
  auto watch = coordinator_->WatchPrefix({.prefix = prefix_}, [this](WatchEvent event) {
    loop_.Post([this, event = std::move(event)] { OnWatch(event); });
  });
  if (!watch.ok()) return watch.status();
  watch_ = *std::move(watch);
  auto presence =
      coordinator_->Announce({.key = absl::StrCat(prefix_, "present/", options_.node.value),
                              .value = EncodeNodeAddress(options_.address),
                              .time_to_live = kPresence},
                             [](const PresenceEvent&) {});
  if (!presence.ok()) return presence.status();
  presence_ = *std::move(presence);
  ticks_.Post([this] { TickReplicas(); });
  loop_.Post([this] { Look(); });
  return absl::OkStatus();
}

void ClusterNode::Stop() {
  watch_.reset();
  presence_.reset();
  ticks_.Stop();
  loop_.Stop();
  for (const auto& replica : replicas_) replica->Close();
}

void ClusterNode::OnMessage(std::string_view machine, std::string_view bytes) {
  const auto found = by_name_.find(machine);
  if (found != by_name_.end()) found->second->OnMessage(bytes);
}

std::unique_ptr<SnapshotReceiver> ClusterNode::OnSnapshot(std::string_view machine,
                                                          std::string_view head) {
  const auto found = by_name_.find(machine);
  return found == by_name_.end() ? nullptr : found->second->OnSnapshot(head);
}

std::string ClusterNode::Self() const { return absl::StrCat("node ", options_.node.value); }

std::string ClusterNode::KeyOf(const std::string& machine) const {
  return absl::StrCat(prefix_, "machines/", machine);
}

void ClusterNode::Swap(const std::string& machine, const replication::Swap& swap,
                       absl::AnyInvocable<void(const replication::SwapAnswer&)> answer) {
  const std::string key = KeyOf(machine);
  Transaction transaction{.conditions = {{key, swap.base.value}},
                          .changes = {{key, cluster::EncodeConfiguration(swap.next)}}};
  std::string what;
  {
    MutexLock lock(&known_mutex_);
    what = DescribeChange(machine, known_[machine], swap.next);
  }
  if (!what.empty()) transaction.changes.push_back(NewEvent(prefix_, Self(), what));
  coordinator_->Commit(
      std::move(transaction), kCallTimeout,
      [id = swap.id, answer = std::move(answer)](const TransactionResult& result) mutable {
        answer(AnswerOf(id, result));
      });
}

void ClusterNode::TickReplicas() {
  for (const auto& replica : replicas_) replica->Tick();
  ticks_.At(DeadlineIn(kTick), [this] { TickReplicas(); });
}

// --- The loop ---

void ClusterNode::Look() {
  loop_.At(DeadlineIn(kTick), [this] { Look(); });
  const uint64_t now = SteadyMs();
  if (!reader_.known()) return;
  for (const auto& [node, address] : reader_.state().present) seen_ms_[node] = now;
  LookWhetherToLead(now);
  GoOnHandingOver();
  LookWhetherDeposed(now);
  GoOnLeaving(now);
  if (now < follow_ms_) return;
  follow_ms_ = now + kFollowMs;
  Register();
  Bootstrap(now);
  FollowLedger();
  FulfilWishes(now);
  if (now < place_ms_) return;
  place_ms_ = now + kPlaceMs;
  for (const auto& replica : replicas_) replica->LookAtLog(nullptr);
  Place(now);
  TrimEvents();
}

void ClusterNode::LookWhetherToLead(uint64_t now_ms) {
  std::vector<bool> serving;
  for (const auto& replica : replicas_) serving.push_back(replica->serving());
  const auto change = leadership_->Look(now_ms, serving);
  if (change == cluster::Leadership::Change::kLead) {
    leading_ = true;
    callbacks_.lead(WhatIsMissing());
  }
  if (change == cluster::Leadership::Change::kWhole) {
    TakeBack(now_ms);
  } else {
    whole_ms_ = 0;
  }
}

AbsentMachines ClusterNode::WhatIsMissing() const {
  AbsentMachines missing;
  const ClusterState& state = reader_.state();
  for (const uint32_t i : leadership_->missing()) {
    const MachineReplica& replica = *replicas_[i];
    std::string in_sync;
    if (const auto found = state.machines.find(replica.name()); found != state.machines.end()) {
      const cluster::Configuration& set = found->second.configuration;
      for (const cluster::NodeId node : set.in_sync) {
        const bool lost = node == options_.node && !set.InSync(node, replica.incarnation());
        absl::StrAppend(&in_sync, in_sync.empty() ? "" : ", ", node.value,
                        lost                            ? " (whose log was lost or cut)"
                        : !state.present.contains(node) ? " (down)"
                                                        : "");
      }
    }
    missing[replica.name()] =
        absl::StrCat(replica.name(), " is absent: for ", options_.lead_without_after_ms,
                     " ms no node has brought it to the one that leads; in sync with it: ",
                     in_sync.empty() ? "none" : in_sync);
  }
  return missing;
}

// Whoever leads next takes up everything.
void ClusterNode::TakeBack(uint64_t now_ms) {
  if (left_ != nullptr || deposed_ms_ != 0 || hand_over_to_ != cluster::NodeId()) return;
  if (whole_ms_ == 0) whole_ms_ = now_ms;
  if (now_ms < take_back_ms_) return;
  take_back_ms_ = now_ms + kTakeBackMs;
  if (const auto to = SuccessorFor(cluster::NodeId()); to.ok()) {
    WriteEvent(absl::StrCat("hands over to node ", to->value), "a shard that was absent is back");
    return BeginHandingOver(*to);
  }
  // While failover is paused nobody would lead afterwards.
  if (paused_ || now_ms - whole_ms_ < kTakeBackAloneMs) return;
  take_back_ms_ = UINT64_MAX;
  callbacks_.deposed("a shard that was absent is back");
}

void ClusterNode::OnDeposed() {
  loop_.Post([this] {
    if (deposed_ms_ == 0) deposed_ms_ = SteadyMs();
  });
}

void ClusterNode::LookWhetherDeposed(uint64_t now_ms) {
  if (deposed_ms_ == 0) return;
  const bool hands_over = hand_over_to_ != cluster::NodeId() && now_ms - deposed_ms_ < kDeposedMs;
  const bool serves =
      std::ranges::any_of(replicas_, [](const auto& replica) { return replica->serving(); });
  if (hands_over && serves) return;
  callbacks_.deposed("another node leads");
}

void ClusterNode::OnWatch(const WatchEvent& event) {
  for (const std::string& wrong : reader_.Read(event)) callbacks_.note(wrong);
  if (reader_.known()) Tell();
}

void ClusterNode::Tell() {
  const ClusterState& state = reader_.state();
  // First: with a configuration a replica may take over.
  if (std::exchange(paused_, state.paused.has_value()) != state.paused.has_value()) {
    for (const auto& replica : replicas_) replica->SetPaused(paused_);
  }
  for (const auto& [name, machine] : state.machines) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end() || told_[name] >= machine.revision) continue;
    told_[name] = machine.revision;
    {
      MutexLock lock(&known_mutex_);
      known_[name] = machine.configuration;
    }
    found->second->OnConfiguration(machine.revision, machine.configuration);
  }
  std::map<cluster::NodeId, std::string> peers;
  for (const auto* nodes : {&state.nodes, &state.present}) {
    for (const auto& [node, address] : *nodes) {
      if (node != options_.node) peers[node] = address.grpc;
    }
  }
  if (peers != peers_) callbacks_.peers(peers_ = std::move(peers));
  callbacks_.changed(state);
}

// Where it is, for those who look while it is down.
void ClusterNode::Register() {
  const auto& nodes = reader_.state().nodes;
  const auto found = nodes.find(options_.node);
  if (found != nodes.end() && found->second == options_.address) return;
  Commit("register this node", {.conditions = {},
                                .changes = {{absl::StrCat(prefix_, "nodes/", options_.node.value),
                                             EncodeNodeAddress(options_.address)}}});
}

void ClusterNode::Commit(const std::string& what, Transaction transaction,
                         absl::AnyInvocable<void()> then) {
  if (committing_) return;
  committing_ = true;
  coordinator_->Commit(
      std::move(transaction), kCallTimeout,
      [this, what, then = std::move(then)](const TransactionResult& result) mutable {
        loop_.Post([this, what, then = std::move(then), outcome = result.outcome,
                    why = result.why]() mutable {
          committing_ = false;
          if (outcome != Outcome::kDone) {
            callbacks_.note(absl::StrCat("could not ", what, " yet: ",
                                         why.ok() ? "it has changed meanwhile" : why.message()));
          } else if (then) {
            then();
          }
        });
      });
}

// The first set of every machine: the nodes that are there. Who writes it alone is in sync, with a
// log that is empty; the others join as any replica does.
void ClusterNode::Bootstrap(uint64_t now_ms) {
  const ClusterState& state = reader_.state();
  if (state.machines.size() >= replicas_.size() || committing_) return;
  std::string holds;
  for (const auto& [node, address] : state.present) {
    if (!address.empty) absl::StrAppend(&holds, holds.empty() ? "" : ", ", node.value);
  }
  if (!holds.empty()) {
    if (std::exchange(refused_, holds) != holds) {
      callbacks_.note(absl::StrCat(
          "the coordinator knows nothing of who is in sync, and there are logs on node ", holds,
          ": restore etcd, or name a node whose logs are whole: buffer-ctl failover --unsafe"));
    }
    return;
  }
  if (!state.present.contains(options_.node) || state.present.size() < options_.min_in_sync) {
    enough_ms_ = 0;
    return;
  }
  if (enough_ms_ == 0) enough_ms_ = now_ms;
  if (state.present.size() < options_.replicas && now_ms - enough_ms_ < kGatherMs) return;
  Transaction transaction;
  for (const auto& replica : replicas_) {
    cluster::Configuration first;
    first.in_sync = {options_.node};
    first.min_in_sync = options_.min_in_sync;
    for (const auto& [node, address] : state.present) {
      if (first.incarnations.size() < std::max<size_t>(options_.replicas, 1) ||
          node == options_.node) {
        first.incarnations[node] = cluster::Incarnation(0);
      }
    }
    first.incarnations[options_.node] = replica->incarnation();
    transaction.conditions.push_back({KeyOf(replica->name()), 0});
    transaction.changes.push_back({KeyOf(replica->name()), cluster::EncodeConfiguration(first)});
  }
  transaction.changes.push_back(
      NewEvent(prefix_, Self(),
               absl::StrCat("begins the cluster, on ", state.present.size(),
                            state.present.size() == 1 ? " node" : " nodes")));
  Commit("begin the cluster", std::move(transaction));
}

// A machine whose primary is here goes where the ledger's is.
void ClusterNode::FollowLedger() {
  const ClusterState& state = reader_.state();
  const cluster::NodeId leader = state.leader();
  if (leader == cluster::NodeId() || leader == options_.node || leading_) return;
  for (const auto& [name, machine] : state.machines) {
    const auto found = by_name_.find(name);
    if (name == "ledger" || found == by_name_.end() || !found->second->serving()) continue;
    if (!machine.configuration.InSync(leader)) continue;
    found->second->HandOver(leader, [](const absl::Status&) {});
  }
}

// The ledger's primary sees to it that every machine has its replicas.
void ClusterNode::Place(uint64_t now_ms) {
  const ClusterState& state = reader_.state();
  if (state.leader() != options_.node || committing_ || !leading_) return;
  std::vector<cluster::Configuration> machines;
  std::vector<const std::string*> names;
  std::set<cluster::NodeId> available;
  for (const auto& [name, machine] : state.machines) {
    names.push_back(&name);
    machines.push_back(machine.configuration);
    for (const auto& [node, incarnation] : machine.configuration.incarnations) {
      // One that has been away for a while may only be starting anew.
      const uint64_t seen = seen_ms_.try_emplace(node, now_ms).first->second;
      if (now_ms - seen < options_.replace_after_ms) available.insert(node);
    }
  }
  for (const auto& [node, address] : state.present) available.insert(node);
  for (const auto& [node, revision] : state.drained) available.erase(node);
  for (const cluster::Move& move : PlanPlacement(machines, available, options_.replicas)) {
    auto next = cluster::Next(machines[move.machine], move.event);
    if (!next.ok()) continue;
    const std::string& name = *names[move.machine];
    const std::string key = KeyOf(name);
    Commit(
        absl::StrCat("change the placement of ", name),
        {.conditions = {{key, state.machines.at(name).revision.value}},
         .changes = {{key, cluster::EncodeConfiguration(*next)},
                     NewEvent(prefix_, Self(), DescribeChange(name, machines[move.machine], *next),
                              "placement")}});
    return;
  }
}

// What an operator wants of the node that leads. The wish goes first: whoever begins anew half-way
// does not find it again.
void ClusterNode::FulfilWishes(uint64_t now_ms) {
  const ClusterState& state = reader_.state();
  if (state.leader() != options_.node || !leading_ || committing_) return;
  const auto hand_over = [this](cluster::NodeId to, const std::string& why) {
    SwitchOver(to, [this, why](const absl::Status& status) {
      if (!status.ok()) {
        WriteEvent(absl::StrCat("no switchover: ", std::string(status.message())), why);
      }
    });
  };
  if (state.wish) {
    const SwitchoverWish& wish = *state.wish;
    const bool stale = wish.from != options_.node;
    const std::string to =
        wish.to == cluster::NodeId() ? "another node" : absl::StrCat("node ", wish.to.value);
    Commit("begin the switchover that is wished",
           {.conditions = {{absl::StrCat(prefix_, "wish"), state.wish_revision}},
            .changes = {{absl::StrCat(prefix_, "wish"), std::nullopt},
                        NewEvent(prefix_, wish.who,
                                 stale ? absl::StrCat("no switchover to ", to, ": node ",
                                                      options_.node.value, " leads meanwhile")
                                       : absl::StrCat("switchover from node ", options_.node.value,
                                                      " to ", to, " begins"),
                                 wish.why)}},
           [hand_over, stale, to = wish.to, why = wish.why] {
             if (!stale) hand_over(to, why);
           });
    return;
  }
  if (!state.drained.contains(options_.node) || now_ms < leave_ms_) return;
  leave_ms_ = now_ms + kLeaveMs;
  const bool other = std::ranges::any_of(state.present, [&](const auto& node) {
    return node.first != options_.node && !state.drained.contains(node.first);
  });
  if (other) hand_over(cluster::NodeId(), "this node is drained");
}

void ClusterNode::TrimEvents() {
  const ClusterState& state = reader_.state();
  if (state.leader() != options_.node || committing_) return;
  Transaction transaction;
  for (const std::string& name : Superfluous(state.events, kTrimMax)) {
    transaction.changes.push_back({absl::StrCat(prefix_, name), std::nullopt});
  }
  if (!transaction.changes.empty()) Commit("forget old events", std::move(transaction));
}

void ClusterNode::WriteEvent(std::string_view what, std::string_view why) {
  coordinator_->Commit({.conditions = {}, .changes = {NewEvent(prefix_, Self(), what, why)}},
                       kCallTimeout, [this, what = std::string(what)](const TransactionResult& r) {
                         if (r.outcome == Outcome::kDone) return;
                         callbacks_.note(absl::StrCat("not among the events: ", what));
                       });
}

absl::StatusOr<cluster::NodeId> ClusterNode::SuccessorFor(cluster::NodeId to) const {
  const ClusterState& state = reader_.state();
  if (!state.machines.contains("ledger")) {
    return absl::FailedPreconditionError("the cluster has not begun");
  }
  const auto in_sync_everywhere = [&](cluster::NodeId node) {
    return node != options_.node &&
           std::ranges::all_of(state.machines, [node](const auto& machine) {
             return machine.second.configuration.InSync(node);
           });
  };
  cluster::NodeId chosen = to;
  for (const auto& [node, address] : state.present) {
    if (chosen == cluster::NodeId() && in_sync_everywhere(node) && !state.drained.contains(node)) {
      chosen = node;
    }
  }
  if (chosen != cluster::NodeId() && in_sync_everywhere(chosen)) return chosen;
  return absl::FailedPreconditionError(
      to == cluster::NodeId()
          ? "no other node is in sync with every machine"
          : absl::StrCat("node ", to.value, " is not in sync with every machine"));
}

void ClusterNode::BeginHandingOver(cluster::NodeId to) {
  hand_over_to_ = to;
  hand_over_until_ms_ = SteadyMs() + kHandOverMs;
  GoOnHandingOver();
}

void ClusterNode::SwitchOver(cluster::NodeId to, absl::AnyInvocable<void(absl::Status)> done) {
  loop_.Post([this, to, done = std::move(done)]() mutable {
    const auto chosen = SuccessorFor(to);
    if (chosen.ok()) BeginHandingOver(*chosen);
    done(chosen.status());
  });
}

void ClusterNode::GoOnHandingOver() {
  if (hand_over_to_ == cluster::NodeId()) return;
  if (deposed_ms_ == 0 && SteadyMs() >= hand_over_until_ms_) {
    hand_over_to_ = cluster::NodeId();
    callbacks_.note("a planned switchover did not come to pass");
    WriteEvent("a planned switchover did not come to pass", "");
    return;
  }
  for (const auto& replica : replicas_) {
    if (replica->serving()) replica->HandOver(hand_over_to_, [](const absl::Status&) {});
  }
}

void ClusterNode::Leave(absl::AnyInvocable<void()> done) {
  loop_.Post([this, done = std::move(done)]() mutable {
    left_ = std::move(done);
    leave_until_ms_ = SteadyMs() + kGoodbyeMs;
    GoOnLeaving(SteadyMs());
  });
}

void ClusterNode::GoOnLeaving(uint64_t now_ms) {
  if (left_ == nullptr) return;
  // Who cannot be spared is waited for, whether it is there or not.
  const bool waited_for =
      std::ranges::any_of(reader_.state().machines, [this](const auto& machine) {
        const cluster::Configuration& set = machine.second.configuration;
        return set.InSync(options_.node) && set.in_sync.size() > set.min_in_sync;
      });
  if (!waited_for || now_ms >= leave_until_ms_) return std::exchange(left_, nullptr)();
  for (const auto& replica : replicas_) replica->Leave();
}

}  // namespace forebay::node
