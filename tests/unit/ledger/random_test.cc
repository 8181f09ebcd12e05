// Random histories: whatever trainers and shards do, the invariants hold, and a second ledger that
// is given the same commands stays equal (the harness compares them).
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/prng.h"
#include "ledger/limits.h"
#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

class History {
 public:
  explicit History(uint64_t seed)
      : prng_(seed), h_({.run_seed = seed, .shards = static_cast<uint32_t>(1 + prng_.Below(3))}) {
    h_.PutTrainSource();
    h_.Attach();
  }

  void Run(int operations) {
    for (int i = 0; i < operations; ++i) {
      Act();
      h_.state.CheckInvariants();
    }
    EXPECT_LT(h_.log.size(), 20u * operations) << "the ledger talks to itself";
    Settle();
  }
  uint64_t rewinds() const { return rewinds_; }
  uint64_t absences() const { return h_.state.counters().shard_absences; }
  uint64_t groups_of_absent() const { return h_.state.counters().groups_of_absent; }
  uint64_t committed() const { return h_.state.counters().steps_committed; }

 private:
  void Act() {
    h_.now += prng_.Below(100);
    h_.primary.SetRetentionBytesMax(prng_.Below(3) * 40'000);
    h_.primary.SetStoreFull(h_.now, prng_.Below(4) == 0);
    h_.primary.SetKeep({0.5, prng_.Below(2) == 0, prng_.Below(3) * 4'000}, prng_.Below(6'000));
    h_.primary.SetDriftRules({.hold_k3 = prng_.Below(4) == 0 ? 0.1 : 0});
    if (prng_.Below(16) == 0) h_.Do<LiftReply>(LiftHold{"random"});
    switch (prng_.Below(14)) {
      case 0:
      case 1:
        return AddGroups();
      case 2:
      case 3:
        return Summarize();
      case 4:
        h_.paused = !h_.paused;
        return h_.Deliver();
      case 5:
      case 6:
        return Open();
      case 7:
      case 8:
        return CommitOne();
      case 9:
        if (prng_.Below(3) == 0) return Lose();
        if (prng_.Below(3) == 0) Try(AbortStep{AnyGeneration(), AnyStep(), "random"});
        return;
      case 10:
        if (prng_.Below(4) == 0) h_.Attach(1 + prng_.Below(3));
        return;
      case 11:
        if (prng_.Below(4) == 0) return Checkpoint();
        if (prng_.Below(4) == 0) GoBack();
        return;
      case 12:
        return ComeOrGo();
      default:
        return Publish();
    }
  }

  // A shard, for a time in which it may be taken for absent; its messages wait.
  void ComeOrGo() {
    const auto shard = static_cast<uint8_t>(prng_.Below(h_.shards.size()));
    if (h_.away.contains(ShardId(shard))) {
      h_.Return(shard);
    } else if (prng_.Below(2) == 0) {
      h_.Leave(shard);
    }
    h_.Tick(prng_.Below(2 * kAbsentAfterMs));
  }

  // May well be refused.
  void Try(Command command) {
    if (!h_.Run(std::move(command)).ok()) ++refused_;
  }

  Generation AnyGeneration() {
    return prng_.Below(8) == 0 ? Generation(prng_.Below(4)) : h_.generation;
  }
  StepId AnyStep() { return StepId(h_.state.next_step().value + prng_.Below(4) - 1); }

  void AddGroups() {
    for (uint64_t i = prng_.Below(4); i > 0; --i) {
      GroupShape shape;
      shape.rollouts = 1 + static_cast<uint32_t>(prng_.Below(5));
      shape.tokens = 20 + static_cast<uint32_t>(prng_.Below(600));
      shape.sequences = 1 + static_cast<uint32_t>(prng_.Below(2));
      shape.version = h_.state.published().version.number;
      h_.shards[prng_.Below(h_.shards.size())].AddReady(shape);
    }
  }

  // Of one shard alone, and perhaps older than what it has answered meanwhile.
  void Summarize() {
    if (prng_.Below(2) == 0) return h_.Summarize();
    stale_ = h_.shards[prng_.Below(h_.shards.size())].Summary();
    h_.Act([&](Output* output) { h_.primary.SetSummary(h_.now, stale_, output); });
  }

  void Open() {
    StepSpec spec = h_.Spec(1 + static_cast<uint32_t>(prng_.Below(5)));
    if (prng_.Below(4) == 0) spec.tokens = 1 + 1000 * spec.groups, spec.groups = 0;
    if (prng_.Below(6) == 0) spec.custom_advantages = true;
    if (prng_.Below(6) == 0) spec.refuse_over_budget = true;
    if (prng_.Below(4) == 0) spec.mini_batches = 1 + static_cast<uint32_t>(prng_.Below(3));
    if (prng_.Below(8) == 0) spec.max_lag = static_cast<uint32_t>(prng_.Below(3));
    Try(OpenStep{AnyGeneration(), AnyStep(), spec, prng_.Below(3) == 0});
  }

  // A rollout of any step, or a column that was written to it.
  void Lose() {
    const Step* step = h_.state.step(AnyStep());
    if (step == nullptr || step->rollouts.empty()) return;
    if (!step->written.empty() && prng_.Below(2) == 0) {
      return Try(DropDamaged{{step->written.begin()->second.front().payload}});
    }
    const RolloutId rollout = step->rollouts[prng_.Below(step->rollouts.size())].rollout;
    h_.shards[rollout.shard().value].Lose(step->step, rollout);
    h_.Deliver();
  }

  void CommitOne() {
    const Step* next = h_.state.step(h_.state.next_step());
    if (next == nullptr) return;
    if (next->state == StepState::kReserved) {
      const std::vector<float> advantages(next->rollouts.size(), 0.5f);
      Try(PutAdvantages{AnyGeneration(), next->step, next->revision, advantages});
      return;
    }
    const uint32_t revision = next->revision.value;
    if (prng_.Below(3) == 0) WriteColumn(*next);
    if (prng_.Below(2) == 0) Report(*next);
    std::vector<GroupId> groups;
    for (const HeldGroup& group : next->groups) groups.push_back(group.group);
    const auto reply = h_.Do<CommitReply>(CommitStep{
        AnyGeneration(), next->step, Revision(revision - (prng_.Below(5) == 0 ? 1 : 0))});
    if (!reply.status.ok()) return;
    for (GroupId group : groups) {
      EXPECT_TRUE(trained_.emplace(group.value, next->step).second)
          << "a group was trained on twice";
    }
    groups_committed_ += groups.size();
  }

  void Checkpoint() {
    const StepId step(h_.state.next_step().value - prng_.Below(3));
    h_.Do<CheckpointReply>(CheckpointStep{AnyGeneration(), step});
  }

  void GoBack() {
    const uint64_t last = h_.state.next_step().value - 1;
    const StepId step(last - std::min(last, prng_.Below(6)));
    const bool replay = prng_.Below(2) == 0;
    const uint32_t branch = h_.state.branch();
    const std::vector<const Step*> steps = h_.state.StepsNewestFirst();
    std::map<StepId, uint64_t> plans;
    for (const Step* taken : steps) plans[taken->step] = taken->plan_hash;
    const RewindReply reply = h_.GoBack(step.value, replay);
    if (!reply.status.ok()) {
      EXPECT_EQ(h_.state.branch(), branch);
      ++refused_;
      return;
    }
    EXPECT_EQ(h_.state.branch(), branch + 1);
    EXPECT_EQ(reply.taken_back, last - step.value);
    std::erase_if(trained_, [&](const auto& trained) { return trained.second > step; });
    for (const Step* again : h_.state.StepsNewestFirst()) {
      if (!again->live()) break;
      EXPECT_TRUE(replay && again->served_again);
      EXPECT_EQ(again->plan_hash, plans[again->step]) << "step " << again->step.value;
    }
    h_.Attach(1 + prng_.Below(3));
    ++rewinds_;
  }

  void WriteColumn(const Step& step) {
    const auto view = h_.state.ViewMicroBatch(step.step, step.revision, {});
    if (!view.ok()) return;
    const WrittenColumn column{
        "values", 11, {}, PayloadId(view->tokens == 0 ? 0 : ++payload_), view->tokens * 4};
    EXPECT_TRUE(h_.Run(PutColumns{h_.generation, step.step, step.revision, {}, {column}}).ok());
    if (column.payload != PayloadId()) written_.insert(column.payload.value);
  }

  // Once or twice; what is held is let go at some time.
  void Report(const Step& step) {
    const auto view = h_.state.ViewMicroBatch(step.step, step.revision, {});
    if (!view.ok() || view->slots.empty()) return;
    ReportSequences report{h_.generation, step.step, step.revision, {}, {}, {}, {}};
    report.report.engines = {"a", "b"};
    for (uint32_t i = 0; i < view->slots.size(); ++i) {
      drift::Sums sums;
      sums.Count(prng_.Unit() - 1, 0);
      report.engine_parts.push_back({i, static_cast<uint32_t>(prng_.Below(2)), 0, sums});
    }
    const bool before =
        h_.state.drift().reports.Counted(step.step, step.revision, 0);  // of an earlier call
    for (uint64_t i = 0; i < 1 + prng_.Below(2); ++i) {
      const auto reply = h_.Do<ReportReply>(report);
      EXPECT_TRUE(reply.status.ok()) << reply.status;
      EXPECT_EQ(reply.already_counted, before || i > 0);
    }
  }

  void Publish() {
    Announcement announcement;
    announcement.version = h_.state.committed_version();
    announcement.version.number -=
        std::min<uint32_t>(announcement.version.number, static_cast<uint32_t>(prng_.Below(2)));
    announcement.phase = prng_.Below(2) == 0 ? VersionPhase::kPending : VersionPhase::kPublished;
    announcement.where = "w";
    Try(PublishVersion{AnyGeneration(), announcement});
  }

  // Faults end: the run moves on, and every group and written payload is accounted for.
  void Settle() {
    h_.paused = false;
    while (!h_.away.empty()) h_.Return(h_.away.begin()->value);
    h_.Deliver();
    h_.primary.SetDriftRules({});
    EXPECT_TRUE(h_.Do<LiftReply>(LiftHold{"settle"}).status.ok());
    const uint64_t first = h_.state.next_step().value;
    h_.Attach(2);
    Try(AbortStep{h_.generation, StepId(first), "settle"});
    for (uint64_t s = first; s < first + 3; ++s) {
      ASSERT_TRUE(h_.OpenFilled(s, h_.Spec(3)).ok());
      ASSERT_EQ(h_.step(s).state, StepState::kSealed) << h_.primary.Waiting(StepId(s), h_.now);
      for (const HeldGroup& group : h_.step(s).groups) {
        EXPECT_TRUE(trained_.emplace(group.group.value, StepId(s)).second)
            << "a group was trained on twice";
      }
      groups_committed_ += h_.step(s).groups.size();
      ASSERT_TRUE(h_.Commit(s, h_.step(s).revision.value).status.ok());
    }
    size_t committed = 0;
    for (FakeShard& shard : h_.shards) committed += shard.committed().size();
    EXPECT_EQ(committed, trained_.size());
    EXPECT_EQ(h_.state.counters().groups_committed, groups_committed_);
    std::set<uint64_t> dead;
    for (PayloadId payload : h_.dead) EXPECT_TRUE(dead.insert(payload.value).second);
    EXPECT_EQ(dead, written_);
    h_.state.CheckInvariants();
  }

  Prng prng_;
  Harness h_;
  std::map<uint64_t, StepId> trained_;  // by group
  std::set<uint64_t> written_;
  uint64_t groups_committed_ = 0;
  uint64_t rewinds_ = 0;
  uint64_t payload_ = 0;
  uint64_t refused_ = 0;
  codec::ReadySummary stale_;
};

TEST(RandomHistories, KeepTheInvariantsAndMoveOnAfterFaults) {
  uint64_t committed = 0, rewinds = 0, absences = 0, given_up = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    History history(seed);
    history.Run(520);
    committed += history.committed();
    rewinds += history.rewinds();
    absences += history.absences();
    given_up += history.groups_of_absent();
    if (HasFailure()) break;
  }
  EXPECT_GT(committed, 2000) << "histories that never commit show nothing";
  EXPECT_GT(rewinds, 200);
  EXPECT_GT(absences, 200);
  EXPECT_GT(given_up, 50);
}

}  // namespace
}  // namespace forebay::ledger
