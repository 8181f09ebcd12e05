#include "drift/reports.h"

#include <gtest/gtest.h>

#include "codec/archive.h"
#include "tests/unit/drift/make.h"

namespace forebay::drift {
namespace {

Report Tokens(int count) {
  Report report;
  report.engines = {"a"};
  report.engine = {CellOf(0, 100, 0, 0, 0.5, count)};
  return report;
}

TEST(Reports, CountAMicroBatchOnce) {
  Reports reports;
  EXPECT_TRUE(reports.Count(StepId(1), Revision(1), 0, 200, Tokens(10)));
  EXPECT_TRUE(reports.Count(StepId(1), Revision(1), 199, 200, Tokens(20)));
  EXPECT_FALSE(reports.Count(StepId(1), Revision(1), 0, 200, Tokens(10)));
  EXPECT_TRUE(reports.Counted(StepId(1), Revision(1), 199));
  EXPECT_FALSE(reports.Counted(StepId(1), Revision(1), 198));
  EXPECT_FALSE(reports.Counted(StepId(1), Revision(2), 199));
  EXPECT_FALSE(reports.Counted(StepId(2), Revision(1), 199));
  EXPECT_EQ(reports.Sum().All().tokens, 30);
  EXPECT_EQ(reports.reports(), 2u);
  EXPECT_EQ(reports.repeated(), 1u);
}

TEST(Reports, AreRememberedForAWhileAfterTheCommit) {
  Reports reports;
  ASSERT_TRUE(reports.Count(StepId(1), Revision(1), 5, 10, Tokens(10)));
  reports.Committed(StepId(1), Revision(1));
  EXPECT_TRUE(reports.Counted(StepId(1), Revision(1), 5));
  EXPECT_FALSE(reports.Count(StepId(1), Revision(1), 5, 10, Tokens(10)));
  EXPECT_EQ(reports.Sum().All().tokens, 10);
  reports.Committed(StepId(2), Revision(1));
  EXPECT_TRUE(reports.Counted(StepId(1), Revision(1), 5));
  reports.Committed(StepId(3), Revision(1));
  EXPECT_FALSE(reports.Counted(StepId(1), Revision(1), 5));
}

TEST(Reports, OfAnEndedRevisionDoNotCount) {
  Reports reports;
  ASSERT_TRUE(reports.Count(StepId(1), Revision(1), 0, 10, Tokens(10)));
  ASSERT_TRUE(reports.Count(StepId(1), Revision(2), 0, 20, Tokens(7)));
  EXPECT_EQ(reports.Sum().All().tokens, 7);
  reports.Committed(StepId(1), Revision(2));
  EXPECT_EQ(reports.Sum().All().tokens, 7);
  // Nothing was reported under the revision that was committed.
  ASSERT_TRUE(reports.Count(StepId(2), Revision(1), 0, 10, Tokens(10)));
  reports.Committed(StepId(2), Revision(2));
  EXPECT_EQ(reports.Sum().All().tokens, 7);
  EXPECT_EQ(reports.steps(), 1u);
}

TEST(Reports, OfStepsThatAreTakenBackDoNotCount) {
  Reports reports;
  ASSERT_TRUE(reports.Count(StepId(4), Revision(1), 0, 10, Tokens(1)));
  ASSERT_TRUE(reports.Count(StepId(5), Revision(1), 0, 10, Tokens(10)));
  reports.Drop(StepId(5));
  EXPECT_EQ(reports.Sum().All().tokens, 1);
  EXPECT_TRUE(reports.Count(StepId(5), Revision(1), 0, 10, Tokens(10)));
}

TEST(Reports, FadeWithEachStepThatWasReported) {
  Reports reports;
  for (uint64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(reports.Count(StepId(step), Revision(1), 0, 1, Tokens(100)));
    reports.Committed(StepId(step), Revision(1));
  }
  reports.Committed(StepId(4), Revision(1));  // its trainer does not report
  EXPECT_DOUBLE_EQ(reports.Sum().All().tokens, 100 * (1 + 0.9 + 0.81));
  EXPECT_EQ(reports.steps(), 3u);
}

TEST(Reports, AreTheSameAfterTheirBytes) {
  Reports reports;
  ASSERT_TRUE(reports.Count(StepId(1), Revision(1), 3, 10, Tokens(10)));
  reports.Committed(StepId(1), Revision(1));
  ASSERT_TRUE(reports.Count(StepId(2), Revision(4), 9, 10, Tokens(3)));
  Reports read;
  const std::string bytes = codec::Encode(reports);
  ASSERT_TRUE(codec::Decode(bytes, &read));
  EXPECT_EQ(codec::Encode(read), bytes);
  EXPECT_TRUE(read.Counted(StepId(1), Revision(1), 3));
  EXPECT_TRUE(read.Counted(StepId(2), Revision(4), 9));
  EXPECT_DOUBLE_EQ(read.Sum().All().tokens, 13);
  EXPECT_TRUE(read.Holds(2));
}

}  // namespace
}  // namespace forebay::drift
