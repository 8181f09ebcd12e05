#include "server/grpc/row_gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "storage/payload_budget.h"

namespace forebay::server {
namespace {

// Bytes cut into blocks at random places, which no store does, so that values straddle them.
std::vector<storage::BlockSlice> Cut(const std::string& bytes, storage::PayloadBudget* budget,
                                     Prng* prng) {
  std::vector<storage::BlockSlice> slices;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = std::min<size_t>(bytes.size() - at, 1 + prng->Below(9));
    EXPECT_TRUE(budget->TryReserve(storage::Block::Footprint(size)));
    auto block = storage::BlockRef::Adopt(storage::Block::New(size, budget));
    std::copy_n(bytes.data() + at, size, block->data());
    char* const data = block->data();
    slices.push_back({.block = std::move(block), .data = data, .size = size});
    at += size;
  }
  return slices;
}

TEST(RowGather, GivesWhatIndexingAndConvertingGivesWhereverFramesEnd) {
  using enum codec::DType;
  const auto budget = storage::PayloadBudget::New(1 << 20, 0);
  const codec::Conversion* const conversions[] = {
      nullptr, codec::FindConversion(kI16, kI32), codec::FindConversion(kU16, kI64),
      codec::FindConversion(kF32, kBf16), codec::FindConversion(kF64, kF32)};
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Prng prng(seed);
    const codec::Conversion* const conversion = conversions[prng.Below(5)];
    const uint32_t width =
        conversion == nullptr ? static_cast<uint32_t>(1 + prng.Below(8)) : conversion->from_bytes;
    std::vector<uint32_t> shape(prng.Below(3));
    std::vector<std::vector<batch::IndexRange>> dimensions;
    for (uint32_t& size : shape) {
      size = static_cast<uint32_t>(1 + prng.Below(6));
      const auto begin = static_cast<uint32_t>(prng.Below(size));
      dimensions.push_back({});
      if (prng.Below(3) > 0) {
        dimensions.back().push_back(
            {begin, static_cast<uint32_t>(begin + 1 + prng.Below(size - begin))});
      }
    }
    const auto row = batch::SliceRow(shape, width, dimensions);
    ASSERT_TRUE(row.ok()) << row.status();
    const RowFormat format(*row, conversion);
    std::string stored(row->row_bytes * prng.Below(12), '\0');
    for (char& byte : stored) byte = static_cast<char>(prng.Next());
    std::string expected;
    for (size_t at = 0; at < stored.size(); at += row->row_bytes) {
      for (const batch::ByteRun& run : row->runs) {
        const std::string part = stored.substr(at + run.offset, run.bytes);
        if (conversion == nullptr) {
          expected += part;
          continue;
        }
        std::string converted(part.size() / width * conversion->to_bytes, '\0');
        conversion->convert(part.data(), converted.data(), part.size() / width);
        expected += converted;
      }
    }
    const RowGather gather(&format, Cut(stored, budget.get(), &prng));
    ASSERT_EQ(gather.bytes(), expected.size());
    std::string frames;
    while (frames.size() < expected.size()) {
      std::string frame(std::min<size_t>(expected.size() - frames.size(), 1 + prng.Below(30)), '#');
      gather.Read(frames.size(), frame.size(), frame.data());
      frames += frame;
    }
    ASSERT_EQ(frames, expected) << "seed " << seed;
  }
  EXPECT_EQ(budget->use().used_bytes, 0u);
}

}  // namespace
}  // namespace forebay::server
