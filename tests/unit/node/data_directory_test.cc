// Which run a directory is of, and what is refused.
#include "node/data_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "io/disk.h"
#include "tests/unit/io/disk_kinds.h"

namespace forebay::node {
namespace {

using ::testing::HasSubstr;

class DataDirectoryTest : public ::testing::Test {
 protected:
  DataDirectoryTest() {
    std::string why;
    disk_ = io::NewDisk({.allow_uring = false}, &why);
  }
  // Opened and closed again.
  absl::StatusOr<RunIdentity> Open(uint64_t shards = 2) {
    auto data = DataDirectory::Open(disk_.get(), folder_.path(), {.run = ++run_, .shards = shards});
    if (!data.ok()) return data.status();
    return data->identity();
  }
  std::string PathOf(const std::string& name) const {
    return absl::StrCat(folder_.path(), "/", name);
  }

  const io::ScratchFolder folder_;
  std::unique_ptr<io::Disk> disk_;
  uint64_t run_ = 6;
};

TEST_F(DataDirectoryTest, TheFirstStartNamesTheRunAndLaterOnesAreCounted) {
  auto first = Open(), second = Open();
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(first->run, 7u);
  EXPECT_EQ(second->run, 7u);
  EXPECT_EQ(first->incarnation, 1u);
  EXPECT_EQ(second->incarnation, 2u);
}

TEST_F(DataDirectoryTest, OtherShardsAreRefused) {
  ASSERT_TRUE(Open(2).ok());
  const absl::Status status = Open(4).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("shards: is 4"));
}

// With a new identity the old payloads would be taken for another run's.
TEST_F(DataDirectoryTest, ARunThatLostItsNameIsRefused) {
  for (const char* kept : {"ledger", "shard-0", "contents", "segments"}) {
    ASSERT_TRUE(std::filesystem::create_directory(PathOf(kept)));
    const absl::Status status = Open().status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(PathOf("run is missing")));
    EXPECT_THAT(std::string(status.message()), HasSubstr(PathOf(kept)));
    EXPECT_FALSE(std::filesystem::exists(PathOf("run")));
    std::filesystem::remove(PathOf(kept));
  }
}

TEST_F(DataDirectoryTest, AFolderBelongsToTheRunThatTookIt) {
  const RunIdentity one{.run = 0x11}, other{.run = 0x22};
  const std::string folder = PathOf("away");
  EXPECT_TRUE(CheckOwner(disk_.get(), folder, one).ok());  // it is not there
  std::filesystem::create_directory(folder);
  EXPECT_TRUE(CheckOwner(disk_.get(), folder, one).ok());
  ASSERT_TRUE(TakeFolder(disk_.get(), folder, one).ok());
  EXPECT_TRUE(TakeFolder(disk_.get(), folder, one).ok());
  EXPECT_TRUE(CheckOwner(disk_.get(), folder, one).ok());
  const absl::Status refused = TakeFolder(disk_.get(), folder, other);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(),
              HasSubstr("run 0000000000000011, and this is run 0000000000000022"));
  EXPECT_EQ(CheckOwner(disk_.get(), folder, other), refused);
}

TEST_F(DataDirectoryTest, FilesOfOthersAreNoHindrance) {
  ASSERT_TRUE(std::filesystem::create_directory(PathOf("lost+found")));
  EXPECT_TRUE(Open().ok());
}

}  // namespace
}  // namespace forebay::node
