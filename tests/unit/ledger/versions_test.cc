#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/limits.h"
#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class Versions : public ::testing::Test {
 protected:
  Versions() {
    h.PutTrainSource();
    h.Attach();
  }
  void CommitSteps(uint64_t first, uint64_t last, uint32_t groups = 2) {
    for (uint64_t s = first; s <= last; ++s) {
      FOREBAY_CHECK(h.OpenFilled(s, h.Spec(groups)).ok());
      FOREBAY_CHECK(h.Commit(s).status.ok());
    }
  }
  absl::Status Announce(uint32_t number, VersionPhase phase, const std::string& where = "w",
                        uint32_t branch = 0) {
    Announcement announcement;
    announcement.version = {branch, number};
    announcement.phase = phase;
    announcement.where = where;
    return h.Run(PublishVersion{h.generation, announcement});
  }
  absl::Status Publish(uint32_t number, const std::string& where = "w") {
    return Announce(number, VersionPhase::kPublished, where);
  }
  absl::Status Pend(uint32_t number, const std::string& where = "w") {
    return Announce(number, VersionPhase::kPending, where);
  }
  const codec::VersionState& Told() { return *h.shards[0].Last<codec::VersionState>(); }
  Harness h;
};

TEST_F(Versions, ARunBeginsWithVersionZeroPublished) {
  EXPECT_EQ(h.state.published().version, (PolicyVersion{0, 0}));
  EXPECT_EQ(Told().announced.number, 0);
  EXPECT_EQ(Told().next_train.number, 0);
  EXPECT_THAT(h.state.announcements(), SizeIs(1));
}

TEST_F(Versions, EveryShardIsGreetedWithTheirNumber) {
  Harness many({.shards = 3});
  for (const FakeShard& shard : many.shards) {
    EXPECT_EQ(shard.Last<codec::VersionState>()->shards, 3);
  }
}

TEST_F(Versions, ArePendingBeforeTheyArePublished) {
  CommitSteps(1, 1);
  ASSERT_TRUE(Pend(1).ok());
  EXPECT_EQ(Told().announced.number, 1);
  EXPECT_EQ(Told().published.number, 0);
  ASSERT_TRUE(h.state.pending());
  ASSERT_TRUE(Publish(1).ok());
  EXPECT_EQ(Told().published.number, 1);
  EXPECT_FALSE(h.state.pending());
  ASSERT_THAT(h.announced, SizeIs(2));
  EXPECT_EQ(h.announced[0].phase, VersionPhase::kPending);
  EXPECT_EQ(h.announced[1].phase, VersionPhase::kPublished);
}

TEST_F(Versions, ShardsHearOfAVersionInTheSameBreathAsWatchers) {
  CommitSteps(1, 1);
  State& state = h.state;
  Announcement announcement;
  announcement.version = {0, 1};
  announcement.where = "w";
  Effects effects;
  State copy(state.options());
  std::string bytes;
  codec::Writer writer(&bytes);
  state.Snapshot(writer);
  codec::Reader reader(bytes);
  ASSERT_TRUE(copy.Restore(reader));
  copy.Apply(PublishVersion{h.generation, announcement}, 1, &effects);
  ASSERT_THAT(effects.announcements, SizeIs(1));
  ASSERT_THAT(effects.to_shards, SizeIs(1));
  codec::ToShard message;
  ASSERT_TRUE(codec::Decode(effects.to_shards[0].second.body, &message));
  EXPECT_EQ(std::get<codec::VersionState>(message).published.number, 1);
}

TEST_F(Versions, AnnouncedAgainChangeNothing) {
  CommitSteps(1, 1);
  ASSERT_TRUE(Pend(1).ok());
  uint64_t before = h.state.Hash();
  EXPECT_TRUE(Pend(1).ok());
  EXPECT_EQ(h.state.Hash(), before);
  ASSERT_TRUE(Publish(1).ok());
  before = h.state.Hash();
  EXPECT_TRUE(Publish(1).ok());
  EXPECT_TRUE(Pend(1).ok()) << "a late retry of the first phase";
  EXPECT_EQ(h.state.Hash(), before);
  EXPECT_THAT(h.announced, SizeIs(2));
}

TEST_F(Versions, BadOnesAreRefusedByNameAndChangeNothing) {
  CommitSteps(1, 3);
  ASSERT_TRUE(Publish(2).ok());
  const uint64_t before = h.state.Hash();
  EXPECT_THAT(Publish(4).message(), HasSubstr("version: 0/4 is from the future, at most 0/3"));
  EXPECT_THAT(Pend(4).message(), HasSubstr("from the future"));
  EXPECT_THAT(Publish(1).message(), HasSubstr("version: 0/1, at least 0/2"));
  EXPECT_THAT(Publish(2, "elsewhere").message(), HasSubstr("was published as \"w\""));
  EXPECT_THAT(Announce(3, VersionPhase::kPublished, "w", 1).message(),
              HasSubstr("version: 1/3 is not on the branch 0"));
  EXPECT_THAT(Announce(3, static_cast<VersionPhase>(3)).message(), HasSubstr("phase: 3"));
  EXPECT_THAT(Publish(3, std::string(4097, 'x')).message(), HasSubstr("where: 4097 bytes"));
  Announcement delta;
  delta.version = {0, 3};
  delta.base = PolicyVersion{0, 3};
  EXPECT_THAT(h.Run(PublishVersion{h.generation, delta}).message(), HasSubstr("base: 0/3"));
  EXPECT_EQ(h.state.Hash(), before);
}

TEST_F(Versions, PublishingMaySkipSome) {
  CommitSteps(1, 3);
  EXPECT_TRUE(Publish(3).ok());
}

TEST_F(Versions, TheFirstCanBeGivenAPlaceOnce) {
  EXPECT_TRUE(Pend(0, "initial").ok());
  EXPECT_TRUE(Publish(0, "initial").ok());
  EXPECT_EQ(h.state.published().where, "initial");
  EXPECT_THAT(Publish(0, "other").message(), HasSubstr("was published as \"initial\""));
}

TEST_F(Versions, AnOlderPendingOneIsRefused) {
  CommitSteps(1, 3);
  ASSERT_TRUE(Pend(3).ok());
  EXPECT_THAT(Pend(2).message(), HasSubstr("version: 0/2, at least 0/3"));
  EXPECT_TRUE(Publish(2).ok());
  EXPECT_EQ(h.state.pending()->version.number, 3);
}

TEST_F(Versions, TheVersionToTrainMovesOnWhenNoStepLacksGroups) {
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), h.Spec(2)}).ok());
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(2), h.Spec(2)}).ok());
  EXPECT_EQ(Told().next_train.number, 0) << "step 1 still takes what is too old for step 2";
  h.shards[0].AddReady({});
  h.shards[0].AddReady({});
  h.Summarize();
  EXPECT_EQ(Told().next_train.number, 1);
  h.shards[0].AddReady({});
  h.shards[0].AddReady({});
  h.Summarize();
  EXPECT_EQ(Told().next_train.number, 2);
}

TEST_F(Versions, AnAbortTakesTheVersionBackBeforeTheGroupsReturn) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(2)).ok());
  ASSERT_EQ(Told().next_train.number, 1);
  const size_t before = h.shards[0].history().size();
  ASSERT_TRUE(h.Run(AbortStep{h.generation, StepId(1), ""}).ok());
  const auto& history = h.shards[0].history();
  ASSERT_EQ(history.size(), before + 2);
  EXPECT_EQ(std::get<codec::VersionState>(history[before]).next_train.number, 0);
  EXPECT_TRUE(std::holds_alternative<codec::Unreserve>(history[before + 1]));
}

TEST_F(Versions, AdmissionIsMeasuredFromCommittedSteps) {
  EXPECT_EQ(Told().rollouts_per_version, 0);
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), h.Spec(5)}).ok());
  EXPECT_EQ(Told().rollouts_per_version, 20) << "5 groups of 4";
  for (int i = 0; i < 5; ++i) h.shards[0].AddReady({.rollouts = 3});
  h.Summarize();
  ASSERT_TRUE(h.Commit(1).status.ok());
  EXPECT_EQ(Told().rollouts_per_version, 15);
  ASSERT_TRUE(Publish(1).ok());
  EXPECT_EQ(Told().rollouts_per_version, 15);
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(2), h.Spec(100)}).ok());
  EXPECT_EQ(Told().rollouts_per_version, 400) << "a larger step must be able to fill";
}

TEST_F(Versions, ShardsAreToldHowManyOptimizerStepsAVersionTakes) {
  EXPECT_EQ(Told().numbers_per_version, 1);
  StepSpec spec = h.Spec(5);
  spec.mini_batches = 3;
  ASSERT_TRUE(h.OpenFilled(1, spec).ok());
  EXPECT_EQ(Told().numbers_per_version, 3);
  ASSERT_TRUE(h.Commit(1).status.ok());
  EXPECT_EQ(Told().numbers_per_version, 3);
}

// Also where nothing is ready, and so nothing is asked for: or the step would wait for ever.
TEST_F(Versions, ShardsAreToldWhatTheStepTakesFrom) {
  EXPECT_TRUE(Told().wanted_sources.empty());
  StepSpec spec = h.Spec(5);
  spec.sources = {SourceId(0)};
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), spec}).ok());
  EXPECT_EQ(Told().wanted_sources, spec.sources);
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(2), h.Spec(5)}).ok());
  EXPECT_EQ(Told().wanted_sources, spec.sources) << "the oldest step goes first";
  for (int i = 0; i < 5; ++i) h.shards[0].AddReady({});
  h.Summarize();
  EXPECT_TRUE(Told().wanted_sources.empty());
}

TEST_F(Versions, AdmissionAllowsForWhatSharesRoundOff) {
  Harness many({.shards = 3});
  many.PutTrainSource("a", 4);
  many.PutTrainSource("b", 8);
  many.Attach();
  ASSERT_TRUE(many.Run(OpenStep{many.generation, StepId(1), many.Spec(10)}).ok());
  // The mean group has 6; each of six shares of the budget but one may lack just under a group
  // of 8.
  EXPECT_EQ(many.shards[0].Last<codec::VersionState>()->rollouts_per_version, 60 + 5 * 8);
}

TEST_F(Versions, AdmissionAllowsForGroupsThatAreLargerThanAttemptsAre) {
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), h.Spec(5)}).ok());
  h.shards[0].AddReady({.rollouts = 3});
  h.Summarize();
  EXPECT_EQ(Told().rollouts_per_version, 20);
  // One that was pushed whole: with 5 x 4 admitted, the last group could never be begun.
  h.shards[0].AddReady({.rollouts = 9});
  h.Summarize();
  EXPECT_EQ(Told().rollouts_per_version, 3 + 9 + 3 * 4);
}

TEST_F(Versions, AreSentOnlyWhenSomethingChanged) {
  const size_t before = h.shards[0].Count<codec::VersionState>();
  ASSERT_TRUE(h.Run(ReportAdoption{"e", {0, 0}, 1, 1}).ok());
  h.Attach();
  EXPECT_EQ(h.shards[0].Count<codec::VersionState>(), before);
}

TEST_F(Versions, EnginesReportWhatTheyHold) {
  CommitSteps(1, 1);
  ASSERT_TRUE(Pend(1).ok());
  ASSERT_TRUE(h.Run(ReportAdoption{"engine-7", {0, 1}, 1500, 80}).ok());
  const Adoption& adoption = h.state.adoptions().at("engine-7");
  EXPECT_EQ(adoption.version.number, 1);
  EXPECT_EQ(adoption.pending_to_loaded_ms, 1500);
  EXPECT_EQ(adoption.pause_ms, 80);
  EXPECT_EQ(adoption.reports, 1);
  const uint64_t before = h.state.Hash();
  EXPECT_THAT(h.Run(ReportAdoption{"e", {0, 2}, 0, 0}).message(),
              HasSubstr("version: 0/2, at most 0/1"));
  EXPECT_THAT(h.Run(ReportAdoption{"e", {1, 0}, 0, 0}).message(), HasSubstr("version: 1/0"));
  EXPECT_THAT(h.Run(ReportAdoption{"", {0, 1}, 0, 0}).message(), HasSubstr("engine: 0 bytes"));
  EXPECT_EQ(h.state.Hash(), before);
}

TEST(Adoptions, TheEngineThatWasSilentLongestMakesRoom) {
  State state({});
  Effects effects;
  for (size_t i = 0; i < kEnginesKept; ++i) {
    state.Apply(ReportAdoption{"e" + std::to_string(i), {}, 0, 0}, 0, &effects);
  }
  state.Apply(ReportAdoption{"e0", {}, 0, 0}, 0, &effects);
  state.Apply(ReportAdoption{"new", {}, 0, 0}, 0, &effects);
  EXPECT_EQ(state.adoptions().size(), kEnginesKept);
  EXPECT_TRUE(state.adoptions().contains("e0"));
  EXPECT_FALSE(state.adoptions().contains("e1"));
}

TEST_F(Versions, AnnouncementsAreBounded) {
  for (uint32_t s = 1; s <= kAnnouncementsKept + 2; ++s) {
    CommitSteps(s, s, 1);
    ASSERT_TRUE(Publish(s).ok());
  }
  EXPECT_THAT(h.state.announcements(), SizeIs(kAnnouncementsKept));
  EXPECT_EQ(h.state.announcements().back().version.number, kAnnouncementsKept + 2);
}

}  // namespace
}  // namespace forebay::ledger
