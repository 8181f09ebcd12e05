// What a crash leaves of a memory volume: at least what was promised, and sooner or later
// everything that was not.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/io/disk_kinds.h"

namespace forebay::io {
namespace {

constexpr uint64_t kSeeds = 300;
constexpr size_t kSector = MemoryVolume::kSector;

class PowerLossTest : public DiskTest<MemoryKind> {
 protected:
  MemoryDisk& memory() { return static_cast<MemoryDisk&>(disk()); }

  // A file with its name and 8 sectors of 'a' durable, from where the record begins.
  FileRef CreateDurable(const std::string& name) {
    const FileRef file = Create(name);
    EXPECT_TRUE(Write(file, 0, std::string(8 * kSector, 'a')).ok());
    EXPECT_TRUE(Sync(file).ok());
    EXPECT_TRUE(SyncDirectory(kind_.path()).ok());
    kind_.volume->Record();
    return file;
  }
  // What is found under the name after a power loss now, or after so many events.
  std::optional<std::string> After(const std::string& name, uint64_t seed) {
    return After(name, seed, kind_.volume->events());
  }
  std::optional<std::string> After(const std::string& name, uint64_t seed, uint64_t events) {
    const auto left = kind_.volume->AfterPowerLoss(events, seed);
    const auto inode = left->Find(In(name));
    if (!inode.has_value()) return std::nullopt;
    return left->contents(*inode);
  }
  std::set<std::optional<std::string>> AllAfter(const std::string& name) {
    std::set<std::optional<std::string>> all;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) all.insert(After(name, seed));
    return all;
  }
};

TEST_F(PowerLossTest, WhatIsSyncedStays) {
  const FileRef file = CreateDurable("a");
  ASSERT_TRUE(Write(file, kSector, std::string(kSector, 'b')).ok());
  ASSERT_TRUE(Sync(file).ok());
  const std::string expected = *Read(file, 0, 100'000);
  EXPECT_EQ(AllAfter("a"), (std::set<std::optional<std::string>>{expected}));
}

TEST_F(PowerLossTest, AWriteThatSyncsItselfStaysAndSyncsNoOther) {
  const FileRef file = CreateDurable("a");
  ASSERT_TRUE(Write(file, 0, std::string(kSector, 'b')).ok());
  ASSERT_TRUE(WriteSynced(file, kSector, std::string(kSector, 'c')).ok());
  std::set<std::string> begins;
  for (const auto& left : AllAfter("a")) begins.insert({(*left)[0], (*left)[kSector]});
  EXPECT_EQ(begins, (std::set<std::string>{"ac", "bc"}));
}

TEST_F(PowerLossTest, AWriteWhoseSyncFailedIsThereOrNot) {
  const FileRef file = CreateDurable("a");
  memory().Inject({.operation = MemoryOperation::kSync});
  EXPECT_EQ(ErrorOf(WriteSynced(file, 0, std::string(kSector, 'b'))), EIO);
  std::set<char> firsts;
  for (const auto& left : AllAfter("a")) firsts.insert((*left)[0]);
  EXPECT_EQ(firsts.size(), 1u);  // decided at the failure, and for good
  ASSERT_TRUE(Sync(file).ok());
  std::set<char> after;
  for (const auto& left : AllAfter("a")) after.insert((*left)[0]);
  EXPECT_EQ(after, firsts);
}

TEST_F(PowerLossTest, WhatIsNotSyncedIsThereLostOrTornAtSectors) {
  const FileRef file = CreateDurable("a");
  ASSERT_TRUE(Write(file, 2 * kSector, std::string(4 * kSector, 'b')).ok());
  std::set<std::string> middles;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::string left = *After("a", seed);
    ASSERT_EQ(left.size(), 8 * kSector);
    EXPECT_EQ(left.substr(0, 2 * kSector), std::string(2 * kSector, 'a'));
    EXPECT_EQ(left.substr(6 * kSector), std::string(2 * kSector, 'a'));
    std::string middle;
    for (size_t sector = 2; sector < 6; ++sector) middle += left[sector * kSector];
    middles.insert(middle);
  }
  EXPECT_TRUE(middles.contains("aaaa"));
  EXPECT_TRUE(middles.contains("bbbb"));
  EXPECT_TRUE(middles.contains("bbaa"));  // a prefix
  EXPECT_TRUE(middles.contains("abab"));  // sectors in any order
}

TEST_F(PowerLossTest, LaterWritesMaySurviveEarlierOnes) {
  const FileRef file = CreateDurable("a");
  ASSERT_TRUE(Write(file, 0, std::string(kSector, 'b')).ok());
  ASSERT_TRUE(Write(file, kSector, std::string(kSector, 'c')).ok());
  std::set<std::string> begins;
  for (const auto& left : AllAfter("a")) begins.insert({(*left)[0], (*left)[kSector]});
  EXPECT_EQ(begins, (std::set<std::string>{"aa", "ba", "ac", "bc"}));
}

TEST_F(PowerLossTest, AWriteThatWasNeverAnsweredMayBeThere) {
  const FileRef file = CreateDurable("a");
  const std::string bytes(kSector, 'b');
  memory().Write(file, 0, {{bytes.data(), bytes.size()}}, [](absl::Status) {});
  std::set<char> firsts;
  for (const auto& left : AllAfter("a")) firsts.insert((*left)[0]);
  EXPECT_EQ(firsts, (std::set<char>{'a', 'b'}));
  kind_.time.RunAll();
}

TEST_F(PowerLossTest, ASyncCoversOnlyWhatWasCompletedBeforeIt) {
  const FileRef file = CreateDurable("a");
  const std::string bytes(kSector, 'b');
  Answers both;
  int left = 2;
  const auto done = [&](absl::Status) {
    if (--left == 0) both.Count();
  };
  memory().Write(file, 0, {{bytes.data(), bytes.size()}}, done);
  memory().Sync(file, done);
  kind_.Pump(both);
  EXPECT_TRUE(AllAfter("a").contains(std::string(8 * kSector, 'a')));
  EXPECT_TRUE(AllAfter("a").contains(*Read(file, 0, 100'000)));
}

TEST_F(PowerLossTest, AFileMayHaveGrownWithoutItsData) {
  const FileRef file = CreateDurable("a");
  ASSERT_TRUE(Write(file, 8 * kSector, std::string(2 * kSector, 'b')).ok());
  std::set<size_t> sizes;
  bool zeros = false, rubbish = false;
  for (const auto& left : AllAfter("a")) {
    sizes.insert(left->size());
    EXPECT_LE(left->size(), 10 * kSector);
    EXPECT_EQ(left->substr(0, 8 * kSector), std::string(8 * kSector, 'a'));
    for (const char byte : left->substr(8 * kSector)) {
      zeros = zeros || byte == '\0';
      rubbish = rubbish || (byte != '\0' && byte != 'b');
    }
  }
  EXPECT_TRUE(sizes.contains(8 * kSector));
  EXPECT_TRUE(sizes.contains(10 * kSector));
  EXPECT_TRUE(zeros);
  EXPECT_TRUE(rubbish);
}

TEST_F(PowerLossTest, ATruncationIsThereOrNotAndWritesOnBothSidesOfItKeepTheirPlace) {
  const FileRef file = CreateDurable("a");
  ASSERT_TRUE(Truncate(file, 3 * kSector).ok());
  EXPECT_EQ(AllAfter("a"), (std::set<std::optional<std::string>>{std::string(8 * kSector, 'a'),
                                                                 std::string(3 * kSector, 'a')}));
  ASSERT_TRUE(Sync(file).ok());
  EXPECT_EQ(AllAfter("a"), (std::set<std::optional<std::string>>{std::string(3 * kSector, 'a')}));
}

TEST_F(PowerLossTest, AFailedSyncIsNotRepairedByALaterOne) {
  const FileRef file = CreateDurable("a");
  ASSERT_TRUE(Write(file, 0, std::string(kSector, 'b')).ok());
  std::set<char> firsts;
  for (int round = 0; round < 50; ++round) {
    const char letter = static_cast<char>('b' + round % 20);
    ASSERT_TRUE(Write(file, 0, std::string(kSector, letter)).ok());
    memory().Inject({.operation = MemoryOperation::kSync});
    EXPECT_EQ(ErrorOf(Sync(file)), EIO);
    EXPECT_TRUE(Sync(file).ok());
    EXPECT_EQ(*Read(file, 0, 1), std::string(1, letter));  // from the cache
    firsts.insert(After("a", 0)->front() == letter ? '=' : '!');
    EXPECT_EQ(AllAfter("a").size(), 1u);  // decided
  }
  EXPECT_EQ(firsts, (std::set<char>{'=', '!'}));
}

TEST_F(PowerLossTest, ANameIsThereForCertainOnceItsDirectoryIsSynced) {
  CreateDurable("a");
  const FileRef young = Create("young");
  ASSERT_TRUE(Write(young, 0, "text").ok());
  ASSERT_TRUE(Sync(young).ok());
  EXPECT_EQ(AllAfter("young"), (std::set<std::optional<std::string>>{std::nullopt, "text"}));
  ASSERT_TRUE(SyncDirectory(kind_.path()).ok());
  EXPECT_EQ(AllAfter("young"), (std::set<std::optional<std::string>>{"text"}));
  ASSERT_TRUE(Unlink("young").ok());
  EXPECT_EQ(AllAfter("young"), (std::set<std::optional<std::string>>{std::nullopt, "text"}));
  ASSERT_TRUE(SyncDirectory(kind_.path()).ok());
  EXPECT_EQ(AllAfter("young"), (std::set<std::optional<std::string>>{std::nullopt}));
}

TEST_F(PowerLossTest, ARenameHappensWhollyOrNotAtAll) {
  CreateDurable("a");
  ASSERT_TRUE(MakeDirectory(In("folder")).ok());
  ASSERT_TRUE(Rename("a", "folder/b").ok());
  bool before = false, after = false;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const bool old_name = After("a", seed).has_value();
    const bool new_name = After("folder/b", seed).has_value();
    EXPECT_NE(old_name, new_name);
    before = before || old_name;
    after = after || new_name;
  }
  EXPECT_TRUE(before && after);
}

TEST_F(PowerLossTest, TheDiskLosesPowerAsTheRecordSays) {
  const FileRef file = CreateDurable("a");
  ASSERT_TRUE(Write(file, 0, std::string(kSector, 'b')).ok());
  memory().Crash(MemoryDisk::CrashKind::kPower);
  kind_.disk = kind_.New();
  const FileRef again = *Open(In("a"), OpenMode::kWrite);
  const std::string left = *Read(again, 0, 100'000);
  EXPECT_TRUE(AllAfter("a").contains(left));
  EXPECT_EQ(AllAfter("a").size(), 1u);  // what is left is durable
}

TEST_F(PowerLossTest, ARecordBeginsAnewAndWhatIsFoundCanBeUsed) {
  const FileRef file = CreateDurable("a");
  ASSERT_TRUE(Write(file, 0, std::string(kSector, 'b')).ok());
  ASSERT_TRUE(Sync(file).ok());
  EXPECT_GT(kind_.volume->events(), 0u);
  kind_.volume->Record();
  EXPECT_EQ(kind_.volume->events(), 0u);
  EXPECT_EQ(After("a", 1), *Read(file, 0, 100'000));
  kind_.volume = kind_.volume->AfterPowerLoss(0, 1);
  EXPECT_EQ(kind_.volume->events(), 0u);
  kind_.disk = kind_.New();
  const FileRef again = *Open(In("a"), OpenMode::kWrite);
  ASSERT_TRUE(Write(again, 0, std::string(kSector, 'c')).ok());
  EXPECT_EQ(*Read(again, 0, 1), "c");
}

TEST_F(PowerLossTest, AKilledProcessLosesNothingThatWasAnswered) {
  std::set<size_t> sizes;
  for (int i = 0; i < 40; ++i) {
    const std::string name = std::to_string(i);
    const FileRef file = Create(name);
    ASSERT_TRUE(Write(file, 0, std::string(100, 'a')).ok());
    const std::string rest(100, 'b');
    memory().Write(file, 100, {{rest.data(), rest.size()}}, [](absl::Status) { FAIL(); });
    memory().Rename(In(name), In(name + "-new"), [](absl::Status) { FAIL(); });
    memory().Crash(MemoryDisk::CrashKind::kProcess);
    kind_.disk = std::make_unique<MemoryDisk>(kind_.volume, kind_.time.time(),
                                              MemoryDiskOptions{.seed = uint64_t(i)});
    const bool renamed = kind_.volume->Find(In(name + "-new")).has_value();
    EXPECT_NE(renamed, kind_.volume->Find(In(name)).has_value());
    const std::string left =
        *Read(*Open(In(renamed ? name + "-new" : name), OpenMode::kRead), 0, 1'000);
    EXPECT_EQ(left, (std::string(100, 'a') + rest).substr(0, left.size()));
    EXPECT_GE(left.size(), 100u);
    sizes.insert(left.size());
  }
  EXPECT_TRUE(sizes.contains(200));
  EXPECT_GT(sizes.size(), 5u);
}

TEST_F(PowerLossTest, AHostsPowerLossTakesNothingOfAnother) {
  MemoryDisk other(kind_.volume, kind_.time.time(), {.host = 9});
  FileRef file;
  other.Open(In("other"), {.mode = OpenMode::kCreate}, [&](auto opened) { file = *opened; });
  kind_.time.RunAll();
  other.Write(file, 0, {{"text", 4}}, [](absl::Status) {});
  kind_.time.RunAll();
  Create("mine");
  memory().Crash(MemoryDisk::CrashKind::kPower);
  const auto inode = kind_.volume->Find(In("other"));
  ASSERT_TRUE(inode.has_value());
  EXPECT_EQ(kind_.volume->contents(*inode), "text");
}

// --- programs that write right, and such that do not ---

// Replaces the file "state" by a new one, time and again.
class ReplaceTest : public PowerLossTest {
 protected:
  static std::string Version(int number) {
    return std::string(3 * kSector, static_cast<char>('a' + number));
  }
  struct Leave {
    bool sync = false, directory = false;  // leave out
  };
  // True if at every moment the file has the last version that was acknowledged, or a later one.
  bool HoldsAtEveryMoment(Leave leave) {
    FileRef file = Create("state");
    EXPECT_TRUE(Write(file, 0, Version(0)).ok());
    EXPECT_TRUE(Sync(file).ok());
    EXPECT_TRUE(SyncDirectory(kind_.path()).ok());
    kind_.volume->Record();
    std::vector<uint64_t> acknowledged{0};  // events by version
    for (int number = 1; number < 6; ++number) {
      file = Create("new");
      EXPECT_TRUE(Write(file, 0, Version(number)).ok());
      if (!leave.sync) {
        EXPECT_TRUE(Sync(file).ok());
      }
      EXPECT_TRUE(Rename("new", "state").ok());
      if (!leave.directory) {
        EXPECT_TRUE(SyncDirectory(kind_.path()).ok());
      }
      acknowledged.push_back(kind_.volume->events());
    }
    for (uint64_t events = 0; events <= kind_.volume->events(); ++events) {
      const auto version = std::upper_bound(acknowledged.begin(), acknowledged.end(), events);
      const auto least = static_cast<int>(version - acknowledged.begin()) - 1;
      for (uint64_t seed = 0; seed < 30; ++seed) {
        const auto left = After("state", seed, events);
        if (!left.has_value()) return false;
        bool found = false;
        for (int number = least; number < 6; ++number) found = found || *left == Version(number);
        if (!found) return false;
      }
    }
    return true;
  }
};

TEST_F(ReplaceTest, SyncedReplacementHoldsAtEveryMoment) { EXPECT_TRUE(HoldsAtEveryMoment({})); }

TEST_F(ReplaceTest, WithoutTheSyncOfTheFileItDoesNot) {
  EXPECT_FALSE(HoldsAtEveryMoment({.sync = true}));
}

TEST_F(ReplaceTest, WithoutTheSyncOfTheDirectoryItDoesNot) {
  EXPECT_FALSE(HoldsAtEveryMoment({.directory = true}));
}

}  // namespace
}  // namespace forebay::io
