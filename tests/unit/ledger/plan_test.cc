// What the seal fixes: order, advantages, totals, the hash; and the view that a fetch is answered
// from.
#include "ledger/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<MicroBatchRef> MicroBatches(const Step& step) {
  std::vector<MicroBatchRef> result;
  for (uint32_t rank = 0; rank < step.spec.mesh.dp; ++rank) {
    for (uint32_t m = 0; m < step.mini_batches.size(); ++m) {
      for (uint32_t i = 0; i < step.mini_batches[m].micro_batches_per_rank; ++i) {
        result.push_back({rank, m, i});
      }
    }
  }
  return result;
}

class Plan : public ::testing::Test {
 protected:
  Plan() {
    h.PutTrainSource();
    h.Attach();
  }
  void Seal(const StepSpec& spec) {
    ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), spec}).ok());
    h.Summarize();
    ASSERT_EQ(h.step(1).state, StepState::kSealed);
  }
  Harness h{{.shards = 2}};
};

// The order of all ranks' micro-batches as they run side by side.
std::vector<PayloadId> InOrderOfThePlan(const State& state, const Step& step) {
  std::vector<MicroBatchRef> refs = MicroBatches(step);
  std::sort(refs.begin(), refs.end(), [](const MicroBatchRef& a, const MicroBatchRef& b) {
    return std::tuple(a.mini_batch, a.micro_batch, a.dp_rank) <
           std::tuple(b.mini_batch, b.micro_batch, b.dp_rank);
  });
  std::vector<PayloadId> payloads;
  for (const MicroBatchRef& ref : refs) {
    const auto view = state.ViewMicroBatch(step.step, step.revision, ref);
    EXPECT_TRUE(view.ok());
    for (const Slot& slot : view->slots) {
      if (payloads.empty() || payloads.back() != slot.payload) payloads.push_back(slot.payload);
    }
  }
  return payloads;
}

TEST_F(Plan, SaysWhatWillBeFetchedInItsOrder) {
  for (int i = 0; i < 8; ++i) h.shards[i % 2].AddReady({.rollouts = 5, .sequences = 2});
  StepSpec spec = h.Spec(8);
  spec.mini_batches = 2;
  Seal(spec);
  const std::vector<PayloadId> sealed = h.step(1).ToFetch();
  EXPECT_EQ(sealed, InOrderOfThePlan(h.state, h.step(1)));
  EXPECT_EQ(std::set(sealed.begin(), sealed.end()).size(), 40);
  ASSERT_TRUE(h.Commit(1).status.ok());
  EXPECT_TRUE(h.step(1).ToFetch().empty());
}

TEST_F(Plan, EverySequenceIsInOneMicroBatchAndTotalsAddUp) {
  for (int i = 0; i < 6; ++i) h.shards[i % 2].AddReady({.rollouts = 5, .sequences = 2});
  StepSpec spec = h.Spec(6);
  spec.mini_batches = 3;
  Seal(spec);
  const Step& step = h.step(1);
  std::set<std::pair<uint64_t, uint32_t>> seen;
  std::map<uint32_t, Totals> sums;
  for (const MicroBatchRef& ref : MicroBatches(step)) {
    const auto view = h.state.ViewMicroBatch(StepId(1), Revision(1), ref);
    ASSERT_TRUE(view.ok());
    uint64_t tokens = 0;
    for (const Slot& slot : view->slots) {
      EXPECT_TRUE(seen.emplace(slot.rollout.value, slot.sequence).second);
      EXPECT_EQ(slot.sequence_count, 2);
      EXPECT_EQ(slot.rollout_loss_tokens, 2 * slot.loss_tokens);
      EXPECT_EQ(slot.payload.value % 100'000'000, slot.rollout.slot());
      tokens += slot.tokens;
      sums[ref.mini_batch].loss_tokens += slot.loss_tokens;
    }
    EXPECT_EQ(view->tokens, tokens);
    EXPECT_LE(view->padded_tokens, spec.token_budget);
    sums[ref.mini_batch].tokens += tokens;
    sums[ref.mini_batch].sequences += view->slots.size();
    EXPECT_EQ(view->mini_batch, step.mini_batches[ref.mini_batch].totals);
  }
  EXPECT_EQ(seen.size(), 60);
  for (uint32_t m = 0; m < 3; ++m) {
    const Totals& totals = step.mini_batches[m].totals;
    EXPECT_EQ(totals.tokens, sums[m].tokens);
    EXPECT_EQ(totals.loss_tokens, sums[m].loss_tokens);
    EXPECT_EQ(totals.sequences, sums[m].sequences);
    EXPECT_EQ(totals.sequences, 2 * totals.rollouts);
    EXPECT_EQ(totals.dp, 2);
  }
  EXPECT_EQ(step.totals.rollouts, 30);
  EXPECT_EQ(step.totals.groups, 6);
  EXPECT_EQ(step.totals.dp, 2);
}

TEST_F(Plan, AMicroBatchThatIsNotThereIsRefusedByName) {
  h.shards[0].AddReady({});
  Seal(h.Spec(1));
  const auto ask = [this](MicroBatchRef ref) {
    return h.state.ViewMicroBatch(StepId(1), Revision(1), ref).status();
  };
  EXPECT_THAT(ask({2, 0, 0}).message(), HasSubstr("dp_rank: 2, less than 2"));
  EXPECT_THAT(ask({0, 1, 0}).message(), HasSubstr("mini_batch: 1, less than 1"));
  EXPECT_THAT(ask({0, 0, 99}).message(), HasSubstr("micro_batch: 99, less than"));
  EXPECT_EQ(h.state.ViewMicroBatch(StepId(2), Revision(1), {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(Plan, AShortageIsFilledByMicroBatchesWithoutSlots) {
  h.shards[0].AddReady({.rollouts = 1});
  Seal(h.Spec(1));
  EXPECT_EQ(h.step(1).filler_micro_batches, 1);
  size_t empty = 0;
  for (const MicroBatchRef& ref : MicroBatches(h.step(1))) {
    empty += h.state.ViewMicroBatch(StepId(1), Revision(1), ref)->slots.empty();
  }
  EXPECT_EQ(empty, 1);
}

TEST_F(Plan, GroupsStandInAnOrderThatDoesNotDependOnTheirArrival) {
  std::vector<uint64_t> hashes;
  for (const bool second_first : {false, true}) {
    Harness other({.shards = 2});
    other.PutTrainSource();
    other.Attach();
    ASSERT_TRUE(other.Run(OpenStep{other.generation, StepId(1), other.Spec(4)}).ok());
    for (int i = 0; i < 2; ++i) {
      FakeShard& shard = other.shards[second_first == (i == 0) ? 1 : 0];
      shard.AddReady({});
      shard.AddReady({.tokens = 120});
      other.Summarize();
    }
    ASSERT_EQ(other.step(1).state, StepState::kSealed);
    hashes.push_back(other.step(1).plan_hash);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST_F(Plan, OldestVersionsStandFirst) {
  StepSpec spec = h.Spec(1);
  ASSERT_TRUE(h.OpenFilled(1, spec).ok());
  ASSERT_TRUE(h.Commit(1).status.ok());
  h.shards[0].AddReady({.version = 1});
  h.shards[1].AddReady({.version = 0});
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(2), h.Spec(2)}).ok());
  h.Summarize();
  const Step& step = h.step(2);
  ASSERT_EQ(step.state, StepState::kSealed);
  EXPECT_EQ(step.groups[0].oldest_version, 0);
  EXPECT_EQ(step.groups[1].oldest_version, 1);
  EXPECT_THAT(step.rollouts_by_lag, ElementsAre(4, 4));
}

TEST_F(Plan, TheHashTellsPlansApart) {
  std::set<uint64_t> hashes;
  for (uint32_t tokens : {100, 101}) {
    for (uint64_t budget : {512, 256}) {
      Harness other;
      other.PutTrainSource();
      other.Attach();
      StepSpec spec = other.Spec(2);
      spec.token_budget = budget;
      other.shards[0].AddReady({.tokens = tokens});
      other.shards[0].AddReady({.tokens = tokens});
      ASSERT_TRUE(other.Run(OpenStep{other.generation, StepId(1), spec}).ok());
      other.Summarize();
      hashes.insert(other.step(1).plan_hash);
    }
  }
  EXPECT_EQ(hashes.size(), 4);
}

TEST_F(Plan, RewardsAreAveragedOverRollouts) {
  h.shards[0].AddReady({.rollouts = 4});
  Seal(h.Spec(1));
  EXPECT_DOUBLE_EQ(h.step(1).reward_mean, 0.5);
}

TEST_F(Plan, ReinforcePlusPlusTakesTheConstantsOfTheBatch) {
  h.shards[0].AddReady({.rollouts = 3, .advantage = codec::AdvantageKind::kReinforcePp});
  h.shards[1].AddReady({.rollouts = 2, .advantage = codec::AdvantageKind::kReinforcePp});
  h.shards[1].AddReady({.rollouts = 2, .advantage = codec::AdvantageKind::kRloo});
  Seal(h.Spec(3));
  double sum = 0, squares = 0;
  for (const HeldRollout& rollout : h.step(1).rollouts) {
    if (h.step(1).groups[rollout.group].advantage == codec::AdvantageKind::kRloo) {
      EXPECT_EQ(std::abs(rollout.advantage), 0.5f);
      continue;
    }
    sum += rollout.advantage;
    squares += double{rollout.advantage} * rollout.advantage;
  }
  // The shards reported -.5 .5 -.5 and -.5 .5.
  EXPECT_NEAR(sum, 0, 1e-5);
  EXPECT_NEAR(squares / 5, 1, 1e-4);
}

TEST(NormalizeAdvantages, OfEqualOnesIsZero) {
  Step step;
  codec::GroupReport group;
  group.advantage = codec::AdvantageKind::kReinforcePp;
  group.rollouts.resize(3);
  for (auto& rollout : group.rollouts) rollout.advantage = 0.25f, rollout.sequences.resize(1);
  step.Hold(group);
  NormalizeAdvantages(step);
  for (const HeldRollout& rollout : step.rollouts) EXPECT_EQ(rollout.advantage, 0);
}

TEST(InheritAdvantages, LeavesASequenceItsOwn) {
  Step step;
  codec::GroupReport group;
  group.rollouts.resize(1);
  group.rollouts[0].advantage = 2;
  group.rollouts[0].sequences = {{5, 1, 4, {}}, {5, 1, 4, 0.0f}, {5, 1, 4, -3.0f}};
  step.Hold(group);
  InheritAdvantages(step);
  EXPECT_EQ(step.sequences[0].advantage, 2);
  EXPECT_EQ(step.sequences[1].advantage, 0);
  EXPECT_EQ(step.sequences[2].advantage, -3);
}

}  // namespace
}  // namespace forebay::ledger
