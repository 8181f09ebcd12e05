#include "drift/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/prng.h"
#include "codec/archive.h"
#include "drift/limits.h"
#include "tests/unit/drift/make.h"

namespace forebay::drift {
namespace {

TEST(Table, HoldsEachTokenInEachDimensionOnce) {
  Report report;
  report.engines = {"a", "b"};
  report.engine = {CellOf(0, 100, 0, 0, 0.5, 10), CellOf(0, 100, 1, 2, -1, 20),
                   CellOf(1, 3000, 1, 16, 2, 30)};
  report.reference = {CellOf(1, 3000, 0, 0, 1, 5)};
  Table table;
  table.Add(report, 7);
  EXPECT_EQ(table.All().tokens, 60);
  EXPECT_EQ(table.lags.at(0).tokens, 10);
  EXPECT_EQ(table.lags.at(2).tokens, 20);
  EXPECT_EQ(table.lags.at(kLagsKept).tokens, 30);
  EXPECT_EQ(table.sources.at(SourceId(0)).All().tokens, 30);
  EXPECT_EQ(table.sources.at(SourceId(0)).mismatch().tokens, 10);
  EXPECT_DOUBLE_EQ(table.sources.at(SourceId(0)).mismatch().k2, 1.25);
  EXPECT_EQ(table.sources.at(SourceId(1)).reference.tokens, 5);
  EXPECT_EQ(table.lengths.at(7).All().tokens, 30);
  EXPECT_EQ(table.lengths.at(12).All().tokens, 30);
  EXPECT_EQ(table.engines.at("b").All().tokens, 50);
  EXPECT_EQ(table.engines.at("b").by_lag[LagClass(2)].tokens, 20);
  EXPECT_EQ(table.engines.at("b").by_lag[LagClass(99)].tokens, 30);
  EXPECT_EQ(table.engines.at("b").last_step, 7u);
  EXPECT_EQ(table.reference.tokens, 5);
  EXPECT_TRUE(table.Holds());
}

TEST(Table, IsTheSameInWhateverOrderReportsCome) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Prng prng(seed);
    std::vector<Report> reports;
    for (int i = 0; i < 10; ++i) reports.push_back(RandomReport(prng, 30));
    Table forth, back, merged, other;
    for (size_t i = 0; i < reports.size(); ++i) {
      forth.Add(reports[i], 1);
      back.Add(reports[reports.size() - 1 - i], 1);
      (prng.Below(2) == 0 ? merged : other).Add(reports[i], 1);
    }
    merged.Add(other);
    for (const Table* table : {&back, &merged}) {
      EXPECT_TRUE(table->Holds());
      EXPECT_TRUE(Near(table->All(), forth.All())) << seed;
      EXPECT_TRUE(Near(table->reference, forth.reference)) << seed;
      ASSERT_EQ(table->engines.size(), forth.engines.size());
      for (const auto& [name, row] : forth.engines) {
        for (size_t c = 0; c < kLagClasses; ++c) {
          EXPECT_TRUE(Near(row.by_lag[c], table->engines.at(name).by_lag[c])) << seed << name << c;
        }
      }
      ASSERT_EQ(table->lengths.size(), forth.lengths.size());
      for (const auto& [length, row] : forth.lengths) {
        EXPECT_TRUE(Near(row.All(), table->lengths.at(length).All()));
        EXPECT_TRUE(Near(row.reference, table->lengths.at(length).reference));
      }
    }
  }
}

TEST(Table, FadesAndForgets) {
  Report report;
  report.engines = {"a"};
  report.engine = {CellOf(0, 100, 0, 0, 0.5, 100)};
  Table table;
  table.Add(report, 1);
  table.StepDone(1);
  EXPECT_DOUBLE_EQ(table.engines.at("a").All().tokens, 90);
  EXPECT_DOUBLE_EQ(table.lags.at(0).Mean(table.lags.at(0).k2), 0.125);
  for (uint64_t step = 2; step < 60; ++step) table.StepDone(step);
  EXPECT_EQ(table, Table());
}

TEST(Table, TheLargestIsOfTheLatestSteps) {
  Report report;
  report.engines = {"a"};
  report.engine = {CellOf(0, 100, 0, 0, 5, 1)};
  Table table;
  table.Add(report, 1);
  Report small;
  small.engines = {"a"};
  small.engine = {CellOf(0, 100, 0, 0, 0.5, 100)};
  for (uint64_t step = 1; step < 2 * kMaxWindowSteps; ++step) {
    table.Add(small, step);
    table.StepDone(step);
    EXPECT_EQ(table.engines.at("a").All().MaxAbs(), 5.0f) << step;
  }
  table.Add(small, 2 * kMaxWindowSteps);
  table.StepDone(2 * kMaxWindowSteps);
  EXPECT_EQ(table.engines.at("a").All().MaxAbs(), 0.5f);
}

TEST(Table, TheEngineThatWasSilentLongestMakesRoom) {
  Table table;
  for (uint64_t i = 0; i < kEnginesKept + 10; ++i) {
    Report report;
    report.engines = {absl::StrCat("engine-", i)};
    report.engine = {CellOf(0, 100, 0, 0, 0.5, 1)};
    table.Add(report, i + 1);
    if (i == 100) continue;
    report.engines = {"engine-0"};
    table.Add(report, i + 1);
  }
  EXPECT_EQ(table.engines.size(), kEnginesKept);
  EXPECT_TRUE(table.engines.contains("engine-0"));
  EXPECT_FALSE(table.engines.contains("engine-5"));
  EXPECT_TRUE(table.engines.contains(absl::StrCat("engine-", kEnginesKept + 9)));
  EXPECT_TRUE(table.Holds());
}

TEST(Table, IsTheSameAfterItsBytes) {
  Prng prng(3);
  Table table;
  table.Add(RandomReport(prng, 100), 5);
  table.StepDone(5);
  Table read;
  ASSERT_TRUE(codec::Decode(codec::Encode(table), &read));
  EXPECT_EQ(read, table);
  read.lags[kLagsKept + 1];
  EXPECT_FALSE(read.Holds());
  read = table;
  read.engines["engine-0"].by_lag[2].k3 = -1;
  EXPECT_FALSE(read.Holds());
}

}  // namespace
}  // namespace forebay::drift
