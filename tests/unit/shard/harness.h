// A shard for tests: its state, short ways to make commands, and their replies. Not thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "curriculum/curriculum.h"
#include "shard/state.h"

namespace forebay::shard {

class Harness {
 public:
  static constexpr SourceId kSource{0};
  static constexpr SessionId kActor{1};

  explicit Harness(uint64_t seed = 7, ShardId shard = ShardId(3)) : state(Options{shard, seed}) {
    settings.name = "math";
    settings.group_size = settings.attempts_per_task = settings.complete_at = 4;
    settings.max_failures = 3;
  }

  // A source with tasks, a session, and version 0 published.
  void Start(uint32_t tasks = 100) {
    PutSource();
    Apply(OpenSession{kActor, "a", "e", "s", "c"});
    Add(kSource, 0, tasks);
    FromLedger(Versions(0));
  }

  void PutSource(SourceId id = kSource) { FromLedger(codec::SourceChanged{id, settings}); }

  void Add(SourceId source, uint64_t first, uint32_t count) {
    AddTasks add{source, {}};
    for (uint64_t i = first; i < first + count; ++i) {
      add.tasks.push_back({1000 + i, 2000 + i, PayloadId(3000 + i), 1});
    }
    ASSERT_TRUE(Ask<AddTasksReply>(add).status.ok());
  }

  codec::VersionState Versions(uint32_t published, uint64_t per_version = 0) const {
    codec::VersionState v;
    v.branch = branch;
    v.announced = v.published = v.next_train = {branch, published};
    v.rollouts_per_version = per_version;
    return v;
  }

  const Effects& Apply(const Command& command, Tag tag = 0) {
    effects.Clear();
    state.Apply(command, tag, &effects);
    return effects;
  }

  template <class R>
  R Ask(const Command& command) {
    Apply(command, 1);
    EXPECT_EQ(effects.replies.size(), 1u);
    return std::get<R>(effects.replies.at(0).reply);
  }

  void FromLedger(codec::ToShard message) {
    shard::FromLedger from;
    from.number = ++ledger_number;
    from.message = std::move(message);
    Apply(from);
  }

  AssignReply Acquire(uint32_t max, SessionId session = kActor) {
    Assign assign;
    assign.session = session;
    assign.request_id = ++request_id;
    assign.max = max;
    return Ask<AssignReply>(assign);
  }

  RolloutMeta Meta(const Assignment& a, double reward) {
    RolloutMeta meta = Meta(reward);
    meta.lease = {a.attempt, a.token};
    return meta;
  }
  RolloutMeta Meta(double reward) {
    RolloutMeta meta;
    meta.payload = PayloadId(++payload);
    meta.payload_bytes = 100;
    meta.duration_ms = 50;
    meta.rewards_present = 1;
    meta.reward = reward;
    meta.first = {20, 5, 10, std::nullopt, {}};
    return meta;
  }

  PutRolloutsReply Put(std::vector<RolloutMeta> rollouts, SessionId session = kActor) {
    return Ask<PutRolloutsReply>(PutRollouts{session, std::move(rollouts)});
  }
  PushResult Push(const RolloutMeta& meta) { return Put({meta}).outcomes.at(0).result; }
  PushResult Push(const Assignment& a, double reward) { return Push(Meta(a, reward)); }

  // Rewards 0, 1, 0, 1, ...
  void PushAll(const std::vector<Assignment>& assignments) {
    for (size_t i = 0; i < assignments.size(); ++i) {
      ASSERT_EQ(Push(assignments[i], static_cast<double>(i % 2)), PushResult::kAccepted);
    }
  }
  // A ready group.
  std::vector<Assignment> Group() {
    auto assignments = Acquire(settings.attempts_per_task).assignments;
    PushAll(assignments);
    return assignments;
  }

  codec::Reserved Reserve(uint64_t step, uint32_t groups, uint32_t train,
                          std::optional<uint32_t> max_lag = std::nullopt) {
    codec::Reserve reserve;
    reserve.step = StepId(step);
    reserve.revision = Revision(1);
    reserve.request = ++reserve_request;
    reserve.groups = groups;
    reserve.train_version = {branch, train};
    reserve.max_lag = max_lag;
    FromLedger(reserve);
    codec::ToLedger answer;
    EXPECT_EQ(effects.to_ledger.size(), 1u);
    EXPECT_TRUE(codec::Decode(effects.to_ledger.at(0).body, &answer));
    return std::get<codec::Reserved>(answer);
  }
  void Commit(uint64_t step, uint32_t next, bool retain = false) {
    FromLedger(codec::StepCommitted{StepId(step), Revision(1), {branch, next}, retain, keep});
  }
  // Back to a step that made version `number`; nothing of the new branch is published.
  void GoBack(uint64_t step, uint64_t served_again, uint32_t number, uint32_t published) {
    codec::VersionState v = Versions(published);
    ++branch;
    v.branch = branch;
    v.next_train = {branch, number};
    FromLedger(codec::Rewound{StepId(step), StepId(served_again), {branch, number}, v});
  }

  SourceView View(SourceId source = kSource) const {
    for (const SourceView& view : state.Sources()) {
      if (view.source == source) return view;
    }
    ADD_FAILURE() << "no such source";
    return {};
  }
  const SourceCounters& Counters() const { return *View().counters; }
  uint64_t Dropped(DropReason reason) const {
    return Counters().dropped[static_cast<size_t>(reason)];
  }
  void CheckState() const { EXPECT_EQ(state.CheckInvariants(), ""); }

  State state;
  codec::SourceSettings settings;
  codec::KeepRule keep;  // of commits
  Effects effects;
  uint32_t branch = 0;
  uint64_t ledger_number = 0;
  uint64_t request_id = 0;
  uint64_t payload = 0;
  uint64_t reserve_request = 0;
};

}  // namespace forebay::shard
