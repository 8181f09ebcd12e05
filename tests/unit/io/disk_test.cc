// What every disk does alike: one suite over all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/prng.h"
#include "tests/unit/io/disk_kinds.h"

namespace forebay::io {
namespace {

using Kinds = testing::Types<PoolKind, UringKind, MemoryKind>;
TYPED_TEST_SUITE(DiskTest, Kinds);

std::string RandomBytes(Prng& prng, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(prng.Next());
  return bytes;
}

TYPED_TEST(DiskTest, GivesBackWhatWasWritten) {
  Prng prng(1);
  const FileRef file = this->Create("a");
  const std::string bytes = RandomBytes(prng, 300'000);
  ASSERT_TRUE(this->Write(file, 5, bytes).ok());
  EXPECT_EQ(*this->Read(file, 5, bytes.size()), bytes);
  EXPECT_EQ(*this->Read(file, 0, 5), std::string(5, '\0'));
  EXPECT_EQ(*this->Size(file), bytes.size() + 5);
  EXPECT_EQ(file->path(), this->In("a"));
  EXPECT_FALSE(file->direct());
}

TYPED_TEST(DiskTest, WritesPiecesOneAfterAnother) {
  const FileRef file = this->Create("a");
  std::vector<std::string> texts;
  std::vector<ConstBuffer> pieces;
  std::string whole;
  for (size_t i = 0; i < Disk::kPiecesMax; ++i) texts.push_back(std::string(i % 7, 'a' + i % 26));
  for (const std::string& text : texts) {
    pieces.push_back({text.data(), text.size()});
    whole += text;
  }
  ASSERT_TRUE(this->WritePieces(file, 100, pieces).ok());
  EXPECT_EQ(*this->Read(file, 100, whole.size() + 10), whole);
  pieces.push_back({"x", 1});
  const absl::Status refused = this->WritePieces(file, 0, pieces);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf(refused), EINVAL);
}

TYPED_TEST(DiskTest, ReadsIntoPiecesOneAfterAnother) {
  Prng prng(1);
  const FileRef file = this->Create("a");
  const std::string bytes = RandomBytes(prng, 10'000);
  ASSERT_TRUE(this->Write(file, 0, bytes).ok());
  std::vector<std::string> parts;
  for (size_t i = 0; i < Disk::kPiecesMax; ++i) parts.emplace_back(i % 7 * 10, '\0');
  std::vector<absl::Span<char>> pieces;
  for (std::string& part : parts) pieces.push_back(absl::MakeSpan(part));
  const auto whole = [&parts] { return absl::StrJoin(parts, ""); };
  EXPECT_EQ(*this->ReadPieces(file, 100, pieces), whole().size());
  EXPECT_EQ(whole(), bytes.substr(100, whole().size()));
  // What lies beyond the file's end stays as it is.
  EXPECT_EQ(*this->ReadPieces(file, 9'985, pieces), 15u);
  EXPECT_EQ(whole().substr(0, 15), bytes.substr(9'985));
  EXPECT_EQ(whole().substr(15), bytes.substr(115, whole().size() - 15));
  pieces.push_back({});
  EXPECT_EQ(ErrorOf(this->ReadPieces(file, 0, pieces).status()), EINVAL);
}

TYPED_TEST(DiskTest, AReadEndsAtTheFilesEnd) {
  const FileRef file = this->Create("a");
  EXPECT_EQ(*this->Read(file, 0, 10), "");
  ASSERT_TRUE(this->Write(file, 0, "0123456789").ok());
  EXPECT_EQ(*this->Read(file, 4, 100), "456789");
  EXPECT_EQ(*this->Read(file, 10, 100), "");
  EXPECT_EQ(*this->Read(file, 1'000'000, 100), "");
  EXPECT_EQ(*this->Read(file, 0, 0), "");
}

TYPED_TEST(DiskTest, AnEmptyWriteIsWellAndChangesNothing) {
  const FileRef file = this->Create("a");
  EXPECT_TRUE(this->Write(file, 500, "").ok());
  EXPECT_TRUE(this->WritePieces(file, 500, {}).ok());
  EXPECT_EQ(*this->Size(file), 0u);
}

TYPED_TEST(DiskTest, RefusesOffsetsThatNoFileHas) {
  const FileRef file = this->Create("a");
  EXPECT_EQ(ErrorOf(this->Write(file, UINT64_MAX - 1, "ab")), EINVAL);
  EXPECT_EQ(ErrorOf(this->Read(file, UINT64_MAX, 2).status()), EINVAL);
  EXPECT_EQ(ErrorOf(this->Truncate(file, UINT64_MAX)), EINVAL);
  EXPECT_EQ(ErrorOf(this->Allocate(file, UINT64_MAX)), EINVAL);
  EXPECT_EQ(this->disk().use().errors, 0u);
}

TYPED_TEST(DiskTest, CreateWantsANewFileAndWriteAnOldOne) {
  EXPECT_EQ(ErrorOf(this->Open(this->In("a"), OpenMode::kWrite).status()), ENOENT);
  EXPECT_EQ(ErrorOf(this->Open(this->In("a"), OpenMode::kRead).status()), ENOENT);
  ASSERT_NE(this->Create("a"), nullptr);
  const absl::Status again = this->Open(this->In("a"), OpenMode::kCreate).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(again.message(), "create " + this->In("a") + ": EEXIST, File exists");
  EXPECT_TRUE(this->Open(this->In("a"), OpenMode::kWrite).ok());
  EXPECT_EQ(ErrorOf(this->Open(this->In("no/a"), OpenMode::kCreate).status()), ENOENT);
  EXPECT_EQ(ErrorOf(this->Open(this->In("a/b"), OpenMode::kCreate).status()), ENOTDIR);
}

TYPED_TEST(DiskTest, AFileOpenedForReadingIsNotWritten) {
  ASSERT_TRUE(this->Write(this->Create("a"), 0, "text").ok());
  const FileRef file = *this->Open(this->In("a"), OpenMode::kRead);
  EXPECT_EQ(*this->Read(file, 0, 9), "text");
  EXPECT_EQ(ErrorOf(this->Write(file, 0, "other")), EBADF);
  EXPECT_EQ(ErrorOf(this->Allocate(file, 4096)), EBADF);
  EXPECT_EQ(ErrorOf(this->Truncate(file, 1)), EINVAL);
  EXPECT_EQ(*this->Read(file, 0, 9), "text");
  EXPECT_EQ(this->disk().use().errors, 3u);
}

TYPED_TEST(DiskTest, AllocateMakesRoomThatIsNotRead) {
  const FileRef file = this->Create("a");
  ASSERT_TRUE(this->Write(file, 0, "text").ok());
  const absl::Status allocated = this->Allocate(file, 1 << 20);
  ASSERT_TRUE(allocated.ok()) << allocated;
  EXPECT_EQ(*this->Size(file), 4u);
  EXPECT_EQ(*this->Read(file, 0, 100), "text");
}

TYPED_TEST(DiskTest, TruncateShortensAndLengthens) {
  const FileRef file = this->Create("a");
  ASSERT_TRUE(this->Write(file, 0, "0123456789").ok());
  ASSERT_TRUE(this->Truncate(file, 4).ok());
  EXPECT_EQ(*this->Read(file, 0, 100), "0123");
  ASSERT_TRUE(this->Truncate(file, 6).ok());
  EXPECT_EQ(*this->Read(file, 0, 100), std::string("0123\0\0", 6));
}

TYPED_TEST(DiskTest, SyncSucceedsAndIsCounted) {
  const FileRef file = this->Create("a");
  ASSERT_TRUE(this->Write(file, 0, "text").ok());
  EXPECT_TRUE(this->Sync(file).ok());
  EXPECT_TRUE(this->SyncDirectory(this->kind_.path()).ok());
  EXPECT_EQ(*this->Read(file, 0, 4), "text");
  const DiskUse use = this->disk().use();
  EXPECT_EQ(use.writes, 1u);
  EXPECT_EQ(use.written_bytes, 4u);
  EXPECT_EQ(use.reads, 1u);
  EXPECT_EQ(use.read_bytes, 4u);
  EXPECT_EQ(use.syncs, 1u);
  EXPECT_EQ(use.errors, 0u);
  EXPECT_EQ(use.in_flight, 0u);
  EXPECT_EQ(use.oldest_ms, 0u);
}

TYPED_TEST(DiskTest, AWriteThatSyncsItselfIsBoth) {
  const FileRef file = this->Create("a");
  ASSERT_TRUE(this->WriteSynced(file, 3, "text").ok());
  EXPECT_EQ(*this->Read(file, 3, 4), "text");
  const DiskUse use = this->disk().use();
  EXPECT_EQ(use.writes, 1u);
  EXPECT_EQ(use.written_bytes, 4u);
  EXPECT_EQ(use.syncs, 1u);
  EXPECT_EQ(use.errors, 0u);
  EXPECT_EQ(use.in_flight, 0u);
  const FileRef direct = this->Create("b", true);
  Prng prng(1);
  const std::string pages = RandomBytes(prng, 5 * kAlignment);
  std::vector<char> room(pages.size() + kAlignment);
  char* const aligned =
      room.data() + (kAlignment - reinterpret_cast<uintptr_t>(room.data()) % kAlignment);
  std::copy(pages.begin(), pages.end(), aligned);
  ASSERT_TRUE(this->template Await<absl::Status>([&](auto done) {
                    this->disk().WriteSynced(
                        direct, kAlignment,
                        {{aligned, 2 * kAlignment}, {aligned + 2 * kAlignment, 3 * kAlignment}},
                        std::move(done));
                  })
                  .ok());
  EXPECT_EQ(*this->Size(direct), 6 * kAlignment);
}

TYPED_TEST(DiskTest, AFileOpenedForReadingTakesNoWriteThatSyncsItself) {
  this->Create("a");
  const FileRef file = *this->Open(this->In("a"), OpenMode::kRead);
  EXPECT_EQ(ErrorOf(this->WriteSynced(file, 0, "text")), EBADF);
}

TYPED_TEST(DiskTest, RenameTakesThePlaceOfWhatIsThere) {
  const FileRef old = this->Create("a"), young = this->Create("b");
  ASSERT_TRUE(this->Write(old, 0, "old").ok());
  ASSERT_TRUE(this->Write(young, 0, "young").ok());
  ASSERT_TRUE(this->Rename("b", "a").ok());
  EXPECT_EQ(*this->Read(*this->Open(this->In("a"), OpenMode::kRead), 0, 9), "young");
  EXPECT_EQ(*this->Read(old, 0, 9), "old");  // as long as it is open
  EXPECT_EQ(ErrorOf(this->Open(this->In("b"), OpenMode::kRead).status()), ENOENT);
  const absl::Status gone = this->Rename("b", "c");
  EXPECT_EQ(ErrorOf(gone), ENOENT);
  EXPECT_EQ(gone.message(), "rename " + this->In("b") + " to " + this->In("c") +
                                ": ENOENT, No such file or directory");
  EXPECT_EQ(ErrorOf(this->Rename("a", "no/a")), ENOENT);
}

TYPED_TEST(DiskTest, AnUnlinkedFileLivesWhileItIsOpen) {
  const FileRef file = this->Create("a");
  ASSERT_TRUE(this->Write(file, 0, "text").ok());
  ASSERT_TRUE(this->Unlink("a").ok());
  EXPECT_EQ(ErrorOf(this->Unlink("a")), ENOENT);
  EXPECT_EQ(*this->Read(file, 0, 9), "text");
  EXPECT_TRUE(this->Write(file, 4, "ure").ok());
  EXPECT_TRUE(this->Sync(file).ok());
  const FileRef second = this->Create("a");
  EXPECT_EQ(*this->Size(second), 0u);
  EXPECT_EQ(*this->Read(file, 0, 9), "texture");
}

TYPED_TEST(DiskTest, DirectoriesAreMadeWithTheirParents) {
  const std::string deep = this->In("one/two/three");
  ASSERT_TRUE(this->MakeDirectory(deep).ok());
  EXPECT_TRUE(this->MakeDirectory(deep).ok());
  EXPECT_TRUE(this->MakeDirectory(deep + "/").ok());
  EXPECT_NE(this->Create("one/two/three/a"), nullptr);
  EXPECT_EQ(ErrorOf(this->MakeDirectory(deep + "/a")), ENOTDIR);
  EXPECT_EQ(ErrorOf(this->MakeDirectory(deep + "/a/b")), ENOTDIR);
  EXPECT_EQ(ErrorOf(this->SyncDirectory(this->In("no"))), ENOENT);
  EXPECT_EQ(ErrorOf(this->SyncDirectory(deep + "/a")), ENOTDIR);
  EXPECT_EQ(ErrorOf(this->Unlink("one")), EISDIR);
}

TYPED_TEST(DiskTest, ListsPlainFilesByName) {
  for (const char* name : {"b", "a", "c10", "c9"}) {
    ASSERT_TRUE(this->Write(this->Create(name), 0, name).ok());
  }
  ASSERT_TRUE(this->MakeDirectory(this->In("folder")).ok());
  this->Create("folder/inner");
  const auto entries = this->List(this->kind_.path());
  ASSERT_TRUE(entries.ok());
  std::vector<std::pair<std::string, uint64_t>> found;
  for (const Entry& entry : *entries) found.emplace_back(entry.name, entry.bytes);
  EXPECT_EQ(found, (std::vector<std::pair<std::string, uint64_t>>{
                       {"a", 1}, {"b", 1}, {"c10", 3}, {"c9", 2}}));
  EXPECT_EQ(ErrorOf(this->List(this->In("no")).status()), ENOENT);
  EXPECT_EQ(ErrorOf(this->List(this->In("a")).status()), ENOTDIR);
}

TYPED_TEST(DiskTest, SaysHowMuchSpaceThereIs) {
  const auto space = this->SpaceOf(this->kind_.path());
  ASSERT_TRUE(space.ok());
  EXPECT_GT(space->total_bytes, 0u);
  EXPECT_LE(space->free_bytes, space->total_bytes);
  EXPECT_EQ(ErrorOf(this->SpaceOf(this->In("no")).status()), ENOENT);
}

TYPED_TEST(DiskTest, DirectAccessRefusesWhatIsNotAligned) {
  const FileRef file = this->Create("a", true);
  if (!file->direct()) return;  // this folder's file system knows none
  AlignedBuffer buffer(3 * kAlignment, 'x');
  const auto refusal = [&](uint64_t offset, size_t skip, size_t size) {
    return std::string(this->WritePieces(file, offset, {{buffer.data() + skip, size}}).message());
  };
  const std::string begin = "write " + this->In("a") + ": EINVAL, direct access: ";
  EXPECT_EQ(refusal(5, 0, kAlignment), begin + "offset 5 is no multiple of 4096");
  EXPECT_EQ(refusal(0, 0, 100), begin + "size 100 is no multiple of 4096");
  EXPECT_NE(refusal(0, 512, kAlignment).find("address"), std::string::npos);
  EXPECT_EQ(ErrorOf(this->ReadInto(file, 1, {buffer.data(), kAlignment}).status()), EINVAL);
  EXPECT_EQ(ErrorOf(this->ReadInto(file, 0, {buffer.data(), 100}).status()), EINVAL);
  EXPECT_EQ(ErrorOf(this->ReadInto(file, 0, {buffer.data() + 1, kAlignment}).status()), EINVAL);
  EXPECT_EQ(*this->Size(file), 0u);
}

TYPED_TEST(DiskTest, DirectAccessReadsUpToAnEndThatIsNotAligned) {
  const std::string bytes(2 * kAlignment + 100, 'y');
  ASSERT_TRUE(this->Write(this->Create("a"), 0, bytes).ok());
  const FileRef file = *this->Open(this->In("a"), OpenMode::kWrite, true);
  AlignedBuffer buffer(4 * kAlignment);
  EXPECT_EQ(*this->ReadInto(file, 0, buffer.span()), bytes.size());
  EXPECT_EQ(std::string(buffer.data(), bytes.size()), bytes);
  EXPECT_EQ(*this->ReadInto(file, 2 * kAlignment, buffer.span()), 100u);
  EXPECT_EQ(*this->ReadInto(file, 4 * kAlignment, buffer.span()), 0u);
  AlignedBuffer other(kAlignment, 'z');
  ASSERT_TRUE(this->WritePieces(file, kAlignment, {{other.data(), kAlignment}}).ok());
  EXPECT_EQ(*this->ReadInto(file, 0, buffer.span()), bytes.size());
  EXPECT_EQ(std::count(buffer.data(), buffer.data() + bytes.size(), 'z'), long{kAlignment});
}

TYPED_TEST(DiskTest, AgreesWithAFileInMemoryOverRandomHistories) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Prng prng(seed);
    const FileRef file = this->Create("seed-" + std::to_string(seed));
    std::string model;
    for (int i = 0; i < 150; ++i) {
      const uint64_t offset = prng.Below(20'000), size = prng.Below(9'000);
      switch (prng.Below(5)) {
        case 0:
        case 1: {
          const std::string bytes = RandomBytes(prng, size);
          const size_t cut = prng.Below(size + 1);
          ASSERT_TRUE(this->WritePieces(file, offset,
                                        {{bytes.data(), cut}, {bytes.data() + cut, size - cut}})
                          .ok());
          if (size > 0) model.resize(std::max(model.size(), offset + size));
          if (size > 0) model.replace(offset, size, bytes);
          break;
        }
        case 2:
          ASSERT_TRUE(this->Truncate(file, offset).ok());
          model.resize(offset);
          break;
        case 3:
          ASSERT_TRUE(this->Sync(file).ok());
          break;
        default:
          ASSERT_EQ(*this->Read(file, offset, size),
                    offset < model.size() ? model.substr(offset, size) : "");
      }
    }
    EXPECT_EQ(*this->Read(file, 0, 100'000), model);
  }
}

}  // namespace
}  // namespace forebay::io
