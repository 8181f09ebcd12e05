// Payloads that are read together: where their bytes are read to, and what comes of it.
#include "storage/segment_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "tests/unit/storage_segments/host.h"

namespace forebay::storage {
namespace {

constexpr uint64_t kPage = kSegmentPage;
constexpr uint64_t kPaged = Block::kPagedBytes;

// A file of records, and a run that reads some of them.
class SegmentRunTest : public testing::Test {
 protected:
  // At the next place; `page_begins`: its bytes begin a page, as the store has it for large ones.
  void AddRecord(uint64_t bytes, bool page_begins) {
    uint64_t at = RoundUp(file.size(), kRecordAlignment);
    if (page_begins) at = RoundUp(at + kRecordHeadBytes, kPage) - kRecordHeadBytes;
    file.resize(at, '\0');
    const std::string text = RandomText(prng, bytes);
    RunItem& item = items.emplace_back();
    item.head.crc = Crc32c(text);
    item.head.bytes = bytes;
    item.head.id = IdOf({.segment = 1, .offset = at, .check = FoldCrc(item.head.crc)});
    const uint64_t footprint = PayloadBuilder::Footprint(bytes);
    ASSERT_TRUE(budget->TryReserve(footprint));
    item.blocks = NewBlocks(bytes, budget.get());
    file.resize(at + kRecordHeadBytes);
    EncodeRecordHead(item.head, file.data() + at);
    file += text;
  }
  // Reads all in pieces of so many bytes, the last one first. How many bytes went to the buffer.
  uint64_t Read(SegmentRun& run, uint64_t piece) {
    file.resize(std::max<size_t>(file.size(), run.end()), '\0');
    uint64_t copied = 0, total = 0;
    std::vector<uint64_t> begins;
    for (uint64_t at = run.begin(); at < run.end(); at += piece) begins.push_back(at);
    std::reverse(begins.begin(), begins.end());
    for (const uint64_t begin : begins) {
      const uint64_t end = std::min(begin + piece, run.end());
      const uint64_t buffered = run.BufferBytes(begin, end);
      const WriteBuffer buffer(buffered);
      uint64_t at = begin;
      std::vector<absl::Span<char>> targets = run.Targets(begin, end, buffer.data());
      for (const absl::Span<char> to : targets) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(to.data()) % kPage, 0u);
        EXPECT_EQ(to.size() % kPage, 0u);
        std::memcpy(to.data(), file.data() + at, to.size());
        const bool in_buffer = to.data() >= buffer.data() && to.data() < buffer.data() + buffered;
        copied += in_buffer ? to.size() : 0;
        at += to.size();
      }
      EXPECT_EQ(at, end);
      total += buffered;
      at = begin;
      for (const absl::Span<char> to : targets) {
        run.Take(at, {to.data(), to.size()});
        at += to.size();
      }
    }
    EXPECT_EQ(copied, total);
    return copied;
  }
  void ExpectWhole(const SegmentRun& run) {
    for (size_t i = 0; i < run.items.size(); ++i) {
      EXPECT_TRUE(SegmentRun::Check(run.items[i]).ok()) << i;
    }
  }

  Prng prng{1};
  PayloadBudget::Owner budget = PayloadBudget::New(uint64_t{1} << 30, 0);
  std::string file;
  std::vector<RunItem> items;
};

TEST_F(SegmentRunTest, LargePayloadsAreReadToTheirPlaces) {
  // The last one's end, and the next one's head, share a page or do not.
  for (const uint64_t bytes : {kPaged, kPaged + 1, 2 * kPaged - 64, 2 * kPaged - 63, 5 * kPaged}) {
    AddRecord(bytes, true);
  }
  SegmentRun run(std::move(items), false);
  // Beside the first head's page, the pages of heads that follow a payload's full last page.
  EXPECT_EQ(Read(run, 1 << 20), 3 * kPage);
  ExpectWhole(run);
}

TEST_F(SegmentRunTest, SmallOnesAndThoseWithinAPageAreCopied) {
  AddRecord(100, false);
  AddRecord(kPaged + 1, false);
  AddRecord(kPaged + 1, true);
  AddRecord(10, false);  // in the page where the one before ends
  AddRecord(20, false);
  AddRecord(kPaged, true);
  AddRecord(0x5000, false);
  SegmentRun run(std::move(items), false);
  EXPECT_LT(Read(run, 1 << 20), run.end() - run.begin() - 2 * kPaged);
  ExpectWhole(run);
}

TEST_F(SegmentRunTest, PiecesMayCutAnythingAtAPage) {
  for (int i = 0; i < 40; ++i) {
    const bool large = prng.Below(2) == 0;
    AddRecord(large ? kPaged + prng.Below(3 * kPaged) : 1 + prng.Below(kPaged - 1),
              large && prng.Below(8) > 0);
  }
  AddRecord(Block::kBytesMax + kPaged + 5, true);
  AddRecord(Block::kBytesMax + 5, true);
  for (const uint64_t pages : {1, 2, 3, 7, 16, 64}) {
    SCOPED_TRACE(pages);
    SegmentRun run(items, false);
    for (RunItem& item : run.items) {
      item.blocks = NewBlocks(item.head.bytes, budget.get());
      ASSERT_TRUE(budget->TryReserve(PayloadBuilder::Footprint(item.head.bytes)));
      std::memset(item.stored_head, 0, sizeof item.stored_head);
    }
    Read(run, pages * kPage);
    ExpectWhole(run);
  }
}

}  // namespace
}  // namespace forebay::storage
