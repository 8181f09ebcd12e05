#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/limits.h"
#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint8_t kF32 = 11;

class Columns : public ::testing::Test {
 protected:
  Columns() {
    h.PutTrainSource();
    h.Attach();
    FOREBAY_CHECK(h.OpenFilled(1, h.Spec(2)).ok());
    tokens = View().tokens;
  }
  MicroBatchView View() { return *h.state.ViewMicroBatch(StepId(1), Revision(1), {}); }
  WrittenColumn Column(const std::string& name, uint64_t payload) {
    return {name, kF32, {}, PayloadId(payload), tokens * 4};
  }
  absl::Status Put(std::vector<WrittenColumn> columns, MicroBatchRef ref = {},
                   uint32_t revision = 1) {
    return h.Run(PutColumns{h.generation, StepId(1), Revision(revision), ref, columns});
  }
  Harness h;
  uint64_t tokens = 0;
};

TEST_F(Columns, AreFetchedWithTheirMicroBatchOnly) {
  ASSERT_TRUE(Put({Column("values", 2), Column("old_logprobs", 1)}).ok());
  const MicroBatchView view = View();
  ASSERT_EQ(view.written.size(), 2);
  EXPECT_EQ(view.written[0].name, "old_logprobs");
  EXPECT_EQ(view.written[1].payload, PayloadId(2));
  EXPECT_THAT(h.state.ViewMicroBatch(StepId(1), Revision(1), {1, 0, 0})->written, IsEmpty());
}

TEST_F(Columns, OfTheSameNameReplaceTheEarlierBytes) {
  ASSERT_TRUE(Put({Column("values", 1)}).ok());
  ASSERT_TRUE(Put({Column("values", 2)}).ok());
  ASSERT_EQ(View().written.size(), 1);
  EXPECT_EQ(View().written[0].payload, PayloadId(2));
  EXPECT_THAT(h.dead, ElementsAre(PayloadId(1)));
  ASSERT_TRUE(Put({Column("values", 2)}).ok());
  EXPECT_THAT(h.dead, ElementsAre(PayloadId(1))) << "a repeated call must not free its own bytes";
}

TEST_F(Columns, DieWithTheCommit) {
  ASSERT_TRUE(Put({Column("values", 1)}).ok());
  ASSERT_TRUE(h.Commit(1).status.ok());
  EXPECT_THAT(h.dead, ElementsAre(PayloadId(1)));
}

TEST_F(Columns, DieWithTheAbort) {
  ASSERT_TRUE(Put({Column("values", 1)}).ok());
  ASSERT_TRUE(h.Run(AbortStep{h.generation, StepId(1), ""}).ok());
  EXPECT_THAT(h.dead, ElementsAre(PayloadId(1)));
}

TEST_F(Columns, HaveInnerDimensions) {
  WrittenColumn column = Column("hidden", 1);
  column.inner = {3, 2};
  EXPECT_THAT(Put({column}).message(), HasSubstr("columns.hidden.bytes"));
  column.bytes = tokens * 4 * 6;
  EXPECT_TRUE(Put({column}).ok());
}

TEST_F(Columns, BadOnesAreRefusedByNameAndChangeNothing) {
  ASSERT_TRUE(Put({Column("values", 1)}).ok());
  const uint64_t before = h.state.Hash();
  EXPECT_THAT(Put({Column("tokens", 1)}).message(), HasSubstr("tokens belongs to the rollout"));
  EXPECT_THAT(Put({Column("multimodal.image", 1)}).message(), HasSubstr("belongs to the rollout"));
  EXPECT_THAT(Put({Column("", 1)}).message(), HasSubstr("a name of 0 bytes"));
  EXPECT_THAT(Put({Column(std::string(65, 'x'), 1)}).message(), HasSubstr("a name of 65 bytes"));
  EXPECT_THAT(Put({Column("a", 1), Column("a", 2)}).message(), HasSubstr("a twice"));
  EXPECT_THAT(Put({Column("values", 1), Column("values", 2)}).message(), HasSubstr("twice"));
  EXPECT_THAT(Put({Column("a", 0)}).message(), HasSubstr("nowhere"));
  EXPECT_THAT(Put({}).message(), HasSubstr("columns: 0"));
  WrittenColumn column = Column("a", 1);
  column.dtype = 14;
  EXPECT_THAT(Put({column}).message(), HasSubstr("columns.a.dtype: 14, from 1 to 13"));
  column = Column("a", 1);
  column.bytes += 1;
  EXPECT_THAT(Put({column}).message(), HasSubstr("columns.a.bytes"));
  column.inner = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
  EXPECT_EQ(Put({column}).code(), absl::StatusCode::kInvalidArgument);
  column.inner = {0};
  EXPECT_THAT(Put({column}).message(), HasSubstr("0 is no dimension"));
  EXPECT_THAT(Put({Column("a", 1)}, {7, 0, 0}).message(), HasSubstr("dp_rank: 7, less than 2"));
  EXPECT_EQ(Put({Column("a", 1)}, {}, 2).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(h.state.Hash(), before);
  EXPECT_THAT(h.dead, IsEmpty());
}

TEST_F(Columns, AreBounded) {
  std::vector<WrittenColumn> columns;
  for (size_t i = 0; i < kWrittenColumnsMax; ++i)
    columns.push_back(Column("c" + std::to_string(i), 1));
  ASSERT_TRUE(Put(columns).ok());
  EXPECT_THAT(Put({Column("one_more", 1)}).message(), HasSubstr("from 1 to 32"));
  EXPECT_TRUE(Put({Column("c3", 1)}).ok());
}

TEST_F(Columns, OfAnUnsealedStepAreRefused) {
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(2), h.Spec(2)}).ok());
  EXPECT_THAT(
      h.Run(PutColumns{h.generation, StepId(2), Revision(1), {}, {Column("a", 1)}}).message(),
      HasSubstr("step: 2 is not sealed"));
}

}  // namespace
}  // namespace forebay::ledger
