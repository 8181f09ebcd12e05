#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

using ::testing::HasSubstr;

codec::SourceSettings Settings(const std::string& name) {
  codec::SourceSettings settings;
  settings.name = name;
  return settings;
}

TEST(Sources, GetDenseIdsInTheOrderOfTheirCreation) {
  Harness h;
  EXPECT_EQ(h.PutTrainSource("a"), SourceId(0));
  EXPECT_EQ(h.PutTrainSource("b"), SourceId(1));
  EXPECT_EQ(h.state.FindSource("b")->id, SourceId(1));
  EXPECT_EQ(h.state.FindSource("c"), nullptr);
  EXPECT_EQ(h.state.source(SourceId(2)), nullptr);
}

TEST(Sources, AChangeIsToldToEveryShard) {
  Harness h({.shards = 3});
  h.PutTrainSource("a");
  codec::SourceSettings settings = h.state.sources()[0].settings;
  settings.max_lag = 7;
  const auto reply = h.Do<PutSourceReply>(PutSource{settings});
  EXPECT_FALSE(reply.created);
  EXPECT_EQ(reply.source, SourceId(0));
  for (const FakeShard& shard : h.shards) {
    EXPECT_EQ(shard.Count<codec::SourceChanged>(), 2);
    EXPECT_EQ(shard.Last<codec::SourceChanged>()->settings.max_lag, 7);
  }
}

TEST(Sources, TheSameSettingsAgainChangeNothing) {
  Harness h;
  h.PutTrainSource("a");
  const uint64_t before = h.state.Hash();
  EXPECT_FALSE(h.Do<PutSourceReply>(PutSource{h.state.sources()[0].settings}).created);
  EXPECT_EQ(h.state.Hash(), before);
  EXPECT_EQ(h.shards[0].Count<codec::SourceChanged>(), 1);
}

TEST(Sources, MinimumSharesOfTrainSourcesSumToAtMostOne) {
  Harness h;
  codec::SourceSettings settings = Settings("a");
  settings.minimum_share = 0.6;
  ASSERT_TRUE(h.Do<PutSourceReply>(PutSource{settings}).status.ok());
  settings.name = "b";
  const auto refused = h.Do<PutSourceReply>(PutSource{settings});
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status.message(),
              HasSubstr("minimum_share: 0.6, with the other sources 1.2"));
  settings.purpose = codec::Purpose::kEval;
  EXPECT_TRUE(h.Do<PutSourceReply>(PutSource{settings}).status.ok());
  settings = Settings("a");
  settings.minimum_share = 1;  // in place of its own 0.6
  EXPECT_TRUE(h.Do<PutSourceReply>(PutSource{settings}).status.ok());
}

TEST(Sources, MayHaveGroupsOfOneIfNothingIsComparedWithin) {
  Harness h;
  codec::SourceSettings settings = Settings("a");
  settings.group_size = settings.attempts_per_task = settings.complete_at = 1;
  settings.advantage = codec::AdvantageKind::kNone;
  EXPECT_TRUE(h.Do<PutSourceReply>(PutSource{settings}).status.ok());
  settings = Settings("b");
  settings.purpose = codec::Purpose::kEval;
  settings.group_size = settings.attempts_per_task = settings.complete_at = 1;
  EXPECT_TRUE(h.Do<PutSourceReply>(PutSource{settings}).status.ok());
}

TEST(Sources, AreEitherForTrainingOrForEvaluation) {
  Harness h;
  codec::SourceSettings settings = Settings("a");
  ASSERT_TRUE(h.Do<PutSourceReply>(PutSource{settings}).status.ok());
  settings.purpose = codec::Purpose::kEval;
  EXPECT_THAT(h.Do<PutSourceReply>(PutSource{settings}).status.message(), HasSubstr("purpose"));
}

struct BadSettings {
  const char* names;  // what the refusal must name
  void (*spoil)(codec::SourceSettings&);
};

class BadSource : public ::testing::TestWithParam<BadSettings> {};

TEST_P(BadSource, IsRefusedByTheNameOfTheField) {
  Harness h;
  h.PutTrainSource("a");
  const uint64_t before = h.state.Hash();
  codec::SourceSettings settings = Settings("b");
  GetParam().spoil(settings);
  const auto reply = h.Do<PutSourceReply>(PutSource{settings});
  EXPECT_EQ(reply.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(reply.status.message(), HasSubstr(GetParam().names));
  EXPECT_EQ(h.state.Hash(), before);
}

using S = codec::SourceSettings;
INSTANTIATE_TEST_SUITE_P(
    All, BadSource,
    ::testing::Values(
        BadSettings{"name: 0 bytes", [](S& s) { s.name = ""; }},
        BadSettings{"at most",
                    [](S& s) {
                      s.purpose = static_cast<codec::Purpose>(0), s.weight = 1,
                      s.required_columns.assign(65, "x");
                    }},
        BadSettings{"name: 129 bytes", [](S& s) { s.name.assign(129, 'x'); }},
        BadSettings{"name: \"a b\"", [](S& s) { s.name = "a b"; }},
        BadSettings{"purpose: 2", [](S& s) { s.purpose = static_cast<codec::Purpose>(2); }},
        BadSettings{"order: 9", [](S& s) { s.order = static_cast<codec::Order>(9); }},
        BadSettings{"group_size: 0", [](S& s) { s.group_size = 0; }},
        BadSettings{"group_size: 4097", [](S& s) { s.group_size = 4097; }},
        BadSettings{"group_size: 1, but advantage grpo compares",
                    [](S& s) { s.group_size = s.attempts_per_task = s.complete_at = 1; }},
        BadSettings{"completeness.at_least: 1, but advantage rloo compares",
                    [](S& s) { s.complete_at = 1, s.advantage = codec::AdvantageKind::kRloo; }},
        BadSettings{"attempts_per_task: 15, from 16", [](S& s) { s.attempts_per_task = 15; }},
        BadSettings{"completeness.at_least: 17, from 1 to 16", [](S& s) { s.complete_at = 17; }},
        BadSettings{"completeness.minimum: 1, from 2",
                    [](S& s) { s.complete_deadline_ms = 5, s.complete_minimum = 1; }},
        BadSettings{"sampling_json", [](S& s) { s.sampling_json.assign(65537, ' '); }},
        BadSettings{"rewards: 0 keys", [](S& s) { s.rewards.clear(); }},
        BadSettings{"rewards[b]: 1e+07, must be finite and within +-1e+06",
                    [](S& s) {
                      s.rewards = {{"b", 1e7}};
                    }},
        BadSettings{"rewards: 9 keys",
                    [](S& s) {
                      s.rewards.clear();
                      for (char c = 'a'; c < 'j'; ++c) s.rewards.push_back({std::string(1, c), 1});
                    }},
        BadSettings{"must be sorted",
                    [](S& s) {
                      s.rewards = {{"b", 1}, {"a", 1}};
                    }},
        BadSettings{"rewards[a]: nan",
                    [](S& s) {
                      s.rewards = {{"a", NAN}};
                    }},
        BadSettings{"max_lag: 1000001", [](S& s) { s.max_lag = 1'000'001; }},
        BadSettings{"lease.min_ms: 600001, from 1 to 600000",
                    [](S& s) { s.lease_min_ms = 600'001; }},
        BadSettings{"lease.duration_factor: nan", [](S& s) { s.lease_duration_factor = NAN; }},
        BadSettings{"lease.max_failures: 0", [](S& s) { s.max_failures = 0; }},
        BadSettings{"weight: -1", [](S& s) { s.weight = -1; }},
        BadSettings{"weight: inf", [](S& s) { s.weight = INFINITY; }},
        BadSettings{"minimum_share: 1.5", [](S& s) { s.minimum_share = 1.5; }},
        BadSettings{"minimum_share: nan", [](S& s) { s.minimum_share = NAN; }},
        BadSettings{"required_columns: \"x\" twice", [](S& s) {
                      s.required_columns = {"x", "y", "x"};
                    }}));

}  // namespace
}  // namespace forebay::ledger
