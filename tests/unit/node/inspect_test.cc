// What inspect says of files: of those that are kept in tests/golden, and of the same with damage.
#include "node/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "codec/archive.h"
#include "codec/wire.h"
#include "ledger/commands.h"
#include "node/command_text.h"
#include "shard/messages.h"
#include "storage/content_record.h"

namespace forebay::node {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Golden(const std::string& name) {
  std::ifstream file(absl::StrCat(FOREBAY_GOLDEN "/", name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Inspect : public ::testing::Test {
 protected:
  Inspect() {
    std::string pattern = (fs::temp_directory_path() / "forebay-inspect-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::string why;
    disk_ = io::NewDisk({.workers_max = 1, .allow_uring = false}, &why);
  }
  ~Inspect() override { fs::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = absl::StrCat(folder_, "/", name);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  // A line a record: offset, id's offset, bytes, listed or not, header, what is wrong.
  absl::StatusOr<SegmentReport> Segment(const std::string& name, const std::string& bytes) {
    lines_.clear();
    return InspectSegment(disk_.get(), Write(name, bytes), [this](const SegmentRecord& r) {
      lines_.push_back(absl::StrCat(r.offset, " ", r.head.bytes, r.listed ? " listed " : " free ",
                                    std::string(r.header), " ", r.wrong));
    });
  }
  absl::StatusOr<LogReport> Log(const std::string& name, const std::string& bytes) {
    lines_.clear();
    return InspectLog(disk_.get(), Write(name, bytes), 200, [this](const LogRecord& r) {
      lines_.push_back(absl::StrCat(r.position.value, " ", r.offset, " ", r.bytes, " ", r.command,
                                    r.fields, " ", r.wrong));
    });
  }

  std::string folder_;
  std::unique_ptr<io::Disk> disk_;
  std::vector<std::string> lines_;
};

constexpr char kSegmentName[] = "node-1-2-000003.seg";
constexpr char kLogName[] = "shard-3-00000007-00000000000000001234.log";

TEST_F(Inspect, ASegmentIsListedRecordByRecord) {
  const auto report = Segment(kSegmentName, Golden("segment-v1.seg"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(lines_, ElementsAre("4096 5 listed he "));
  EXPECT_EQ(report->header.name.number, 3u);
  EXPECT_TRUE(report->sealed);
  EXPECT_EQ(report->records, 1u);
  EXPECT_EQ(report->damaged, 0u);
  EXPECT_EQ(report->payload_bytes, 5u);
  EXPECT_EQ(report->header_wrong + report->footer_wrong, "");
}

TEST_F(Inspect, DamageInASegmentIsToldWithItsRecord) {
  std::string file = Golden("segment-v1.seg");
  file[4096 + 64 + 3] ^= 1;  // of the payload
  auto report = Segment(kSegmentName, file);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("4096 5 listed he crc ")));
  EXPECT_EQ(report->damaged, 1u);
  EXPECT_EQ(report->payload_bytes, 0u);
  file = Golden("segment-v1.seg");
  file[4096 + 10] ^= 1;  // of the head, which the index still knows
  report = Segment(kSegmentName, file);
  EXPECT_THAT(lines_, ElementsAre("4096 5 listed  record head: crc"));
  EXPECT_EQ(report->damaged, 1u);
  file = Golden("segment-v1.seg");
  file[100] ^= 1;  // of the header: the name says which segment it is
  report = Segment(kSegmentName, file);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(lines_, ElementsAre("4096 5 listed he "));
  EXPECT_THAT(report->header_wrong, HasSubstr("crc"));
  EXPECT_FALSE(Segment("other-name", file).ok());
}

TEST_F(Inspect, ASegmentThatWasCutOffHasNoListAndItsRecordsAreFound) {
  const std::string file = Golden("segment-v1.seg");
  auto report = Segment(kSegmentName, file.substr(0, 8192));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(lines_, ElementsAre("4096 5 free he "));
  EXPECT_FALSE(report->sealed);
  EXPECT_EQ(report->footer_wrong, "");
  report = Segment(kSegmentName, file.substr(0, 4096 + 64 + 2));
  EXPECT_THAT(lines_, ElementsAre("4096 5 free  the file ends before the record"));
  EXPECT_EQ(report->damaged, 1u);
  std::string damaged = file;
  damaged[8192] ^= 1;  // of the index
  report = Segment(kSegmentName, damaged);
  EXPECT_THAT(report->footer_wrong, HasSubstr("index: crc"));
  EXPECT_THAT(lines_, ElementsAre("4096 5 free he "));
}

TEST_F(Inspect, APayloadLargerThanTheWindowIsReadWhole) {
  using namespace storage;
  const std::string bytes(9'000'000, 'x');
  const uint32_t crc = Crc32c(bytes);
  const RecordHead head{.id = IdOf({.segment = 3, .offset = kSegmentPage, .check = FoldCrc(crc)}),
                        .bytes = bytes.size(),
                        .header_bytes = 4,
                        .crc = crc};
  std::string file = EncodeSegmentHeader(
      {.cluster = "c", .name = {.node = "node", .epoch = 1, .incarnation = 2, .number = 3}});
  file.resize(kSegmentPage + kRecordHeadBytes);
  EncodeRecordHead(head, file.data() + kSegmentPage);
  file += bytes;
  const auto report = Segment(kSegmentName, file);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(lines_, ElementsAre("4096 9000000 free xxxx "));
  file.back() ^= 1;
  EXPECT_EQ(Segment(kSegmentName, file)->damaged, 1u);
}

TEST_F(Inspect, FilesOfOtherKindsAreRefusedByName) {
  for (const std::string& bytes : {std::string(), std::string("text"), Golden("log-1.log")}) {
    const auto report = Segment("x.seg", bytes);
    ASSERT_FALSE(report.ok());
    EXPECT_THAT(std::string(report.status().message()), HasSubstr("x.seg"));
  }
  for (const std::string& bytes : {std::string(), std::string("text"), Golden("segment-v1.seg")}) {
    EXPECT_FALSE(Log("x.log", bytes).ok());
  }
  const auto visit = [](const LogRecord&) {};
  EXPECT_THAT(std::string(InspectLog(disk_.get(), folder_ + "/none", 9, visit).status().message()),
              HasSubstr("none"));
}

TEST_F(Inspect, ALogIsListedRecordByRecord) {
  const auto report = Log(kLogName, Golden("log-1.log"));
  ASSERT_TRUE(report.ok()) << report.status();
  // Its records are no commands.
  EXPECT_THAT(lines_, ElementsAre("1234 4144 5  ", "1235 4157 0  ", "1236 8240 5  "));
  EXPECT_EQ(report->header.machine, "shard-3");
  EXPECT_EQ(report->batches, 2u);
  EXPECT_EQ(report->end, "whole");
  EXPECT_EQ(report->synced.value, 1235u);
}

TEST_F(Inspect, DamageInALogIsToldAndWhatFollowsIsListed) {
  std::string file = Golden("log-1.log");
  file[0x1038] ^= 1;  // the first record, which was synced
  auto report = Log(kLogName, file);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("1234 4144 0  "), "1236 8240 5  "));
  EXPECT_THAT(lines_[0], HasSubstr("the rest of its batch is unknown"));
  EXPECT_EQ(report->end, "corrupt");
  EXPECT_EQ(report->end_offset, 4096u);
  file = Golden("log-1.log");
  file[0x2038] ^= 1;  // the last one: nothing says that it was synced
  report = Log(kLogName, file);
  EXPECT_EQ(report->end, "torn");
  EXPECT_EQ(report->damaged, 1u);
  file = Golden("log-1.log");
  file[0x1000] ^= 1;  // a batch's head
  report = Log(kLogName, file);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("0 4096 0  "), "1236 8240 5  "));
  file = Golden("log-1.log");
  file[0x20] ^= 1;  // the header
  report = Log("anything", file);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->end, "corrupt");
  EXPECT_EQ(lines_.size(), 3u);
}

std::string Text(std::string_view machine, const std::string& record, size_t bytes_max = 1000) {
  const auto text = TextOfRecord(machine, record, bytes_max);
  return text.has_value() ? text->name + text->fields : "none";
}

TEST(CommandText, NamesACommandAndItsFields) {
  const shard::Command fail =
      shard::Fail{.session = SessionId(7), .leases = {{AttemptId(9), 2}}, .reason = "it\nbroke"};
  const std::string record = codec::Encode(fail);
  EXPECT_EQ(Text("shard-0", record), "Fail(7, [(9, 2)], \"it\\nbroke\")");
  EXPECT_EQ(Text("shard-0", record, 10), "Fail(7, [(9, 2...");
  EXPECT_EQ(Text("other", record), "none");
  EXPECT_EQ(Text("shard-0", record + "x"), "none");
  EXPECT_EQ(Text("shard-0", ""), "none");
  const ledger::Command publish = ledger::PublishVersion{
      .generation = Generation(3),
      .announcement = {.version = {0, 4}, .base = PolicyVersion{0, 3}, .where = "s3://w"}};
  EXPECT_EQ(Text("ledger", codec::Encode(publish)),
            "PublishVersion(3, (0/4, 2, 0/3, \"s3://w\", \"\", 0))");
  const shard::Command message = shard::FromLedger{.number = 5, .message = codec::ToShard()};
  EXPECT_THAT(Text("shard-1", codec::Encode(message)), testing::StartsWith("FromLedger(5, "));
}

TEST(CommandText, OfTaskContentsTheTaskIsNamed) {
  std::string item;
  codec::WireWriter writer(&item);
  writer.Bytes(11, "task-1");
  writer.Bytes(12, "xyz");
  std::string record;
  storage::EncodeContentRecord(PayloadId(0x100002), item, &record);
  EXPECT_EQ(Text("contents", record), "Task(100002, \"task-1\", 3 bytes, 0 bytes)");
  EXPECT_EQ(Text("contents", record, 9), "Task(100002, ...");
  EXPECT_EQ(Text("contents", "short"), "none");
}

}  // namespace
}  // namespace forebay::node
