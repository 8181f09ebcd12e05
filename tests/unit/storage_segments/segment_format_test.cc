#include "storage/segment_format.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/prng.h"

namespace forebay::storage {
namespace {

const SegmentName kName{.node = "node", .epoch = 1, .incarnation = 2, .number = 3};

RecordHead HeadOf(const std::string& bytes, uint32_t segment, uint32_t header_bytes,
                  PayloadId cold = {}) {
  const uint32_t crc = Crc32c(bytes);
  return {.id = IdOf({.segment = segment, .offset = kSegmentPage, .check = FoldCrc(crc)}),
          .bytes = bytes.size(),
          .header_bytes = header_bytes,
          .crc = crc,
          .cold = cold};
}

// Two parts of a payload, as in docs/formats/segment.md: five hot bytes, and six cold ones.
const std::string kHotBytes = "hello", kColdBytes = " world";
const RecordHead kColdHead = HeadOf(kColdBytes, 4, 0);
const RecordHead kHotHead = HeadOf(kHotBytes, 3, 2, kColdHead.id);

std::string ExampleSegment(Part part = Part::kHot) {
  const bool hot = part == Part::kHot;
  const std::string& bytes = hot ? kHotBytes : kColdBytes;
  const RecordHead& head = hot ? kHotHead : kColdHead;
  SegmentName name = kName;
  name.number = hot ? 3 : 4;
  std::string file =
      EncodeSegmentHeader({.cluster = "example", .name = name, .nonce = 77, .part = part});
  file.resize(kSegmentPage + kRecordHeadBytes);
  EncodeRecordHead(head, file.data() + kSegmentPage);
  file += bytes;
  file.resize(2 * kSegmentPage);
  file += EncodeSegmentFooter({.nonce = 77, .records = {head}}, file.size());
  return file;
}

absl::StatusOr<SegmentTrailer> TrailerOf(std::string_view file) {
  return DecodeSegmentTrailer(file.substr(file.size() - kSegmentTrailerBytes), file.size());
}

absl::StatusOr<SegmentIndex> IndexOf(std::string_view file) {
  const auto trailer = TrailerOf(file);
  if (!trailer.ok()) return trailer.status();
  return DecodeSegmentIndex(file.substr(trailer->index_offset, trailer->index_bytes()), *trailer,
                            kName.number);
}

std::vector<std::string> Scan(std::string_view file) {
  std::vector<std::string> found;
  EXPECT_TRUE(ScanSegment(file, [&](const ScannedRecord& record) {
                found.emplace_back(record.bytes);
              }).ok());
  return found;
}

std::string Golden(const std::string& name) {
  std::ifstream stream(FOREBAY_GOLDEN "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(SegmentFormat, WritesAndReadsTheFilesOfVersion2) {
  for (const Part part : {Part::kHot, Part::kCold}) {
    const bool hot = part == Part::kHot;
    const std::string file = Golden(hot ? "segment-v2.seg" : "segment-v2-cold.seg");
    EXPECT_EQ(file, ExampleSegment(part));
    const auto header = DecodeSegmentHeader(file);
    ASSERT_TRUE(header.ok());
    EXPECT_EQ(header->name.number, hot ? 3u : 4u);
    EXPECT_EQ(header->part, part);
    const auto trailer = TrailerOf(file);
    ASSERT_TRUE(trailer.ok());
    const auto index = DecodeSegmentIndex(
        std::string_view(file).substr(trailer->index_offset, trailer->index_bytes()), *trailer,
        header->name.number);
    ASSERT_TRUE(index.ok());
    EXPECT_EQ(index->records, std::vector<RecordHead>{hot ? kHotHead : kColdHead});
    EXPECT_EQ(*DecodeRecordHead(std::string_view(file).substr(kSegmentPage)), index->records[0]);
    EXPECT_EQ(Scan(file), std::vector<std::string>{hot ? kHotBytes : kColdBytes});
  }
}

TEST(SegmentFormat, ReadsTheFilesOfVersion1) {
  const std::string file = Golden("segment-v1.seg");
  const auto header = DecodeSegmentHeader(file);
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->name, kName);
  EXPECT_EQ(header->part, Part::kHot);
  EXPECT_EQ(header->cluster, "example");
  EXPECT_EQ(header->nonce, 77u);
  const auto index = IndexOf(file);
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->nonce, 77u);
  EXPECT_EQ(index->records, std::vector<RecordHead>{HeadOf("hello", 3, 2)});
  EXPECT_EQ(*DecodeRecordHead(std::string_view(file).substr(kSegmentPage)), index->records[0]);
  EXPECT_EQ(Scan(file), std::vector<std::string>{"hello"});
}

TEST(SegmentFormat, NoByteOfHeaderHeadAndFooterMayChange) {
  const std::string file = ExampleSegment();
  const uint64_t index = 2 * kSegmentPage;
  for (size_t at = 0; at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] ^= 0x10;
    const std::string_view view = damaged;
    if (at < kSegmentPage) {
      EXPECT_FALSE(DecodeSegmentHeader(view).ok()) << at;
    } else if (at < kSegmentPage + kRecordHeadBytes) {
      EXPECT_FALSE(DecodeRecordHead(view.substr(kSegmentPage)).ok()) << at;
      EXPECT_TRUE(Scan(view).empty()) << at;
    } else if (at < kSegmentPage + kRecordHeadBytes + 5) {
      EXPECT_TRUE(Scan(view).empty()) << at;
    } else if (at >= index && (at < index + 24 || at >= file.size() - kSegmentTrailerBytes)) {
      EXPECT_FALSE(IndexOf(view).ok()) << at;
    }
  }
}

TEST(SegmentFormat, AFileThatWasCutShortHasNoFooter) {
  const std::string file = ExampleSegment();
  for (const size_t size : {size_t{0}, size_t{63}, size_t{4096}, size_t{8192}}) {
    const std::string_view cut = std::string_view(file).substr(0, size);
    const auto end = cut.substr(cut.size() - std::min<size_t>(cut.size(), kSegmentTrailerBytes));
    EXPECT_EQ(DecodeSegmentTrailer(end, cut.size()).status().code(), absl::StatusCode::kNotFound);
  }
}

TEST(SegmentFormat, ScansPastATornBatch) {
  Prng prng(1);
  std::string file = EncodeSegmentHeader({.cluster = "", .name = kName, .nonce = 1});
  const auto add = [&](const std::string& bytes, bool torn) {
    const uint64_t offset = file.size();
    const uint32_t crc = Crc32c(bytes);
    file.resize(offset + kRecordHeadBytes);
    EncodeRecordHead({.id = IdOf({.segment = 3, .offset = offset, .check = FoldCrc(crc)}),
                      .bytes = bytes.size(),
                      .header_bytes = 0,
                      .crc = crc},
                     file.data() + offset);
    file += bytes;
    if (torn) file.back() ^= 1;
    file.resize(RoundUp(file.size(), kRecordAlignment));
  };
  add("one", false);
  file.resize(2 * kSegmentPage - kRecordHeadBytes);
  add("two", false);
  file.resize(RoundUp(file.size(), kSegmentPage));
  add(std::string(10'000, 'x'), true);
  file.resize(RoundUp(file.size(), kSegmentPage));
  add("three", false);
  EXPECT_EQ(Scan(file), (std::vector<std::string>{"one", "two", "three"}));
}

TEST(SegmentFormat, IdsSayWhereAPayloadLies) {
  for (const PayloadPlace place :
       {PayloadPlace{1, 4096, 0}, PayloadPlace{kSegmentNumberMax, kSegmentBytesMax - 64, 0xffff}}) {
    const PayloadPlace again = PlaceOf(IdOf(place));
    EXPECT_NE(IdOf(place).value, 0u);
    EXPECT_EQ(again.segment, place.segment);
    EXPECT_EQ(again.offset, place.offset);
    EXPECT_EQ(again.check, place.check);
  }
}

TEST(SegmentFormat, NamesAreReadAsTheyAreWritten) {
  for (const SegmentName& name :
       {kName, SegmentName{"a-b-1", 0, 0, 1}, SegmentName{"n", UINT64_MAX, 7, kSegmentNumberMax}}) {
    const auto parsed = ParseSegmentFileName(FileNameOf(name));
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(*parsed, name);
  }
  for (const char* other :
       {"", "node-1-2-000003", "node-1-2-3.seg", "node-1-2-000000.seg", "node-1-2-1000000.seg",
        "-1-2-000003.seg", "node-1-2-00000A.seg", "node-01-2-000003.seg", "no/de-1-2-000003.seg",
        "node-1-000003.seg", "node-1-2-000003.seg.tmp", "node--2-000003.seg"}) {
    EXPECT_FALSE(ParseSegmentFileName(other).has_value()) << other;
  }
}

}  // namespace
}  // namespace forebay::storage
