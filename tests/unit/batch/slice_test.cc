#include "batch/slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "batch/layout.h"

namespace forebay::batch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Row = std::pair<uint32_t, uint32_t>;  // sequence, position in it

TokenSlice SliceOrDie(const std::vector<uint32_t>& sequences, uint64_t rows,
                      const ContextSlice& context) {
  auto slice = SliceTokens(sequences, rows, context);
  EXPECT_TRUE(slice.ok()) << slice.status();
  return slice.ok() ? *std::move(slice) : TokenSlice();
}

std::vector<Row> RowsOf(const std::vector<TokenSpan>& spans) {
  std::vector<Row> rows;
  for (const TokenSpan& span : spans) {
    for (uint32_t at = span.begin; at < span.end; ++at) rows.emplace_back(span.sequence, at);
  }
  return rows;
}

// All rows of the micro-batch, padding as one more sequence.
std::vector<Row> AllRows(const std::vector<uint32_t>& sequences, uint64_t padded) {
  std::vector<Row> rows;
  for (uint32_t s = 0; s < sequences.size(); ++s) {
    for (uint32_t at = 0; at < sequences[s]; ++at) rows.emplace_back(s, at);
  }
  for (uint32_t at = 0; rows.size() < padded; ++at) {
    rows.emplace_back(static_cast<uint32_t>(sequences.size()), at);
  }
  return rows;
}

// What a peer takes, row by row, as the trainers' own code slices: by chunks of arrays.
std::vector<Row> Naive(const std::vector<uint32_t>& sequences, uint64_t padded,
                       const ContextSlice& context) {
  const auto chunk = [](const std::vector<Row>& rows, size_t index, size_t count) {
    const auto size = static_cast<ptrdiff_t>(rows.size() / count);
    const auto begin = rows.begin() + static_cast<ptrdiff_t>(index) * size;
    return std::vector<Row>(begin, begin + size);
  };
  const auto zigzag = [&](const std::vector<Row>& rows) {
    std::vector<Row> taken = chunk(rows, context.rank, 2 * context.size);
    const auto other = chunk(rows, 2 * context.size - 1 - context.rank, 2 * context.size);
    taken.insert(taken.end(), other.begin(), other.end());
    return taken;
  };
  if (context.order == ContextOrder::kContiguous) {
    return chunk(AllRows(sequences, padded), context.rank, context.size);
  }
  if (context.order == ContextOrder::kZigzag) return zigzag(AllRows(sequences, padded));
  std::vector<Row> taken;
  for (uint32_t s = 0; s < sequences.size(); ++s) {
    std::vector<Row> rows;
    for (uint32_t at = 0; at < sequences[s] || at % (2 * context.size) != 0; ++at) {
      rows.emplace_back(s, at);
    }
    const auto own = zigzag(rows);
    taken.insert(taken.end(), own.begin(), own.end());
  }
  for (uint32_t at = 0; taken.size() % context.pad_multiple != 0; ++at) {
    taken.emplace_back(static_cast<uint32_t>(sequences.size()), at);
  }
  return taken;
}

TEST(SliceTokens, TakesAChunkOfThePaddedRows) {
  const TokenSlice first = SliceOrDie({3, 5}, 12, {ContextOrder::kContiguous, 3, 0});
  EXPECT_THAT(first.spans, ElementsAre(TokenSpan{0, 0, 3}, TokenSpan{1, 0, 1}));
  EXPECT_THAT(first.cu_seqlens, ElementsAre(0, 3, 4));
  EXPECT_EQ(first.max_seqlen, 3u);
  const TokenSlice last = SliceOrDie({3, 5}, 12, {ContextOrder::kContiguous, 3, 2});
  EXPECT_THAT(last.spans, ElementsAre(TokenSpan{2, 0, 4}));
  EXPECT_THAT(last.cu_seqlens, ElementsAre(0, 0, 0));
  EXPECT_EQ(last.padded_tokens, 4u);
}

TEST(SliceTokens, TakesTwoChunksInZigzag) {
  const ContextSlice outer{ContextOrder::kZigzag, 2, 0}, inner{ContextOrder::kZigzag, 2, 1};
  EXPECT_THAT(SliceOrDie({8}, 8, outer).spans, ElementsAre(TokenSpan{0, 0, 2}, TokenSpan{0, 6, 8}));
  EXPECT_THAT(SliceOrDie({8}, 8, inner).spans, ElementsAre(TokenSpan{0, 2, 6}));
}

TEST(SliceTokens, PadsEachSequenceForZigzagWithinSequences) {
  const ContextSlice context{ContextOrder::kZigzagSequences, 2, 0, 8};
  const TokenSlice slice = SliceOrDie({5, 1}, 6, context);
  EXPECT_THAT(slice.spans, ElementsAre(TokenSpan{0, 0, 2}, TokenSpan{0, 6, 8}, TokenSpan{1, 0, 1},
                                       TokenSpan{1, 3, 4}, TokenSpan{2, 0, 2}));
  EXPECT_THAT(slice.cu_seqlens, ElementsAre(0, 4, 6));
  EXPECT_EQ(slice.max_seqlen, 4u);
  EXPECT_EQ(slice.padded_tokens, 8u);
}

TEST(SliceTokens, AgreesWithSlicedArraysAndTakesEveryRowOnce) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Prng prng(seed);
    std::vector<uint32_t> sequences(prng.Below(6));
    for (uint32_t& tokens : sequences) tokens = static_cast<uint32_t>(1 + prng.Below(20));
    const auto order = static_cast<ContextOrder>(prng.Below(3));
    const auto size = static_cast<uint32_t>(1 + prng.Below(4));
    const uint64_t tokens = std::accumulate(sequences.begin(), sequences.end(), uint64_t{0});
    const uint64_t multiple = uint64_t{size} * 2 * (1 + prng.Below(3));
    const uint64_t padded = (tokens + multiple - 1) / multiple * multiple;
    ContextSlice context{order, size};
    if (order == ContextOrder::kZigzagSequences) {
      context.pad_multiple = static_cast<uint32_t>(1 + prng.Below(5));
    }
    std::vector<Row> all;
    for (context.rank = 0; context.rank < size; ++context.rank) {
      const TokenSlice slice = SliceOrDie(sequences, padded, context);
      const std::vector<Row> rows = RowsOf(slice.spans);
      ASSERT_EQ(rows, Naive(sequences, padded, context)) << "seed " << seed;
      ASSERT_EQ(slice.padded_tokens, rows.size());
      uint32_t longest = 0;
      for (uint32_t s = 0; s < sequences.size(); ++s) {
        const int32_t begin = slice.cu_seqlens[s], end = slice.cu_seqlens[s + 1];
        longest = std::max(longest, static_cast<uint32_t>(end - begin));
        for (int32_t i = begin; i < end; ++i) ASSERT_EQ(rows[static_cast<size_t>(i)].first, s);
      }
      ASSERT_EQ(slice.max_seqlen, longest);
      for (const Row& row : rows) {
        const bool padding = row.first == sequences.size() || row.second >= sequences[row.first];
        if (!padding) all.push_back(row);
      }
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all, AllRows(sequences, 0)) << "seed " << seed;
  }
}

TEST(SliceTokens, RefusesByNameValueAndLimit) {
  struct Case {
    ContextSlice context;
    const char* message;
  };
  const Case cases[] = {
      {{ContextOrder::kContiguous, 0, 0}, "context.size: 0, from 1 to 65536"},
      {{ContextOrder::kContiguous, 65'537, 0}, "context.size: 65537, from 1 to 65536"},
      {{ContextOrder::kContiguous, 2, 2}, "context.rank: 2, below context.size, 2"},
      {{ContextOrder::kContiguous, 3, 0}, "context.size: 3, but 8 rows are not divided by 3"},
      {{ContextOrder::kZigzag, 3, 0}, "context.size: 3, but 8 rows are not divided by 6"},
      {{ContextOrder::kZigzag, 2, 0, 2}, "context.pad_multiple: 2, which is for zig-zag within"},
      {{ContextOrder::kZigzagSequences, 2, 0, 0}, "context.pad_multiple: 0, at least 1"},
      {{ContextOrder::kZigzagSequences, 2, 0, ~0u}, "rows, at most 2147483647"},
  };
  for (const Case& c : cases) {
    const absl::Status status = SliceTokens({5, 2}, 8, c.context).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(SliceRow, TakesRangesOfEachDimension) {
  const std::vector<uint32_t> shape = {6, 10};
  auto layers = SliceRow(shape, 2, {{{2, 4}}});
  ASSERT_TRUE(layers.ok()) << layers.status();
  EXPECT_THAT(layers->inner, ElementsAre(2, 10));
  EXPECT_THAT(layers->runs, ElementsAre(ByteRun{40, 40}));
  EXPECT_EQ(layers->bytes, 40u);
  EXPECT_EQ(layers->row_bytes, 120u);
  // The stage of an interleaved pipeline, and the first of its experts.
  auto stage = SliceRow(shape, 2, {{{0, 1}, {3, 4}}, {{0, 3}}});
  ASSERT_TRUE(stage.ok()) << stage.status();
  EXPECT_THAT(stage->inner, ElementsAre(2, 3));
  EXPECT_THAT(stage->runs, ElementsAre(ByteRun{0, 6}, ByteRun{60, 6}));
  EXPECT_TRUE(SliceRow(shape, 2, {{}, {{0, 10}}})->whole());
  EXPECT_TRUE(SliceRow({}, 4, {})->whole());
}

TEST(SliceRow, AgreesWithIndexingAnArray) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Prng prng(seed);
    std::vector<uint32_t> shape(prng.Below(5));
    for (uint32_t& size : shape) size = static_cast<uint32_t>(1 + prng.Below(5));
    std::vector<std::vector<IndexRange>> dimensions(prng.Below(shape.size() + 1));
    std::vector<std::vector<bool>> taken;
    for (size_t d = 0; d < shape.size(); ++d) {
      const bool whole = d >= dimensions.size() || prng.Below(3) == 0;
      taken.emplace_back(shape[d], whole);
      for (uint32_t at = 0; !whole && at < shape[d];) {
        const auto begin = static_cast<uint32_t>(at + prng.Below(3));
        const auto end = static_cast<uint32_t>(begin + 1 + prng.Below(3));
        if (end > shape[d]) break;
        dimensions[d].push_back({begin, end});
        for (uint32_t i = begin; i < end; ++i) taken[d][i] = true;
        at = end;
      }
      // No range means all.
      if (!whole && dimensions[d].empty()) taken[d].assign(shape[d], true);
    }
    const auto width = static_cast<uint32_t>(1 + prng.Below(4));
    uint64_t values = 1;
    for (const uint32_t size : shape) values *= size;
    std::vector<uint64_t> expected;
    for (uint64_t value = 0; value < values; ++value) {
      uint64_t rest = value;
      bool in = true;
      for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) in &= taken[d][rest % shape[d]];
      for (uint32_t byte = 0; in && byte < width; ++byte) expected.push_back(value * width + byte);
    }
    const auto slice = SliceRow(shape, width, dimensions);
    ASSERT_TRUE(slice.ok()) << slice.status();
    std::vector<uint64_t> bytes;
    for (size_t r = 0; r < slice->runs.size(); ++r) {
      const ByteRun& run = slice->runs[r];
      const uint64_t free_from = r > 0 ? slice->runs[r - 1].offset + slice->runs[r - 1].bytes : 0;
      ASSERT_TRUE(r == 0 || run.offset > free_from);
      for (uint64_t at = 0; at < run.bytes; ++at) bytes.push_back(run.offset + at);
    }
    ASSERT_EQ(bytes, expected) << "seed " << seed;
    ASSERT_EQ(slice->bytes, bytes.size());
    ASSERT_EQ(slice->row_bytes, values * width);
  }
}

TEST(SliceRow, RefusesByNameValueAndLimit) {
  const auto message = [](const std::vector<uint32_t>& shape,
                          const std::vector<std::vector<IndexRange>>& dimensions) {
    const absl::Status status = SliceRow(shape, 2, dimensions).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message({6}, {{{4, 7}}}), HasSubstr("dimensions[0].ranges[0]: 4 to 7"));
  EXPECT_THAT(message({6}, {{{4, 7}}}), HasSubstr("must be a range within 0 to 6"));
  EXPECT_THAT(message({6}, {{{2, 2}}}), HasSubstr("dimensions[0].ranges[0]: 2 to 2"));
  EXPECT_THAT(message({6, 2}, {{{0, 2}, {1, 3}}}), HasSubstr("ranges[1]: 1 to 3, must be a range"));
  EXPECT_THAT(message({6}, {{}, {{0, 1}}}), HasSubstr("dimensions: 2, the column has 1"));
  EXPECT_THAT(message({}, {{{0, 1}}}), HasSubstr("dimensions: 1, the column has 0"));
  EXPECT_THAT(message({5000, 2}, {{}, {{0, 1}}}), HasSubstr("more than 4096 pieces"));
  EXPECT_THAT(message({~0u, ~0u, 2}, {{}, {}, {{0, 1}}}), HasSubstr("of more than 4294967296"));
}

// A share of a micro-batch is the rows of the whole one, in the order of the share.
TEST(Layout, OfAShareHasTheRowsOfTheWholeOne) {
  using Byte = std::tuple<SegmentKind, uint32_t, uint64_t>;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Prng prng(seed);
    const std::vector<ColumnSpec> columns = {
        {3}, {1, true}, {2, true, Alignment::kPredicting}, {2, false, Alignment::kPredicting}};
    const size_t count = prng.Below(5);
    std::vector<std::vector<ColumnPlace>> places(count);
    std::vector<std::vector<TokenRange>> masked(count);
    std::vector<SequencePlace> sequences;
    std::vector<uint32_t> lengths;
    for (uint32_t s = 0; s < count; ++s) {
      const auto tokens = static_cast<uint32_t>(1 + prng.Below(14));
      lengths.push_back(tokens);
      for (uint32_t c = 0; c < columns.size(); ++c) {
        const uint64_t missing = columns[c].loss_mask ? 0 : prng.Below(2);
        places[s].push_back({columns[c].loss_mask || prng.Below(5) > 0, 1000 * c,
                             (tokens - missing) * columns[c].bytes_per_token, 10 * s + c});
      }
      const auto begin = static_cast<uint32_t>(prng.Below(tokens));
      if (prng.Below(2) == 0) masked[s] = {{begin, tokens}};
      sequences.push_back({tokens, s, places[s], masked[s]});
    }
    ContextSlice context{static_cast<ContextOrder>(prng.Below(3)),
                         static_cast<uint32_t>(1 + prng.Below(3))};
    context.rank = static_cast<uint32_t>(prng.Below(context.size));
    const uint32_t multiple = 2 * context.size;
    const auto bytes_of = [](const Layout& layout, size_t c) {
      std::vector<Byte> bytes;
      for (const Segment& segment : layout.columns[c].segments) {
        const bool real = segment.kind == SegmentKind::kPayload;
        for (uint64_t at = 0; at < segment.bytes; ++at) {
          bytes.emplace_back(segment.kind, segment.payload, real ? segment.offset + at : 0);
        }
      }
      return bytes;
    };
    const auto whole = MakeLayout(sequences, {columns, multiple});
    const auto share = MakeLayout(sequences, {columns, multiple, context});
    ASSERT_TRUE(whole.ok() && share.ok()) << whole.status() << share.status();
    EXPECT_EQ(share->whole_cu_seqlens, whole->cu_seqlens);
    EXPECT_EQ(share->whole_padded_tokens, whole->padded_tokens);
    const auto rows = Naive(lengths, whole->padded_tokens, context);
    ASSERT_EQ(share->padded_tokens, rows.size());
    for (size_t c = 0; c < columns.size(); ++c) {
      const uint64_t width = columns[c].bytes_per_token;
      const std::vector<Byte> all = bytes_of(*whole, c);
      std::vector<Byte> expected;
      for (const auto& [sequence, row] : rows) {
        const bool padding = sequence == count || row >= lengths[sequence];
        const uint64_t from =
            padding ? 0 : (static_cast<uint64_t>(whole->cu_seqlens[sequence]) + row) * width;
        for (uint64_t at = 0; at < width; ++at) {
          expected.push_back(padding ? Byte{SegmentKind::kZero, Segment::kNoPayload, 0}
                                     : all[from + at]);
        }
      }
      ASSERT_EQ(bytes_of(*share, c), expected) << "seed " << seed << " column " << c;
    }
  }
}

TEST(Layout, OfAShareHasItsResponseTokens) {
  const ColumnSpec columns[] = {{.bytes_per_response_token = 4}};
  const ColumnPlace first[] = {{true, 100, 12}}, second[] = {{true, 0, 4}};
  const SequencePlace sequences[] = {{5, 0, first, {}, 2}, {3, 1, second, {}, 2}};
  const auto share = [&](uint32_t rank) {
    auto layout = MakeLayout(sequences, {columns, 8, ContextSlice{ContextOrder::kZigzag, 2, rank}});
    EXPECT_TRUE(layout.ok()) << layout.status();
    return layout->columns[0];
  };
  EXPECT_THAT(share(0).sequence_bytes, ElementsAre(0, 4));  // rows 0, 1 and 6, 7
  EXPECT_THAT(share(1).sequence_bytes, ElementsAre(12, 0));
  EXPECT_EQ(share(0).segments[0].payload, 1u);
  EXPECT_EQ(share(1).segments[0].offset, 100u);
  const SequencePlace wrong[] = {{5, 0, first, {}, 3}};
  const absl::Status status = MakeLayout(wrong, {columns}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("bytes: 12, the response tokens have 8"));
}

}  // namespace
}  // namespace forebay::batch
