// What the local coordinator keeps over starts, and what it says when its disk or its file is bad.
// What it promises as every coordinator is in tests/integration/coordinator_contract_test.cc.
#include "node/local_coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sync.h"
#include "io/disk.h"
#include "tests/unit/io/disk_kinds.h"

namespace forebay::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kPatience = absl::Seconds(30);

// A real disk of which single operations fail, or are held until they are let go.
class TroubledDisk final : public io::Disk {
 public:
  TroubledDisk() {
    std::string why;
    below_ = io::NewDisk({.allow_uring = false}, &why);
  }

  std::atomic<bool> fail_write{false}, fail_rename{false}, fail_sync_directory{false};
  void HoldSyncs() {
    MutexLock lock(&mutex_);
    holding_ = true;
  }
  void LetGo() {
    std::vector<std::pair<io::FileRef, Done>> held;
    {
      MutexLock lock(&mutex_);
      holding_ = false;
      held.swap(held_);
    }
    for (auto& [file, done] : held) below_->Sync(std::move(file), std::move(done));
  }

  std::string_view name() const override { return below_->name(); }
  io::DiskUse use() const override { return below_->use(); }
  void Write(io::FileRef file, uint64_t offset, std::vector<io::ConstBuffer> pieces,
             Done done) override {
    if (fail_write) return done(io::ErrnoStatus(ENOSPC, "write", file->path()));
    below_->Write(std::move(file), offset, std::move(pieces), std::move(done));
  }
  void WriteSynced(io::FileRef file, uint64_t offset, std::vector<io::ConstBuffer> pieces,
                   Done done) override {
    below_->WriteSynced(std::move(file), offset, std::move(pieces), std::move(done));
  }
  void ReadPieces(io::FileRef file, uint64_t offset, std::vector<absl::Span<char>> pieces,
                  DoneWith<size_t> done) override {
    below_->ReadPieces(std::move(file), offset, std::move(pieces), std::move(done));
  }
  void Sync(io::FileRef file, Done done) override {
    {
      MutexLock lock(&mutex_);
      if (holding_) return held_.emplace_back(std::move(file), std::move(done)), void();
    }
    below_->Sync(std::move(file), std::move(done));
  }
  void Allocate(io::FileRef file, uint64_t bytes, Done done) override {
    below_->Allocate(std::move(file), bytes, std::move(done));
  }
  void Truncate(io::FileRef file, uint64_t bytes, Done done) override {
    below_->Truncate(std::move(file), bytes, std::move(done));
  }
  void Open(std::string path, io::OpenOptions options, DoneWith<io::FileRef> done) override {
    below_->Open(std::move(path), options, std::move(done));
  }
  void Size(io::FileRef file, DoneWith<uint64_t> done) override {
    below_->Size(std::move(file), std::move(done));
  }
  void Rename(std::string from, std::string to, Done done) override {
    if (fail_rename) return done(io::ErrnoStatus(EIO, "rename", from));
    below_->Rename(std::move(from), std::move(to), std::move(done));
  }
  void Unlink(std::string path, Done done) override {
    below_->Unlink(std::move(path), std::move(done));
  }
  void MakeDirectory(std::string path, Done done) override {
    below_->MakeDirectory(std::move(path), std::move(done));
  }
  void SyncDirectory(std::string path, Done done) override {
    if (fail_sync_directory) return done(io::ErrnoStatus(EIO, "fsync", path));
    below_->SyncDirectory(std::move(path), std::move(done));
  }
  void List(std::string path, DoneWith<std::vector<io::Entry>> done) override {
    below_->List(std::move(path), std::move(done));
  }
  void SpaceOf(std::string path, DoneWith<io::Space> done) override {
    below_->SpaceOf(std::move(path), std::move(done));
  }

 private:
  std::unique_ptr<io::Disk> below_;
  Mutex mutex_;
  bool holding_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::pair<io::FileRef, Done>> held_ ABSL_GUARDED_BY(mutex_);
};

class LocalCoordinatorTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<LocalCoordinator>> Open() {
    return LocalCoordinator::Open(&disk_, folder_.path());
  }
  std::string FilePath() const { return absl::StrCat(folder_.path(), "/keys"); }
  std::string File() const {
    std::ifstream file(FilePath(), std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }
  void Overwrite(const std::string& bytes) const {
    std::ofstream(FilePath(), std::ios::binary | std::ios::trunc) << bytes;
  }
  static TransactionResult Put(Coordinator* of, const std::string& key, const std::string& value,
                               absl::Duration timeout = kPatience) {
    Notification told;
    TransactionResult answer;
    of->Commit({.conditions = {}, .changes = {{key, value}}}, timeout,
               [&](TransactionResult result) {
                 answer = std::move(result);
                 told.Notify();
               });
    EXPECT_TRUE(told.WaitFor(kPatience));
    return answer;
  }
  static absl::StatusOr<KeyState> All(Coordinator* of) {
    Notification told;
    absl::StatusOr<KeyState> answer = absl::UnknownError("");
    of->GetPrefix("", kPatience, [&](absl::StatusOr<KeyState> state) {
      answer = std::move(state);
      told.Notify();
    });
    EXPECT_TRUE(told.WaitFor(kPatience));
    return answer;
  }

  const io::ScratchFolder folder_;
  TroubledDisk disk_;
};

TEST_F(LocalCoordinatorTest, KeysAndRevisionsOutliveTheProcess) {
  uint64_t first = 0;
  {
    auto coordinator = Open();
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    first = Put(coordinator->get(), "a", "1").revision;
  }
  auto coordinator = Open();
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  const auto state = All(coordinator->get());
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->revision, first);
  EXPECT_THAT(state->entries, ElementsAre(KeyValue{"a", "1", first}));
  EXPECT_GT(Put(coordinator->get(), "a", "2").revision, first);
}

// As if the process had died: the presence's own end never comes to the file.
TEST_F(LocalCoordinatorTest, APresenceEndsWithItsProcess) {
  LocalKeys keys{.entries = {{"a", {"1", 2, 0}}, {"n", {"here", 3, 1}}}, .revision = 3};
  Overwrite(EncodeKeys(keys));
  auto coordinator = Open();
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  const auto state = All(coordinator->get());
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->revision, 4u);
  EXPECT_THAT(state->entries, ElementsAre(KeyValue{"a", "1", 2}));
}

TEST_F(LocalCoordinatorTest, TheFolderIsOfOneProcess) {
  auto first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = Open().status();
  EXPECT_TRUE(absl::IsUnavailable(second)) << second;
  EXPECT_THAT(std::string(second.message()), HasSubstr(folder_.path()));
}

TEST_F(LocalCoordinatorTest, AFolderThatWasTakenAwayIsWrittenNoMore) {
  auto coordinator = Open();
  std::filesystem::remove(absl::StrCat(folder_.path(), "/lock"));
  const auto result = Put(coordinator->get(), "a", "1");
  EXPECT_EQ(result.outcome, Outcome::kNotDone);
  EXPECT_TRUE(absl::IsDataLoss(result.why)) << result.why;
}

TEST_F(LocalCoordinatorTest, EveryDamageIsNamedAndNothingIsChanged) {
  Put(Open()->get(), "key", "value");
  const std::string good = File();
  std::vector<std::string> damaged;
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
    damaged.push_back(bytes);
    damaged.push_back(good.substr(0, at));
  }
  damaged.push_back(good + "x");
  for (const std::string& bytes : damaged) {
    Overwrite(bytes);
    const absl::Status status = Open().status();
    ASSERT_TRUE(absl::IsDataLoss(status) || absl::IsFailedPrecondition(status)) << status;
    ASSERT_THAT(std::string(status.message()), HasSubstr(FilePath()));
    ASSERT_EQ(File(), bytes);
  }
  Overwrite(good);
  EXPECT_TRUE(Open().ok());
}

// The checksum holds, so somebody wrote it so.
TEST_F(LocalCoordinatorTest, ARevisionThatCannotBeIsDamageToo) {
  EXPECT_TRUE(DecodeKeys(EncodeKeys({.entries = {{"a", {"1", 3, 0}}}, .revision = 3})).ok());
  for (const uint64_t revision : {0, 4}) {
    const auto keys =
        DecodeKeys(EncodeKeys({.entries = {{"a", {"1", revision, 0}}}, .revision = 3}));
    EXPECT_TRUE(absl::IsDataLoss(keys.status())) << keys.status();
  }
}

TEST_F(LocalCoordinatorTest, WhatACrashLeftAsideIsNoObstacle) {
  Put(Open()->get(), "a", "1");
  std::ofstream(FilePath() + ".tmp") << "half of some";
  auto coordinator = Open();
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  EXPECT_EQ(Put(coordinator->get(), "a", "2").outcome, Outcome::kDone);
}

TEST_F(LocalCoordinatorTest, AFailedWriteChangesNothingAndTheNextIsTried) {
  auto coordinator = Open();
  const auto before = Put(coordinator->get(), "a", "1");
  disk_.fail_write = true;
  const auto failed = Put(coordinator->get(), "a", "2");
  EXPECT_EQ(failed.outcome, Outcome::kNotDone);
  EXPECT_EQ(io::ErrorOf(failed.why), ENOSPC) << failed.why;
  EXPECT_THAT(All(coordinator->get())->entries, ElementsAre(KeyValue{"a", "1", before.revision}));
  EXPECT_TRUE((*coordinator)->Health().reachable);
  disk_.fail_write = false;
  EXPECT_EQ(Put(coordinator->get(), "a", "2").outcome, Outcome::kDone);
}

TEST_F(LocalCoordinatorTest, AFileOfWhichIsUnknownWhetherItWasReplacedEndsAllAnswers) {
  for (std::atomic<bool>* trouble : {&disk_.fail_rename, &disk_.fail_sync_directory}) {
    auto coordinator = Open();
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    *trouble = true;
    const auto unknown = Put(coordinator->get(), "a", "1");
    *trouble = false;
    EXPECT_EQ(unknown.outcome, Outcome::kUnknown);
    EXPECT_EQ(io::ErrorOf(unknown.why), EIO) << unknown.why;
    EXPECT_EQ(io::ErrorOf(All(coordinator->get()).status()), EIO);
    EXPECT_EQ(Put(coordinator->get(), "b", "1").outcome, Outcome::kNotDone);
    EXPECT_FALSE((*coordinator)->Health().reachable);
    coordinator->reset();
    // The next start knows.
    coordinator = Open();
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    EXPECT_TRUE(All(coordinator->get()).ok());
  }
}

TEST_F(LocalCoordinatorTest, AHungDiskKeepsNobodyBeyondTheDeadline) {
  auto coordinator = Open();
  disk_.HoldSyncs();
  const auto hung = Put(coordinator->get(), "a", "1", absl::Milliseconds(50));
  EXPECT_EQ(hung.outcome, Outcome::kUnknown);
  EXPECT_TRUE(absl::IsDeadlineExceeded(hung.why)) << hung.why;
  const auto behind = Put(coordinator->get(), "b", "1", absl::Milliseconds(50));
  EXPECT_EQ(behind.outcome, Outcome::kNotDone);
  EXPECT_THAT(All(coordinator->get())->entries, IsEmpty());
  disk_.LetGo();
  // What was unknown happens after all; what was said not to happen does not.
  const auto last = Put(coordinator->get(), "c", "1");
  const auto state = All(coordinator->get());
  ASSERT_EQ(state->entries.size(), 2u);
  EXPECT_EQ(state->entries[0].key, "a");
  EXPECT_EQ(state->entries[1], (KeyValue{"c", "1", last.revision}));
}

TEST_F(LocalCoordinatorTest, WhatIsWrittenWhenItIsClosedIsAnsweredWithWhatBecameOfIt) {
  auto coordinator = Open();
  disk_.HoldSyncs();
  std::vector<Outcome> outcomes(2, Outcome::kUnknown);
  for (size_t i = 0; i < 2; ++i) {
    (*coordinator)
        ->Commit({.conditions = {}, .changes = {{absl::StrCat("k", i), "1"}}}, kPatience,
                 [&outcomes, i](const TransactionResult& result) { outcomes[i] = result.outcome; });
  }
  // Answered on the loop after both of them came there.
  ASSERT_TRUE(All(coordinator->get()).ok());
  std::thread closing([&] { coordinator->reset(); });
  disk_.LetGo();
  closing.join();
  EXPECT_EQ(outcomes[0], Outcome::kDone);
  coordinator = Open();
  EXPECT_EQ(All(coordinator->get())->entries.size(), outcomes[1] == Outcome::kDone ? 2u : 1u);
}

TEST(CoordinatorFileTest, TheGoldenFileIsReadAndWritten) {
  const LocalKeys keys{.entries = {{"nodes/1", {"here", 7, 1}}, {"shards/0", {"epoch 1", 5, 0}}},
                       .revision = 7};
  std::ifstream file(FOREBAY_GOLDEN "/coordinator-1", std::ios::binary);
  std::ostringstream golden;
  golden << file.rdbuf();
  const std::string now = EncodeKeys(keys);
  const std::string path = ::testing::TempDir() + "coordinator-1";
  std::ofstream(path, std::ios::binary) << now;
  EXPECT_TRUE(now == golden.str())
      << "tests/golden/coordinator-1 differs from what is written now, " << path;
  const auto read = DecodeKeys(golden.str());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->revision, 7u);
  EXPECT_EQ(read->At("shards/0"), (KeyValue{"shards/0", "epoch 1", 5}));
  EXPECT_EQ(read->entries.at("nodes/1").presence, 1u);
}

}  // namespace
}  // namespace forebay::node
