// Which source gets the next group: shares over long runs.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/unit/curriculum/fixtures.h"

namespace forebay::curriculum {
namespace {

constexpr uint64_t kAttempts = 16;

class MixtureOfSources : public ::testing::Test {
 protected:
  void Put(uint16_t id, double weight, double minimum_share = 0) {
    codec::SourceSettings settings = Settings(codec::Order::kStatic);
    settings.weight = weight;
    settings.minimum_share = minimum_share;
    curriculum_.PutSource(SourceId(id), settings);
    if (curriculum_.source(SourceId(id))->tasks().size() > 0) return;
    std::vector<PayloadId> unused;
    ASSERT_TRUE(curriculum_.AddTasks(SourceId(id), MakeTasks(0, 10), &unused).ok());
  }
  // Shares of the sources over so many groups.
  std::map<uint16_t, double> Shares(int groups) {
    std::map<uint16_t, double> shares;
    for (int i = 0; i < groups; ++i) {
      const auto chosen = curriculum_.ChooseSource(eligible_);
      EXPECT_EQ(chosen, curriculum_.ChooseSource(eligible_)) << "a choice alone changes nothing";
      if (!chosen) break;
      curriculum_.Charge(*chosen, kAttempts);
      shares[chosen->value] += 1.0 / groups;
    }
    return shares;
  }

  Curriculum curriculum_{1};
  std::vector<uint8_t> eligible_ = std::vector<uint8_t>(10, 1);
};

TEST_F(MixtureOfSources, SharesFollowTheWeights) {
  Put(0, 1);
  Put(1, 2.5);
  Put(2, 0.25);
  Put(4, 0);
  auto shares = Shares(100'000);
  EXPECT_NEAR(shares[0], 1 / 3.75, 2e-5);
  EXPECT_NEAR(shares[1], 2.5 / 3.75, 2e-5);
  EXPECT_NEAR(shares[2], 0.25 / 3.75, 2e-5);
  EXPECT_EQ(shares[4], 0);
}

TEST_F(MixtureOfSources, SharesAreSmoothInShortRuns) {
  Put(0, 3);
  Put(1, 1);
  for (int run = 0; run < 10; ++run) {
    auto shares = Shares(4);
    EXPECT_EQ(shares[0], 0.75);
    EXPECT_EQ(shares[1], 0.25);
  }
}

TEST_F(MixtureOfSources, GroupsOfDifferentSizeShareAttempts) {
  Put(0, 1);
  Put(1, 1);
  uint64_t attempts[2] = {};
  for (int i = 0; i < 30'000; ++i) {
    const uint16_t chosen = curriculum_.ChooseSource(eligible_)->value;
    const uint64_t size = chosen == 0 ? 5 : 64;
    curriculum_.Charge(SourceId(chosen), size);
    attempts[chosen] += size;
  }
  EXPECT_NEAR(static_cast<double>(attempts[0]), static_cast<double>(attempts[1]), 64);
}

TEST_F(MixtureOfSources, AMinimumShareIsKeptAgainstAnyWeight) {
  Put(0, 1000);
  Put(1, 0.001, 0.2);
  Put(2, 1000);
  auto shares = Shares(100'000);
  EXPECT_NEAR(shares[1], 0.2, 1e-4);
  EXPECT_NEAR(shares[0], 0.4, 1e-4);
  EXPECT_NEAR(shares[2], 0.4, 1e-4);
}

TEST_F(MixtureOfSources, AMinimumShareBelowTheWeightsChangesNothing) {
  Put(0, 1);
  Put(1, 1, 0.2);
  auto shares = Shares(100'000);
  EXPECT_NEAR(shares[0], 0.5, 1e-3);
  EXPECT_NEAR(shares[1], 0.5, 1e-3);
}

TEST_F(MixtureOfSources, AMinimumShareAloneGivesWhatOthersLeave) {
  Put(0, 0, 0.3);
  Put(1, 1);
  auto shares = Shares(10'000);
  EXPECT_NEAR(shares[0], 0.3, 1e-3);
  eligible_[1] = 0;
  EXPECT_NEAR(Shares(100)[0], 1, 1e-9);
}

TEST_F(MixtureOfSources, MinimumSharesThatExceedTheWholeSplitIt) {
  Put(0, 1, 1);
  Put(1, 1, 1);
  Put(2, 1);
  auto shares = Shares(10'000);
  EXPECT_NEAR(shares[0], 0.5, 1e-3);
  EXPECT_NEAR(shares[1], 0.5, 1e-3);
}

TEST_F(MixtureOfSources, ASourceThatWasAwayCatchesUpABoundedAmount) {
  Put(0, 1);
  Put(1, 1, 0.1);
  eligible_[1] = 0;
  EXPECT_NEAR(Shares(10'000)[0], 1, 1e-9);
  eligible_[1] = 1;
  uint64_t run = 0;  // of source 1 alone
  while (curriculum_.ChooseSource(eligible_) == SourceId(1)) {
    curriculum_.Charge(SourceId(1), kAttempts);
    run += kAttempts;
  }
  EXPECT_GE(run, kAttempts);
  EXPECT_LE(run, Mixture::kCatchUpAttempts + 2 * kAttempts);
}

TEST_F(MixtureOfSources, ANewWeightCountsFromNowOn) {
  Put(0, 1);
  Put(1, 1);
  Shares(1000);
  Put(0, 3);
  auto shares = Shares(4000);
  EXPECT_NEAR(shares[0], 0.75, 1e-3);
  // Another setting alone leaves its place in the mixture as it is.
  Put(0, 3);
  shares = Shares(4000);
  EXPECT_NEAR(shares[0], 0.75, 1e-3);
}

TEST_F(MixtureOfSources, ANewSourceStartsAtItsShare) {
  Put(0, 1);
  Shares(100'000);
  Put(1, 1);
  auto shares = Shares(100);
  EXPECT_NEAR(shares[1], 0.5, 0.011);
}

TEST_F(MixtureOfSources, NeverChoosesWhatCannotDrawOrIsForEvaluation) {
  Put(0, 1);
  Put(1, 1);
  Put(2, 1);
  Put(3, 1);
  codec::SourceSettings settings = Settings(codec::Order::kStatic);
  settings.paused = true;
  curriculum_.PutSource(SourceId(0), settings);
  settings.paused = false;
  settings.purpose = codec::Purpose::kEval;
  curriculum_.PutSource(SourceId(1), settings);
  std::vector<uint64_t> hashes;
  for (const NewTask& task : MakeTasks(0, 10)) hashes.push_back(task.external_hash);
  EXPECT_EQ(curriculum_.SetQuarantine(SourceId(2), hashes, true), 10u);
  eligible_.resize(3);
  EXPECT_EQ(curriculum_.ChooseSource(eligible_), std::nullopt);
  eligible_.resize(4, 1);
  EXPECT_EQ(curriculum_.ChooseSource(eligible_), SourceId(3));
}

TEST_F(MixtureOfSources, WeightsOfAnySizeKeepTheirRatio) {
  Put(0, 1e-9);
  Put(1, 3e-9);
  auto shares = Shares(40'000);
  EXPECT_NEAR(shares[1], 0.75, 0.06);  // 2^-32 is the smallest step of a weight
  Put(0, 1e5);
  Put(1, 3e5);
  shares = Shares(40'000);
  EXPECT_NEAR(shares[1], 0.75, 1e-4);
}

}  // namespace
}  // namespace forebay::curriculum
