// That the invariants of the store's files notice what breaks them: facts told to them one by one.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "storage/segment_format.h"
#include "tests/simulation/invariants/invariant.h"

namespace forebay::simulation {
namespace {

using io::MemoryAccess;
using io::MemoryOperation;
using io::OpenMode;

std::string Path(uint64_t process, uint32_t number) {
  return "/store/" + storage::FileNameOf(
                         {.node = "node", .epoch = 0, .incarnation = process, .number = number});
}

MemoryAccess Open(std::string path, OpenMode mode) {
  return {.operation = MemoryOperation::kOpen, .mode = mode, .path = std::move(path)};
}

MemoryAccess Does(MemoryOperation operation, std::string path) {
  return {.operation = operation, .path = std::move(path)};
}

class StoreInvariants : public testing::Test {
 protected:
  // The invariant that noticed something, by its number; "" if none did.
  std::string Noticed() const {
    const auto& violation = checker_.violation();
    return violation ? violation->invariant.substr(0, violation->invariant.find(' ')) : "";
  }

  const HistoryOptions options_;
  Stats stats_;
  Checker checker_{options_, &stats_};
};

TEST_F(StoreInvariants, LetsASegmentBeWrittenByWhoCreatedItAndReadByAll) {
  checker_.OnStoreAccess(1, Open(Path(1, 1), OpenMode::kCreate));
  checker_.OnStoreAccess(1, Does(MemoryOperation::kAllocate, Path(1, 1)));
  checker_.OnStoreAccess(1, Does(MemoryOperation::kWrite, Path(1, 1)));
  checker_.OnStoreAccess(1, Open(Path(1, 1), OpenMode::kRead));
  checker_.OnStoreAccess(2, Open(Path(1, 1), OpenMode::kRead));
  checker_.OnStoreAccess(2, Open(Path(2, 2), OpenMode::kCreate));
  checker_.OnStoreAccess(2, Does(MemoryOperation::kUnlink, Path(1, 1)));
  EXPECT_EQ(Noticed(), "");
}

TEST_F(StoreInvariants, NoticesASegmentThatIsWrittenByAnotherProcess) {
  for (const MemoryOperation operation :
       {MemoryOperation::kWrite, MemoryOperation::kAllocate, MemoryOperation::kTruncate}) {
    Checker checker(options_, &stats_);
    checker.OnStoreAccess(1, Open(Path(1, 1), OpenMode::kCreate));
    ASSERT_FALSE(checker.violation());
    checker.OnStoreAccess(2, Does(operation, Path(1, 1)));
    ASSERT_TRUE(checker.violation());
    EXPECT_EQ(checker.violation()->invariant, "8 a segment has one writer");
  }
}

TEST_F(StoreInvariants, NoticesASegmentThatIsOpenedAgainForWriting) {
  checker_.OnStoreAccess(1, Open(Path(1, 1), OpenMode::kCreate));
  checker_.OnStoreAccess(1, Open(Path(1, 1), OpenMode::kWrite));
  EXPECT_EQ(Noticed(), "8");
}

TEST_F(StoreInvariants, NoticesANameThatIsGivenTwice) {
  checker_.OnStoreAccess(1, Open(Path(1, 1), OpenMode::kCreate));
  checker_.OnStoreAccess(1, Does(MemoryOperation::kUnlink, Path(1, 1)));
  EXPECT_EQ(Noticed(), "");
  checker_.OnStoreAccess(1, Open(Path(1, 1), OpenMode::kCreate));
  EXPECT_EQ(Noticed(), "8");
}

TEST_F(StoreInvariants, NoticesAnotherProcessesName) {
  checker_.OnStoreAccess(2, Open(Path(1, 2), OpenMode::kCreate));
  EXPECT_EQ(Noticed(), "8");
}

TEST_F(StoreInvariants, NoticesASegmentThatIsRenamed) {
  checker_.OnStoreAccess(1, Open(Path(1, 1), OpenMode::kCreate));
  checker_.OnStoreAccess(
      1, {.operation = MemoryOperation::kRename, .path = Path(1, 1), .to = "/store/elsewhere"});
  EXPECT_EQ(Noticed(), "8");
}

TEST_F(StoreInvariants, LetsOtherFilesOfTheFolderBe) {
  checker_.OnStoreAccess(1, Open("/store/RUN", OpenMode::kCreate));
  checker_.OnStoreAccess(2, Open("/store/RUN", OpenMode::kWrite));
  checker_.OnStoreAccess(2, Does(MemoryOperation::kWrite, "/store/RUN"));
  EXPECT_EQ(Noticed(), "");
}

TEST_F(StoreInvariants, NoticesASegmentThatIsUnlinkedWithALivingPayload) {
  checker_.OnPayloadStored(PayloadId(1), {Path(1, 1)});
  checker_.OnPayloadStored(PayloadId(2), {Path(1, 1)});
  checker_.OnPayloadDead(PayloadId(1));
  checker_.OnStoreAccess(1, Does(MemoryOperation::kUnlink, Path(1, 2)));
  EXPECT_EQ(Noticed(), "");
  checker_.OnStoreAccess(1, Does(MemoryOperation::kUnlink, Path(1, 1)));
  EXPECT_EQ(Noticed(), "10");
}

TEST_F(StoreInvariants, NoticesASegmentThatIsUnlinkedWithTheColdPartOfALivingPayload) {
  checker_.OnPayloadStored(PayloadId(1), {Path(1, 1), Path(1, 2)});
  checker_.OnStoreAccess(2, Does(MemoryOperation::kUnlink, Path(1, 2)));
  EXPECT_EQ(Noticed(), "10");
}

TEST_F(StoreInvariants, LetsASegmentBeUnlinkedWhenAllInItIsDead) {
  checker_.OnPayloadStored(PayloadId(1), {Path(1, 1), Path(1, 2)});
  checker_.OnPayloadStored(PayloadId(2), {Path(1, 1)});
  checker_.OnPayloadDead(PayloadId(2));
  checker_.OnPayloadDead(PayloadId(1));
  checker_.OnStoreAccess(1, Does(MemoryOperation::kUnlink, Path(1, 2)));
  checker_.OnStoreAccess(2, Does(MemoryOperation::kUnlink, Path(1, 1)));
  EXPECT_EQ(Noticed(), "");
}

}  // namespace
}  // namespace forebay::simulation
