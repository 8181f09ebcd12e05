// The spans of a micro-batch's layout: bounds of versions and of engines, whichever come first.
#include "server/grpc/fetch_spans.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace forebay::server {
namespace {

using Spans = std::vector<std::tuple<uint32_t, uint32_t, std::string>>;  // offset, version, engine

Spans SpansOf(const v1::MicroBatchLayout& layout) {
  Spans spans;
  for (int i = 0; i < layout.sampled_offsets_size(); ++i) {
    spans.emplace_back(layout.sampled_offsets(i), layout.sampled_versions(i),
                       layout.engine_names(static_cast<int>(layout.sampled_engines(i))));
  }
  return spans;
}

// A rollout of one sequence of 100 tokens.
codec::RolloutHeader Header(std::vector<codec::HeaderVersionRun> runs,
                            std::vector<codec::HeaderTurn> turns, std::string_view engine) {
  codec::RolloutHeader header;
  header.engine = engine;
  header.version_runs = std::move(runs);
  header.turns = std::move(turns);
  header.sequences = {{.tokens = 100,
                       .versions = {0, static_cast<uint32_t>(header.version_runs.size())},
                       .turns = {0, static_cast<uint32_t>(header.turns.size())}}};
  return header;
}

Spans SpansOf(const codec::RolloutHeader& header, uint32_t version = 9) {
  v1::MicroBatchLayout layout;
  SpanWriter(&layout).Add(header, 0, version);
  EXPECT_EQ(layout.sampled_counts_size(), 1);
  EXPECT_EQ(layout.sampled_counts(0), static_cast<uint32_t>(layout.sampled_offsets_size()));
  return SpansOf(layout);
}

TEST(SpanWriter, OneVersionOfOneEngineIsOneSpan) {
  EXPECT_EQ(SpansOf(Header({}, {}, "a")), (Spans{{0, 9, "a"}}));
  EXPECT_EQ(SpansOf(Header({}, {}, "")), (Spans{{0, 9, ""}}));
  EXPECT_EQ(SpansOf(Header({{0, 0, 7, 50}}, {{0, 40, "a"}, {40, 60, ""}}, "a")),
            (Spans{{0, 7, "a"}}));
}

TEST(SpanWriter, RunsOfVersionsAndTurnsOfEnginesAreCutWhereEitherEnds) {
  const auto header =
      Header({{0, 0, 7, 0}, {50, 1, 8, 0}}, {{10, 20, "b"}, {40, 20, "c"}, {60, 40, ""}}, "a");
  EXPECT_EQ(
      SpansOf(header),
      (Spans{{0, 7, "a"}, {10, 7, "b"}, {30, 7, "a"}, {40, 7, "c"}, {50, 8, "c"}, {60, 8, "a"}}));
}

TEST(SpanWriter, TurnsOutOfOrderAndThoseThatOverlapGiveSpansInOrder) {
  const auto header = Header({}, {{50, 50, "c"}, {0, 60, "b"}}, "");
  EXPECT_EQ(SpansOf(header), (Spans{{0, 9, "b"}, {60, 9, "c"}}));
}

TEST(SpanWriter, NamesEachEngineOnce) {
  v1::MicroBatchLayout layout;
  SpanWriter writer(&layout);
  const auto first = Header({}, {}, "a"), second = Header({}, {{0, 10, "a"}}, "b");
  writer.Add(first, 0, 1);
  writer.Add(second, 0, 2);
  writer.Add(first, 0, 3);
  EXPECT_EQ(layout.engine_names_size(), 2);
  EXPECT_EQ(SpansOf(layout), (Spans{{0, 1, "a"}, {0, 2, "a"}, {10, 2, "b"}, {0, 3, "a"}}));
  EXPECT_EQ(layout.sampled_counts(0), 1u);
  EXPECT_EQ(layout.sampled_counts(1), 2u);
}

}  // namespace
}  // namespace forebay::server
