// buffer-ctl verify, on directories that a daemon has left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/run_ctl.h"
#include "tests/integration/run_directory.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kRollouts = 4;

Said Verify(std::vector<std::string> words) {
  words.insert(words.begin(), "verify");
  return RunCtl(words);
}

// Every file with its bytes.
std::string Contents(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    // The lock's says who had it last.
    if (entry.is_regular_file() && entry.path().filename() != "lock") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::ostringstream all;
  for (const std::string& file : files) all << file << std::ifstream(file).rdbuf();
  return all.str();
}

fs::path FileOf(const fs::path& folder) {
  fs::path largest;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    if (largest.empty() || entry.file_size() > fs::file_size(largest)) largest = entry.path();
  }
  return largest;
}

void FlipByte(const fs::path& path, uint64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const auto was = static_cast<char>(file.get());
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(was ^ 0x10));
}

class VerifyTest : public ::testing::Test {
 protected:
  // A run with rollouts of one source, whose daemon was killed.
  void SetUp() override {
    world_ = std::make_unique<World>(directory_.Flags());
    world_->AddSource("math", 2, kRollouts / 2);
    auto actor = world_->OpenActor({.actor = "env", .sources = {"math"}, .slots = kRollouts});
    auto acquired = actor->Acquire(kRollouts, {.timeout = absl::Seconds(10) * Slowness()});
    ASSERT_TRUE(acquired.ok()) << acquired.status();
    ASSERT_EQ(acquired->assignments.size(), static_cast<size_t>(kRollouts));
    for (uint32_t i = 0; i < kRollouts; ++i) {
      OwnRollout own(2000, 1000 * i, i % 2);
      auto receipt = acquired->assignments[i].Push(own.rollout);
      ASSERT_TRUE(receipt.ok()) << receipt.status();
    }
    running_ = Verify({directory_.path()});
    world_->daemon.Kill();
  }

  RunDirectory directory_;
  std::unique_ptr<World> world_;
  Said running_;
};

TEST_F(VerifyTest, FindsEverythingAfterAKillAndChangesNothing) {
  EXPECT_EQ(running_.code, 1);
  EXPECT_THAT(running_.err, HasSubstr("is in use by process"));
  const std::string before = Contents(directory_.path());
  const Said said = Verify({directory_.path()});
  EXPECT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_THAT(said.out, AllOf(StartsWith("OK"), HasSubstr("shard-0"), HasSubstr("ledger"),
                              HasSubstr(absl::StrCat("payloads  ", kRollouts, " of ")),
                              HasSubstr(absl::StrCat("contents  ", kRollouts / 2, " of "))));
  EXPECT_EQ(Contents(directory_.path()), before);
  const Said json = Verify({directory_.path(), "-o", "json"});
  EXPECT_EQ(json.code, 0);
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"may_start\": true"),
                              HasSubstr(absl::StrCat("\"payloads\": ", kRollouts, ","))));
  world_->daemon.StartAgain();
}

TEST_F(VerifyTest, APayloadWithAFlippedBitIsNamedWithItsFile) {
  const fs::path segment = FileOf(fs::path(directory_.path()) / "segments");
  FlipByte(segment, 4096 + 4000);  // within the first one of that file
  const Said said = Verify({directory_.path()});
  EXPECT_EQ(said.code, 10) << said.out << said.err;
  EXPECT_THAT(said.out, AllOf(StartsWith("DAMAGED: 1 findings; a start goes on"),
                              HasSubstr(segment.filename().string()), HasSubstr("crc")));
  world_->daemon.StartAgain();
}

TEST_F(VerifyTest, ALogThatIsCorruptIsNamedWithItsOffset) {
  const fs::path log = FileOf(fs::path(directory_.path()) / "shard-0");
  FlipByte(log, 4096 + 60);  // in the first batch, which others follow
  const Said said = Verify({directory_.path()});
  EXPECT_EQ(said.code, 20) << said.out << said.err;
  EXPECT_THAT(said.out,
              AllOf(StartsWith("DAMAGED: 1 findings; a start is refused"), HasSubstr(log.string()),
                    HasSubstr("at offset 4096"), HasSubstr("bring this file back from a copy")));
}

TEST_F(VerifyTest, AMachineWhoseFolderIsGoneIsNamed) {
  fs::remove_all(fs::path(directory_.path()) / "ledger");
  const Said said = Verify({directory_.path()});
  EXPECT_EQ(said.code, 20) << said.out << said.err;
  EXPECT_THAT(said.out + said.err, HasSubstr("ledger"));
  EXPECT_FALSE(fs::exists(fs::path(directory_.path()) / "ledger"));
}

TEST(VerifyArgumentsTest, ADirectoryThatIsNoRunIsRefused) {
  const RunDirectory empty;
  const Said said = Verify({empty.path()});
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(said.err, AllOf(HasSubstr(empty.path() + "/run"), HasSubstr("ENOENT")));
  EXPECT_TRUE(fs::is_empty(empty.path())) << "not even a lock is left behind";
}

}  // namespace
}  // namespace forebay::integration
