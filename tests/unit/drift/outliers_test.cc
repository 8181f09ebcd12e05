#include "drift/outliers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/drift/make.h"

namespace forebay::drift {
namespace {

// d of sqrt(2 k) gives k2 = k; k3 is near to it for small ones.
Table TableOf(const std::vector<double>& k2, uint32_t lag = 0, int tokens = 2000) {
  Report report;
  for (size_t i = 0; i < k2.size(); ++i) {
    report.engines.push_back(absl::StrCat("engine-", i));
    report.engine.push_back(
        CellOf(0, 100, static_cast<uint32_t>(i), lag, -std::sqrt(2 * k2[i]), tokens));
  }
  Table table;
  table.Add(report, 1);
  return table;
}

std::vector<std::string> Names(const Table& table) {
  std::vector<std::string> names;
  for (const Outlier& outlier : FindOutliers(table)) names.push_back(outlier.engine);
  return names;
}

using Engines = std::vector<std::string>;

TEST(FindOutliers, NamesTheOneThatDrifted) {
  EXPECT_EQ(Names(TableOf({0.001, 0.0012, 0.0009, 0.1, 0.0011})), Engines{"engine-3"});
  // Median 0.0011, deviations 0.0001, 0.0001, 0, 0.0989: the limit is twice the median.
  const auto outliers = FindOutliers(TableOf({0.001, 0.0012, 0.0011, 0.1}));
  ASSERT_EQ(outliers.size(), 1u);
  EXPECT_NEAR(outliers[0].value, 0.1, 0.02);
  EXPECT_NEAR(outliers[0].median, 0.00115, 0.0001);
  EXPECT_FALSE(outliers[0].unusable);
  EXPECT_EQ(outliers[0].tokens, 2000);
}

TEST(FindOutliers, LetsEnginesDifferAsMuchAsTheyDo) {
  EXPECT_EQ(Names(TableOf({0.001, 0.0012, 0.0009, 0.0019, 0.0011})), Engines{});
  // Far apart from each other, all of them.
  EXPECT_EQ(Names(TableOf({0.001, 0.01, 0.02, 0.03, 0.06})), Engines{});
  EXPECT_EQ(Names(TableOf({0, 0, 0, 0})), Engines{});
  // Next to nothing.
  EXPECT_EQ(Names(TableOf({1e-7, 1e-7, 1e-7, 1e-5})), Engines{});
}

TEST(FindOutliers, WantsEnoughEnginesAndTokens) {
  EXPECT_EQ(Names(TableOf({0.001, 0.5})), Engines{});
  EXPECT_EQ(Names(TableOf({0.001, 0.001, 0.5})), Engines{"engine-2"});
  EXPECT_EQ(Names(TableOf({0.001, 0.001, 0.5}, 0, 999)), Engines{});
}

TEST(FindOutliers, ComparesTokensOfLikeLag) {
  // All that engine-3 has is older, as is that of others: no wonder that it is farther.
  Table table = TableOf({0.001, 0.001, 0.001});
  Report old;
  old.engines = {"engine-3", "engine-4", "engine-5"};
  for (uint32_t i = 0; i < 3; ++i) old.engine.push_back(CellOf(0, 100, i, 2, -0.5, 2000));
  table.Add(old, 1);
  EXPECT_EQ(Names(table), Engines{});
  old.engine = {CellOf(0, 100, 0, 3, -3, 2000)};
  table.Add(old, 1);
  const auto outliers = FindOutliers(table);
  ASSERT_EQ(outliers.size(), 1u);
  EXPECT_EQ(outliers[0].engine, "engine-3");
  EXPECT_EQ(outliers[0].lag_class, LagClass(2));
}

TEST(FindOutliers, NamesTheOneWhoseTokensAreNoNumbers) {
  Table table = TableOf({0.001, 0.001, 0.001});
  Report broken;
  broken.engines = {"engine-3"};
  broken.engine = {CellOf(0, 100, 0, 0, NAN, 2000)};
  table.Add(broken, 1);
  const auto outliers = FindOutliers(table);
  ASSERT_EQ(outliers.size(), 1u);
  EXPECT_EQ(outliers[0].engine, "engine-3");
  EXPECT_TRUE(outliers[0].unusable);
  EXPECT_EQ(outliers[0].value, 1);
}

TEST(FindOutliers, ThoseOfSeveralClassesAreNamedOnceTheFarthestFirst) {
  Table table = TableOf({0.001, 0.001, 0.001, 0.02, 0.3});
  Report older;
  for (uint32_t i = 0; i < 5; ++i) {
    older.engines.push_back(absl::StrCat("engine-", i));
    older.engine.push_back(CellOf(0, 100, i, 1, i == 4 ? -2 : -0.05, 2000));
  }
  table.Add(older, 1);
  EXPECT_EQ(Names(table), (Engines{"engine-4", "engine-3"}));
}

}  // namespace
}  // namespace forebay::drift
