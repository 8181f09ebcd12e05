#include "drift/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "drift/limits.h"
#include "tests/unit/drift/make.h"

namespace forebay::drift {
namespace {

using ::testing::HasSubstr;

TEST(LengthBucket, AreByPowersOfTwo) {
  EXPECT_EQ(LengthBucket(1), 0);
  EXPECT_EQ(LengthBucket(2), 1);
  EXPECT_EQ(LengthBucket(3), 2);
  EXPECT_EQ(LengthBucket(4), 2);
  EXPECT_EQ(LengthBucket(1024), 10);
  EXPECT_EQ(LengthBucket(1025), 11);
  EXPECT_EQ(LengthBucket(UINT32_MAX), kLengthBuckets - 1);
  EXPECT_EQ(LengthName(0), "1");
  EXPECT_EQ(LengthName(1), "2");
  EXPECT_EQ(LengthName(2), "3-4");
  EXPECT_EQ(LengthName(11), "1025-2048");
  EXPECT_EQ(LengthName(32), "2147483649-4294967296");
}

TEST(Compact, AddsUpWhatDiffersInItsSumsAlone) {
  Report report;
  report.engines = {"a", "b"};
  report.engine = {CellOf(0, 100, 1, 0, 0.5), CellOf(0, 100, 0, 1, 0.5), CellOf(0, 120, 1, 0, -1),
                   CellOf(1, 100, 1, 0, 2)};
  Compact(&report);
  ASSERT_EQ(report.engine.size(), 3u);
  EXPECT_EQ(report.engine[0].engine, 0u);
  EXPECT_EQ(report.engine[1].sums.tokens, 2);
  EXPECT_DOUBLE_EQ(report.engine[1].sums.k2, 0.625);
  EXPECT_EQ(report.engine[2].source, SourceId(1));
}

// Adding rounds, so that sums agree to the last bits only; counts and the largest agree exactly.
TEST(Compact, GivesTheSameInWhateverOrderPartsCome) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Prng prng(seed);
    Report report = RandomReport(prng, 200);
    Report shuffled = report;
    for (size_t i = shuffled.engine.size(); i > 1; --i) {
      std::swap(shuffled.engine[i - 1], shuffled.engine[prng.Below(i)]);
    }
    Compact(&report);
    Compact(&shuffled);
    ASSERT_EQ(report.engine.size(), shuffled.engine.size()) << seed;
    for (size_t i = 0; i < report.engine.size(); ++i) {
      EXPECT_TRUE(Near(report.engine[i].sums, shuffled.engine[i].sums)) << seed << " " << i;
    }
  }
}

TEST(CheckReport, NamesFieldAndLimit) {
  const auto refusal = [](auto spoil) {
    Report report;
    report.engines = {"a"};
    report.engine = {CellOf(0, 100, 0, 0, 0.5)};
    report.reference = {CellOf(0, 100, 0, 0, 0.5)};
    EXPECT_TRUE(CheckReport(report, 1).ok());
    spoil(report);
    const absl::Status status = CheckReport(report, 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](Report& r) { r.engine[0].source = SourceId(1); }),
              HasSubstr("engine.sources[0]: 1, less than 1"));
  EXPECT_THAT(refusal([](Report& r) { r.engine[0].engine = 1; }),
              HasSubstr("engine.engines[0]: 1, less than 1"));
  EXPECT_THAT(refusal([](Report& r) { r.engine[0].lag = kLagsKept + 1; }),
              HasSubstr("engine.lags[0]: 17, less than 17"));
  EXPECT_THAT(refusal([](Report& r) { r.engine[0].length = 33; }),
              HasSubstr("engine.lengths[0]: 33, less than 33"));
  EXPECT_THAT(refusal([](Report& r) { r.reference[0].sums.k3 = -1; }),
              HasSubstr("reference.k3[0]"));
  EXPECT_THAT(refusal([](Report& r) { r.engines[0].assign(257, 'x'); }),
              HasSubstr("engine_names[0]: 257 bytes, at most 256"));
  EXPECT_THAT(refusal([](Report& r) { r.engine.resize(65'537); }),
              HasSubstr("engine: 65537 parts, at most 65536"));
}

}  // namespace
}  // namespace forebay::drift
