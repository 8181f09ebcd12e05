// The formats on disk as they were written once: old bytes stay readable, and new ones look the
// same until the format's number changes. docs/formats has the pages.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "storage/content_record.h"
#include "storage/log_format.h"
#include "storage/log_scan.h"
#include "storage/snapshot_format.h"

namespace forebay::storage {
namespace {

std::string Golden(const std::string& name) {
  std::ifstream file(absl::StrCat(FOREBAY_GOLDEN "/", name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Leaves what does not agree in the folder for temporary files.
void ExpectGolden(const std::string& name, const std::string& bytes) {
  if (Golden(name) == bytes) return;
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary) << bytes;
  ADD_FAILURE() << "tests/golden/" << name << " differs from what is written now, " << path;
}

LogFileHeader HeaderOfLog() {
  return {.machine = "shard-3",
          .number = 7,
          .epoch = 2,
          .incarnation = 5,
          .nonce = 0x0123456789abcdef,
          .first = LogPosition(1234)};
}

std::string GoldenLog() {
  std::string file = EncodeLogFileHeader(HeaderOfLog());
  LogBatchBuilder batch;
  batch.Add(LogPosition(1234), "first");
  batch.Add(LogPosition(1235), "");
  file += batch.Finish(HeaderOfLog().nonce, 2, LogPosition(1233));
  batch.Clear();
  batch.Add(LogPosition(1236), "third");
  file += batch.Finish(HeaderOfLog().nonce, 2, LogPosition(1235));
  return file;
}

TEST(GoldenTest, TheLogIsWrittenAsEver) { ExpectGolden("log-1.log", GoldenLog()); }

TEST(GoldenTest, TheLogIsReadAsEver) {
  const std::string file = Golden("log-1.log");
  const auto header = DecodeLogFileHeader(file);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(*header, HeaderOfLog());
  std::string read;
  const LogScan scan =
      ScanLogFile(file, *header, LogPosition(), [&](LogPosition position, std::string_view record) {
        absl::StrAppend(&read, position.value, "=", std::string(record), ";");
        return absl::OkStatus();
      });
  EXPECT_EQ(scan.how, LogScan::End::kWhole);
  EXPECT_EQ(read, "1234=first;1235=;1236=third;");
  EXPECT_EQ(scan.next, LogPosition(1237));
  EXPECT_EQ(scan.synced, LogPosition(1235));
}

TEST(GoldenTest, NamesOfFilesAreAsEver) {
  const std::string name = LogFileName("shard-3", 7, LogPosition(1234));
  EXPECT_EQ(name, "shard-3-00000007-00000000000000001234.log");
  const auto parts = ParseLogFileName(name);
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(parts->machine, "shard-3");
  EXPECT_EQ(parts->number, 7u);
  EXPECT_EQ(parts->first, LogPosition(1234));
  for (const char* other :
       {"", ".log", "shard-3.log", "shard-3-7-1234.log", "--.log", "a-00000007-.log",
        "shard-3-00000007-00000000000000001234.log~", "-00000007-0000000000000000123x.log",
        "shard-3-000000+7-00000000000000001234.log"}) {
    EXPECT_FALSE(ParseLogFileName(other).has_value()) << other;
  }
  EXPECT_EQ(SnapshotName(LogPosition(1234)), "snapshot-00000000000000001234");
  EXPECT_EQ(ParseSnapshotName("snapshot-00000000000000001234"), LogPosition(1234));
  for (const char* other : {"", "snapshot-", "snapshot-1234", "snapshot-00000000000000000000",
                            "snapshot-00000000000000001234.tmp", "snapshot-99999999999999999999"}) {
    EXPECT_FALSE(ParseSnapshotName(other).has_value()) << other;
  }
}

SnapshotHead HeadOfSnapshot() {
  return {.machine = "shard-3", .position = LogPosition(1234), .epoch = 2, .incarnation = 5};
}

std::string GoldenSnapshot() {
  std::string file = EncodeSnapshotHead(HeadOfSnapshot());
  SnapshotTotals totals;
  for (const char* chunk : {"first chunk", "second"}) {
    file += totals.Add(chunk);
    file += chunk;
  }
  return file + totals.End();
}

TEST(GoldenTest, TheSnapshotIsWrittenAsEver) { ExpectGolden("snapshot-1", GoldenSnapshot()); }

TEST(GoldenTest, TheSnapshotIsReadAsEver) {
  const std::string file = Golden("snapshot-1");
  const auto head = DecodeSnapshotHead(file);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(*head, HeadOfSnapshot());
  std::string_view rest = std::string_view(file).substr(SnapshotHead::kBytes);
  SnapshotTotals totals;
  std::string read;
  while (true) {
    const std::string_view chunk_head = rest.substr(0, SnapshotChunkHead::kBytes);
    const auto size = totals.BytesOf(chunk_head);
    ASSERT_TRUE(size.ok()) << size.status();
    rest.remove_prefix(SnapshotChunkHead::kBytes);
    if (*size == 0) break;
    ASSERT_TRUE(totals.Check(chunk_head, rest.substr(0, *size)).ok());
    absl::StrAppend(&read, std::string(rest.substr(0, *size)), ";");
    rest.remove_prefix(*size);
  }
  EXPECT_EQ(read, "first chunk;second;");
  EXPECT_TRUE(totals.CheckFooter(rest).ok());
}

LogFileHeader HeaderOfContents() {
  return {.machine = "contents",
          .number = 2,
          .incarnation = 5,
          .nonce = 0x0123456789abcdef,
          .first = LogPosition(3)};
}

TEST(GoldenTest, TheLogOfContentsIsWrittenAsEver) {
  std::string file = EncodeLogFileHeader(HeaderOfContents());
  LogBatchBuilder batch;
  std::string record;
  EncodeContentRecord(PayloadId(0x100007), "second task", &record);
  batch.Add(LogPosition(3), record);
  EncodeContentRecord(PayloadId(0x100012), "third", &record);
  batch.Add(LogPosition(4), record);
  file += batch.Finish(HeaderOfContents().nonce, 0, LogPosition(2));
  ExpectGolden("contents-1.log", file);
}

TEST(GoldenTest, TheLogOfContentsIsReadAsEver) {
  const std::string file = Golden("contents-1.log");
  const auto header = DecodeLogFileHeader(file);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(*header, HeaderOfContents());
  std::string read;
  const LogScan scan =
      ScanLogFile(file, *header, LogPosition(), [&](LogPosition position, std::string_view record) {
        PayloadId id;
        std::string_view item;
        EXPECT_TRUE(DecodeContentRecord(record, &id, &item));
        absl::StrAppend(&read, position.value, "=", absl::Hex(id.value), " ", std::string(item),
                        ";");
        return absl::OkStatus();
      });
  EXPECT_EQ(scan.how, LogScan::End::kWhole);
  EXPECT_EQ(read, "3=100007 second task;4=100012 third;");
}

TEST(GoldenTest, TheSnapshotOfContentsIsWrittenAsEver) {
  std::string items;
  AppendContentEnd({.arenas = 1, .open = 0, .open_used = 7}, &items);
  AppendContentItem(PayloadId(0x100002), "task", &items);
  SnapshotTotals totals;
  std::string file = EncodeSnapshotHead(
      {.machine = "contents", .position = LogPosition(2), .epoch = 0, .incarnation = 5});
  file += totals.Add(items);
  file += items;
  ExpectGolden("contents-snapshot-1", file + totals.End());
}

TEST(GoldenTest, TheSnapshotOfContentsIsReadAsEver) {
  const std::string file = Golden("contents-snapshot-1");
  const auto head = DecodeSnapshotHead(file);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->machine, "contents");
  EXPECT_EQ(head->position, LogPosition(2));
  std::string_view rest = std::string_view(file).substr(SnapshotHead::kBytes);
  SnapshotTotals totals;
  const std::string_view chunk_head = rest.substr(0, SnapshotChunkHead::kBytes);
  const auto size = totals.BytesOf(chunk_head);
  ASSERT_TRUE(size.ok()) << size.status();
  std::string_view items = rest.substr(SnapshotChunkHead::kBytes, *size);
  ASSERT_TRUE(totals.Check(chunk_head, items).ok());
  rest.remove_prefix(SnapshotChunkHead::kBytes + *size);
  EXPECT_EQ(*totals.BytesOf(rest.substr(0, SnapshotChunkHead::kBytes)), 0u);
  EXPECT_TRUE(totals.CheckFooter(rest.substr(SnapshotChunkHead::kBytes)).ok());
  ContentStore::End end;
  PayloadId id;
  std::string_view item;
  ASSERT_TRUE(TakeContentEnd(&items, &end) && TakeContentItem(&items, &id, &item));
  EXPECT_EQ(end.arenas, 1u);
  EXPECT_EQ(id, PayloadId(0x100002));
  EXPECT_EQ(item, "task");
  EXPECT_TRUE(items.empty());
}

TEST(GoldenTest, ASnapshotOfContentsIsAsEver) {
  const std::string bytes(
      "\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0"
      "\x02\0\x10\0\0\0\0\0\x04\0\0\0task",
      40);
  std::string written;
  AppendContentEnd({.arenas = 1, .open = 0, .open_used = 7}, &written);
  AppendContentItem(PayloadId(0x100002), "task", &written);
  EXPECT_EQ(written, bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::string_view part = std::string_view(bytes).substr(0, size);
    ContentStore::End end;
    PayloadId id;
    std::string_view item;
    EXPECT_FALSE(TakeContentEnd(&part, &end) && TakeContentItem(&part, &id, &item)) << size;
  }
  std::string_view all = bytes;
  ContentStore::End end;
  PayloadId id;
  std::string_view item;
  ASSERT_TRUE(TakeContentEnd(&all, &end) && TakeContentItem(&all, &id, &item));
  EXPECT_EQ(end.open_used, 7u);
  EXPECT_EQ(id, PayloadId(0x100002));
  EXPECT_EQ(item, "task");
  EXPECT_TRUE(all.empty());
}

TEST(GoldenTest, ARecordOfContentsIsAsEver) {
  std::string record = "left from before";
  EncodeContentRecord(PayloadId(0x100002), "task", &record);
  EXPECT_EQ(record, std::string("\x02\x00\x10\x00\x00\x00\x00\x00task", 12));
  PayloadId id;
  std::string_view item;
  EXPECT_TRUE(DecodeContentRecord(record, &id, &item));
  EXPECT_EQ(id, PayloadId(0x100002));
  EXPECT_EQ(item, "task");
  EXPECT_FALSE(DecodeContentRecord("1234567", &id, &item));
  EXPECT_FALSE(DecodeContentRecord(std::string(12, '\0'), &id, &item));
}

}  // namespace
}  // namespace forebay::storage
