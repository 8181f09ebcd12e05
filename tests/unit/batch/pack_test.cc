#include "batch/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/batch/random_step.h"

namespace forebay::batch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSeeds = 1500;

Plan PackOrDie(const RandomStep& step) {
  absl::StatusOr<Plan> plan = Pack(step.sequences, step.spec);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

uint64_t PackableTokens(const PackSpec& spec) {
  return spec.token_budget / spec.pad_multiple * spec.pad_multiple;
}

std::vector<SequenceSize> OneSequenceRollouts(const std::vector<uint32_t>& tokens) {
  std::vector<SequenceSize> sequences;
  for (uint32_t i = 0; i < tokens.size(); ++i) sequences.push_back({tokens[i], i, i});
  return sequences;
}

TEST(Pack, PutsEverySequenceIntoExactlyOneMicroBatch) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RandomStep step(seed);
    const Plan plan = PackOrDie(step);
    std::vector<int> times(step.sequences.size());
    ASSERT_EQ(plan.mini_batches.size(), step.spec.mini_batches);
    for (const MiniBatch& mini_batch : plan.mini_batches) {
      for (uint32_t m = 0; m < mini_batch.micro_batch_count(); ++m) {
        const auto sequences = mini_batch.micro_batch(m).sequences;
        ASSERT_TRUE(std::is_sorted(sequences.begin(), sequences.end())) << "seed " << seed;
        for (const uint32_t sequence : sequences) ++times.at(sequence);
      }
    }
    for (const int count : times) ASSERT_EQ(count, 1) << "seed " << seed;
  }
}

TEST(Pack, KeepsPaddedMicroBatchesWithinTheBudgetButForASequenceAlone) {
  uint64_t over = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RandomStep step(seed);
    for (const MiniBatch& mini_batch : PackOrDie(step).mini_batches) {
      for (uint32_t m = 0; m < mini_batch.micro_batch_count(); ++m) {
        const MicroBatch micro_batch = mini_batch.micro_batch(m);
        uint64_t tokens = 0;
        for (const uint32_t s : micro_batch.sequences) tokens += step.sequences[s].tokens;
        ASSERT_EQ(micro_batch.tokens, tokens);
        ASSERT_EQ(micro_batch.padded_tokens % step.spec.pad_multiple, 0);
        ASSERT_GE(micro_batch.padded_tokens, tokens);
        ASSERT_LT(micro_batch.padded_tokens - tokens, step.spec.pad_multiple);
        if (micro_batch.padded_tokens <= step.spec.token_budget) continue;
        ASSERT_EQ(micro_batch.sequences.size(), 1) << "seed " << seed;
        ASSERT_GT(tokens, PackableTokens(step.spec));
        ++over;
      }
    }
  }
  EXPECT_GT(over, 0);
}

TEST(Pack, GivesEveryRankTheSameNumberOfMicroBatchesAndCountsFillers) {
  uint64_t all_fillers = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RandomStep step(seed);
    const Plan plan = PackOrDie(step);
    uint64_t fillers = 0;
    for (const MiniBatch& mini_batch : plan.mini_batches) {
      ASSERT_GT(mini_batch.micro_batches_per_rank, 0);
      ASSERT_EQ(mini_batch.micro_batches_per_rank % step.spec.micro_batches_multiple_of, 0);
      ASSERT_EQ(mini_batch.micro_batch_count(), mini_batch.micro_batches_per_rank * step.spec.dp);
      for (uint32_t m = 0; m < mini_batch.micro_batch_count(); ++m) {
        fillers += mini_batch.micro_batch(m).filler();
      }
    }
    ASSERT_EQ(plan.filler_micro_batches, fillers) << "seed " << seed;
    all_fillers += fillers;
  }
  EXPECT_GT(all_fillers, 0);
}

TEST(Pack, LeavesNoRankEmptyWhereThereAreEnoughSequences) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RandomStep step(seed);
    for (const MiniBatch& mini_batch : PackOrDie(step).mini_batches) {
      if (mini_batch.sequences.size() < step.spec.dp) continue;
      for (uint32_t rank = 0; rank < step.spec.dp; ++rank) {
        ASSERT_FALSE(mini_batch.micro_batch(rank, 0).filler()) << "seed " << seed;
      }
    }
  }
}

TEST(Pack, OrdersARanksMicroBatchesFromTheCostlyToTheFillers) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    RandomStep step(seed);
    step.spec.cost = {1, 0};
    for (const MiniBatch& mini_batch : PackOrDie(step).mini_batches) {
      for (uint32_t rank = 0; rank < step.spec.dp; ++rank) {
        for (uint32_t i = 1; i < mini_batch.micro_batches_per_rank; ++i) {
          ASSERT_LE(mini_batch.micro_batch(rank, i).tokens,
                    mini_batch.micro_batch(rank, i - 1).tokens);
        }
      }
    }
  }
}

TEST(Pack, KeepsRolloutsOrGroupsWholeAndMiniBatchesEvenInNumber) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RandomStep step(seed);
    const Plan plan = PackOrDie(step);
    std::map<uint32_t, size_t> mini_batch_of;  // by rollout or group
    std::vector<std::set<uint32_t>> units(plan.mini_batches.size());
    for (size_t b = 0; b < plan.mini_batches.size(); ++b) {
      for (const uint32_t s : plan.mini_batches[b].sequences) {
        const uint32_t unit =
            step.spec.groups_whole ? step.sequences[s].group : step.sequences[s].rollout;
        ASSERT_EQ(mini_batch_of.emplace(unit, b).first->second, b) << "seed " << seed;
        units[b].insert(unit);
      }
    }
    const auto [fewest, most] =
        std::minmax_element(units.begin(), units.end(),
                            [](const auto& a, const auto& b) { return a.size() < b.size(); });
    ASSERT_LE(most->size() - fewest->size(), 1) << "seed " << seed;
  }
}

TEST(Pack, GivesTheSamePlanForTheSameInput) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Plan first = PackOrDie(RandomStep(seed));
    const Plan second = PackOrDie(RandomStep(seed));
    ASSERT_EQ(first.filler_micro_batches, second.filler_micro_batches);
    for (size_t b = 0; b < first.mini_batches.size(); ++b) {
      ASSERT_EQ(first.mini_batches[b].sequences, second.mini_batches[b].sequences);
      ASSERT_EQ(first.mini_batches[b].begin, second.mini_batches[b].begin);
      ASSERT_EQ(first.mini_batches[b].padded_tokens, second.mini_batches[b].padded_tokens);
    }
  }
}

// A plan is in the log and is made again after a failover, by another build on another machine.
TEST(Pack, GivesThePlanThatEarlierBuildsGave) {
  uint64_t hash = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    for (const MiniBatch& mini_batch : PackOrDie(RandomStep(seed)).mini_batches) {
      hash = Mix64(hash + mini_batch.micro_batches_per_rank);
      for (const uint32_t s : mini_batch.sequences) hash = Mix64(hash + s);
      for (const uint32_t begin : mini_batch.begin) hash = Mix64(hash + begin);
    }
  }
  EXPECT_EQ(hash, 6845606310729451376u);
}

TEST(Pack, PacksASmallStepAsByHand) {
  const auto sequences = OneSequenceRollouts({10, 60, 40, 30, 50, 20});
  PackSpec spec;
  spec.dp = 2;
  spec.token_budget = 64;
  spec.cost = {1, 0};
  const Plan plan = *Pack(sequences, spec);
  ASSERT_EQ(plan.mini_batches.size(), 1);
  const MiniBatch& mini_batch = plan.mini_batches[0];
  EXPECT_EQ(mini_batch.micro_batches_per_rank, 2);
  EXPECT_EQ(plan.filler_micro_batches, 0);
  EXPECT_THAT(mini_batch.tokens, ElementsAre(60, 50, 50, 50));
  EXPECT_THAT(mini_batch.micro_batch(0, 0).sequences, ElementsAre(1));
}

TEST(Pack, FillsAShortageOfSequencesWithFillers) {
  const auto sequences = OneSequenceRollouts({100, 200, 300});
  PackSpec spec;
  spec.dp = 4;
  spec.micro_batches_multiple_of = 2;
  spec.token_budget = 1000;
  const Plan plan = *Pack(sequences, spec);
  EXPECT_EQ(plan.filler_micro_batches, 5);
  EXPECT_TRUE(plan.mini_batches[0].micro_batch(3, 0).filler());
  EXPECT_EQ(plan.mini_batches[0].micro_batch(3, 0).padded_tokens, 0);
}

TEST(Pack, LetsASequenceOverTheBudgetGoAloneUnlessRefused) {
  const auto sequences = OneSequenceRollouts({10, 5000, 10});
  PackSpec spec;
  spec.token_budget = 1000;
  spec.pad_multiple = 64;
  const Plan plan = *Pack(sequences, spec);
  EXPECT_EQ(plan.mini_batches[0].micro_batches_per_rank, 2);
  EXPECT_THAT(plan.mini_batches[0].micro_batch(0).sequences, ElementsAre(1));
  EXPECT_EQ(plan.mini_batches[0].micro_batch(0).padded_tokens, 5056);

  spec.refuse_over_budget = true;
  const absl::Status refused = Pack(sequences, spec).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("sequences[1].tokens: 5000, at most 960"));
}

TEST(Pack, RefusesWhatIsMalformedByNameValueAndLimit) {
  struct Case {
    void (*spoil)(RandomStep&);
    const char* message;
  };
  const Case cases[] = {
      {[](RandomStep& s) { s.spec.dp = 0; }, "dp: 0, at least 1"},
      {[](RandomStep& s) { s.spec.micro_batches_multiple_of = 0; },
       "micro_batches_multiple_of: 0, at least 1"},
      {[](RandomStep& s) { s.spec.mini_batches = 0; }, "mini_batches: 0, at least 1"},
      {[](RandomStep& s) { s.spec.token_budget = 0; }, "token_budget: 0, from 1 to 2147483647"},
      {[](RandomStep& s) { s.spec.token_budget = uint64_t{1} << 31; },
       "token_budget: 2147483648, from 1 to 2147483647"},
      {[](RandomStep& s) { s.spec.pad_multiple = 0; }, "pad_multiple: 0, from 1"},
      {[](RandomStep& s) { s.spec.pad_multiple = 10'000; }, "pad_multiple: 10000, from 1"},
      {[](RandomStep& s) { s.spec.dp = 1 << 30; }, "1073741824 * 1 * 1, at most 524287"},
      {[](RandomStep& s) { s.spec.mini_batches = 4; }, "mini_batches: 4, at most the 3 rollouts"},
      {[](RandomStep& s) { s.spec.mini_batches = 3, s.spec.groups_whole = true; },
       "mini_batches: 3, at most the 2 groups"},
      {[](RandomStep& s) {
         s.spec.cost = {-1, 1};
       },
       "cost.linear: -1, must be finite"},
      {[](RandomStep& s) {
         s.spec.cost = {1, std::numeric_limits<double>::quiet_NaN()};
       },
       "cost.quadratic: nan, must be finite"},
      {[](RandomStep& s) {
         s.spec.cost = {0, 0};
       },
       "cost: linear 0 and quadratic 0"},
      {[](RandomStep& s) { s.sequences.clear(); }, "sequences: 0, from 1"},
      {[](RandomStep& s) { s.sequences[1].tokens = 0; }, "sequences[1].tokens: 0, at least 1"},
      {[](RandomStep& s) { s.sequences[1].tokens = ~0u; },
       "sequences[1].tokens: 4294967295, at most 2147483647"},
      {[](RandomStep& s) { s.sequences[0].rollout = 1; }, "sequences[0].rollout: 1, must be 0"},
      {[](RandomStep& s) { s.sequences[0].group = 1; }, "sequences[0].group: 1, must be 0"},
      {[](RandomStep& s) { s.sequences[2].rollout = 0; },
       "sequences[2].rollout: 0, must be 1 or the next"},
      {[](RandomStep& s) { s.sequences[2].rollout = 3; },
       "sequences[2].rollout: 3, must be 1 or the next"},
      {[](RandomStep& s) { s.sequences[2].group = 2; },
       "sequences[2].group: 2, must be 0 or the next"},
      {[](RandomStep& s) {
         s.sequences[1] = {5, 0, 1};
       },
       "sequences[1].group: 1, must be 0 as for the rest of the rollout"},
  };
  for (const Case& c : cases) {
    RandomStep step(0);
    step.sequences = {{100, 0, 0}, {100, 1, 0}, {100, 2, 1}};
    step.spec = {};
    step.spec.token_budget = 1000;
    ASSERT_TRUE(Pack(step.sequences, step.spec).ok());
    c.spoil(step);
    const absl::Status status = Pack(step.sequences, step.spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace forebay::batch
