#include "batch/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "base/prng.h"

namespace forebay::batch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ColumnSpec kTokens = {4, false};
constexpr ColumnSpec kMask = {1, true};
constexpr ColumnSpec kBlob = {0, false};

constexpr ColumnSpec kPredictingMask = {1, true, Alignment::kPredicting};

Segment Payload(uint32_t payload, uint64_t offset, uint64_t bytes) {
  return {payload, SegmentKind::kPayload, offset, bytes};
}
Segment Zero(uint64_t bytes) { return {Segment::kNoPayload, SegmentKind::kZero, 0, bytes}; }
Segment Missing(uint64_t bytes) { return {Segment::kNoPayload, SegmentKind::kMissing, 0, bytes}; }

Layout MakeOrDie(absl::Span<const SequencePlace> sequences, const LayoutSpec& spec) {
  absl::StatusOr<Layout> layout = MakeLayout(sequences, spec);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

TEST(Layout, ConcatenatesSequencesAndPadsTheEnd) {
  const ColumnSpec columns[] = {kTokens};
  const ColumnPlace first[] = {{true, 100, 12}}, second[] = {{true, 0, 20}};
  const SequencePlace sequences[] = {{3, 0, first}, {5, 1, second}};
  const Layout layout = MakeOrDie(sequences, {columns, 16});
  EXPECT_THAT(layout.cu_seqlens, ElementsAre(0, 3, 8));
  EXPECT_EQ(layout.max_seqlen, 5);
  EXPECT_EQ(layout.tokens, 8);
  EXPECT_EQ(layout.padded_tokens, 16);
  EXPECT_THAT(layout.columns[0].segments,
              ElementsAre(Payload(0, 100, 12), Payload(1, 0, 20), Zero(32)));
  EXPECT_EQ(layout.columns[0].bytes, 64);
  EXPECT_EQ(layout.bytes, 64);
}

TEST(Layout, JoinsAdjacentBytesOfOnePayloadOnly) {
  const ColumnSpec columns[] = {kTokens};
  const ColumnPlace first[] = {{true, 100, 8}}, second[] = {{true, 108, 8}};
  const SequencePlace one_rollout[] = {{2, 7, first}, {2, 7, second}};
  EXPECT_THAT(MakeOrDie(one_rollout, {columns}).columns[0].segments,
              ElementsAre(Payload(7, 100, 16)));
  const SequencePlace two_rollouts[] = {{2, 7, first}, {2, 8, second}};
  EXPECT_THAT(MakeOrDie(two_rollouts, {columns}).columns[0].segments,
              ElementsAre(Payload(7, 100, 8), Payload(8, 108, 8)));
}

TEST(Layout, ShiftsAMaskToThePredictingPosition) {
  const ColumnSpec columns[] = {kPredictingMask};
  const ColumnPlace first[] = {{true, 50, 4}}, second[] = {{true, 70, 1}};
  const SequencePlace sequences[] = {{4, 0, first}, {1, 1, second}};
  const Layout layout = MakeOrDie(sequences, {columns});
  // The second sequence has nothing to predict: both last rows join into one run of zeros.
  EXPECT_THAT(layout.columns[0].segments, ElementsAre(Payload(0, 51, 3), Zero(2)));
}

TEST(Layout, ZeroesMaskedRangesInEitherAlignment) {
  const ColumnSpec columns[] = {kMask, kTokens};
  const ColumnPlace places[] = {{true, 0, 8}, {true, 8, 32}};
  const TokenRange masked[] = {{0, 2}, {4, 6}};
  const SequencePlace sequences[] = {{8, 0, places, masked}};
  const Layout token = MakeOrDie(sequences, {columns});
  EXPECT_THAT(token.columns[0].segments,
              ElementsAre(Zero(2), Payload(0, 2, 2), Zero(2), Payload(0, 6, 2)));
  EXPECT_THAT(token.columns[1].segments, ElementsAre(Payload(0, 8, 32)));
  const ColumnSpec shifted[] = {kPredictingMask, kTokens};
  const Layout predicting = MakeOrDie(sequences, {shifted});
  EXPECT_THAT(predicting.columns[0].segments,
              ElementsAre(Zero(1), Payload(0, 2, 2), Zero(2), Payload(0, 6, 2), Zero(1)));
}

TEST(Layout, FillsMissingColumnsAndMissingLastRows) {
  const ColumnSpec columns[] = {{384, false}, kTokens};
  const ColumnPlace first[] = {{true, 0, 2 * 384}, {}}, second[] = {{}, {}};
  const SequencePlace sequences[] = {{3, 0, first}, {2, 1, second}};
  const Layout layout = MakeOrDie(sequences, {columns, 2});
  EXPECT_THAT(layout.columns[0].segments,
              ElementsAre(Payload(0, 0, 768), Missing(3 * 384), Zero(384)));
  EXPECT_THAT(layout.columns[1].segments, ElementsAre(Missing(20), Zero(4)));
}

TEST(Layout, ReportsLengthsOfColumnsThatAreNotPerToken) {
  const ColumnSpec columns[] = {kBlob};
  const ColumnPlace first[] = {{true, 5, 11}}, second[] = {{}}, third[] = {{true, 0, 3}};
  const SequencePlace sequences[] = {{3, 0, first}, {2, 1, second}, {2, 2, third}};
  const Layout layout = MakeOrDie(sequences, {columns, 64});
  EXPECT_THAT(layout.columns[0].sequence_bytes, ElementsAre(11, 0, 3));
  EXPECT_THAT(layout.columns[0].segments, ElementsAre(Payload(0, 5, 11), Payload(2, 0, 3)));
  EXPECT_EQ(layout.bytes, 14);
}

TEST(Layout, OfAFillerIsEmpty) {
  const ColumnSpec columns[] = {kTokens, kMask, kBlob};
  const Layout layout = MakeOrDie({}, {columns, 128});
  EXPECT_THAT(layout.cu_seqlens, ElementsAre(0));
  EXPECT_EQ(layout.padded_tokens, 0);
  EXPECT_EQ(layout.bytes, 0);
}

// A micro-batch of random sequences, and where each of its bytes should come from, byte by byte.
struct RandomBatch {
  std::vector<ColumnSpec> columns;
  std::vector<std::vector<ColumnPlace>> places;
  std::vector<std::vector<TokenRange>> masked;
  std::vector<SequencePlace> sequences;
  LayoutSpec spec;

  explicit RandomBatch(uint64_t seed) {
    Prng prng(seed);
    columns.resize(1 + prng.Below(4));
    for (ColumnSpec& column : columns) {
      column.bytes_per_token = static_cast<uint32_t>(prng.Below(5));
      column.loss_mask = column.bytes_per_token > 0 && prng.Below(2) == 0;
      if (column.bytes_per_token > 0 && prng.Below(2) == 0) {
        column.alignment = Alignment::kPredicting;
      }
    }
    const size_t count = prng.Below(6);
    places.resize(count);
    masked.resize(count);
    uint32_t payload = 0;
    uint64_t end = 0;
    for (size_t s = 0; s < count; ++s) {
      const auto tokens = static_cast<uint32_t>(1 + prng.Below(12));
      if (prng.Below(2) == 0) ++payload, end = 0;
      for (const ColumnSpec& column : columns)
        places[s].push_back(Place(prng, column, tokens, end));
      for (uint32_t at = 0; at < tokens;) {
        const auto begin = static_cast<uint32_t>(at + prng.Below(4));
        const auto until = static_cast<uint32_t>(begin + 1 + prng.Below(4));
        if (until > tokens) break;
        masked[s].push_back({begin, until});
        at = until;
      }
      sequences.push_back({tokens, payload, places[s], masked[s]});
    }
    spec = {columns, static_cast<uint32_t>(1 + prng.Below(9))};
  }

  static ColumnPlace Place(Prng& prng, const ColumnSpec& column, uint64_t tokens, uint64_t& end) {
    if (prng.Below(5) == 0) return {};
    uint64_t rows = tokens;
    if (!column.loss_mask && prng.Below(3) == 0) rows -= 1;
    const uint64_t bytes =
        column.bytes_per_token == 0 ? prng.Below(9) : rows * column.bytes_per_token;
    const uint64_t offset = end + (prng.Below(2) == 0 ? 0 : prng.Below(3));
    end = offset + bytes;
    return {true, offset, bytes};
  }

  using Byte = std::tuple<SegmentKind, uint32_t, uint64_t>;  // kind, payload, offset

  std::vector<Byte> ExpectedBytes(size_t c) const {
    const uint64_t width = columns[c].bytes_per_token;
    std::vector<Byte> bytes;
    uint64_t tokens = 0;
    for (const SequencePlace& sequence : sequences) {
      const ColumnPlace& place = sequence.columns[c];
      tokens += sequence.tokens;
      const bool shifts = columns[c].alignment == Alignment::kPredicting;
      const uint64_t size = width == 0 ? place.bytes : sequence.tokens * width;
      for (uint64_t at = 0; at < size; ++at) {
        const uint64_t from = at + (shifts ? width : 0);
        bool zero = from >= size;
        for (const TokenRange& range : sequence.masked) {
          zero |= columns[c].loss_mask && from >= range.begin * width && from < range.end * width;
        }
        if (zero) {
          bytes.emplace_back(SegmentKind::kZero, 0, 0);
        } else if (!place.present || from >= place.bytes) {
          bytes.emplace_back(SegmentKind::kMissing, 0, 0);
        } else {
          bytes.emplace_back(SegmentKind::kPayload, sequence.payload, place.offset + from);
        }
      }
    }
    while (width > 0 && tokens++ % spec.pad_multiple != 0) {
      bytes.insert(bytes.end(), width, Byte{SegmentKind::kZero, 0, 0});
    }
    return bytes;
  }
};

TEST(Layout, TakesEveryByteFromItsPlaceExactlyOnce) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const RandomBatch batch(seed);
    const Layout layout = MakeOrDie(batch.sequences, batch.spec);
    uint64_t total = 0;
    for (size_t c = 0; c < batch.columns.size(); ++c) {
      std::vector<RandomBatch::Byte> bytes;
      for (const Segment& segment : layout.columns[c].segments) {
        ASSERT_GT(segment.bytes, 0);
        for (uint64_t at = 0; at < segment.bytes; ++at) {
          if (segment.kind == SegmentKind::kPayload) {
            bytes.emplace_back(segment.kind, segment.payload, segment.offset + at);
          } else {
            bytes.emplace_back(segment.kind, 0, 0);
          }
        }
      }
      ASSERT_EQ(bytes, batch.ExpectedBytes(c)) << "seed " << seed << " column " << c;
      ASSERT_EQ(layout.columns[c].bytes, bytes.size());
      total += bytes.size();
    }
    ASSERT_EQ(layout.bytes, total);
  }
}

TEST(Layout, JoinsAllNeighboursThatContinueEachOther) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const RandomBatch batch(seed);
    for (const ColumnLayout& column : MakeOrDie(batch.sequences, batch.spec).columns) {
      for (size_t i = 1; i < column.segments.size(); ++i) {
        const Segment& left = column.segments[i - 1];
        const Segment& right = column.segments[i];
        if (left.kind != right.kind) continue;
        ASSERT_EQ(left.kind, SegmentKind::kPayload) << "seed " << seed;
        ASSERT_FALSE(left.offset + left.bytes == right.offset && left.payload == right.payload)
            << "seed " << seed;
      }
    }
  }
}

TEST(Layout, RefusesWhatContradictsItselfByNameValueAndLimit) {
  struct Case {
    ColumnSpec column;
    uint32_t tokens;
    ColumnPlace place;
    TokenRange masked;
    uint32_t pad_multiple;
    const char* message;
  };
  const Case cases[] = {
      {kTokens, 4, {true, 0, 20}, {0, 1}, 1, "sequences[0].columns[0].bytes: 20, must be whole"},
      {kTokens, 4, {true, 0, 15}, {0, 1}, 1, "sequences[0].columns[0].bytes: 15, must be whole"},
      {kMask, 4, {true, 0, 3}, {0, 1}, 1, "bytes: 3, a loss mask must have all 4"},
      {kTokens, 0, {true, 0, 0}, {0, 1}, 1, "sequences[0].tokens: 0, from 1 to 2147483647"},
      {kTokens, 4, {true, 0, 16}, {0, 5}, 1, "sequences[0].masked[0]: 0 to 5, must be"},
      {kTokens, 4, {true, 0, 16}, {2, 2}, 1, "sequences[0].masked[0]: 2 to 2, must be"},
      {kTokens, 4, {true, 0, 16}, {0, 1}, 0, "pad_multiple: 0, at least 1"},
      {kTokens, 4, {true, 0, 16}, {0, 1}, 1u << 31, "pad_multiple: 2147483648, pads 4 tokens"},
      {{0, true}, 4, {true, 0, 4}, {0, 1}, 1, "columns[0].bytes_per_token: 0, at least 1"},
      {kBlob, 4, {true, 0, uint64_t{1} << 41}, {0, 1}, 1, "bytes 2199023255552, each at most"},
      {kBlob, 4, {true, ~uint64_t{0}, 1}, {0, 1}, 1, "offset 18446744073709551615, bytes 1"},
      {{~0u, false}, 1u << 30, {}, {0, 1}, 1, "columns[0]: 4611686017353646080 bytes, at most"},
  };
  for (const Case& c : cases) {
    const SequencePlace sequences[] = {{c.tokens, 0, {&c.place, 1}, {&c.masked, 1}}};
    const absl::Status status = MakeLayout(sequences, {{&c.column, 1}, c.pad_multiple}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(Layout, RefusesMoreTokensThanCuSeqlensCanCount) {
  const SequencePlace sequences[] = {{1u << 30, 0, {}}, {1u << 30, 1, {}}};
  const absl::Status status = MakeLayout(sequences, {}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("over 2147483647 tokens"));
}

TEST(Layout, RefusesASequenceWithoutAPlaceForEachColumn) {
  const ColumnSpec columns[] = {kTokens, kMask};
  const ColumnPlace place[] = {{true, 0, 8}};
  const SequencePlace sequences[] = {{2, 0, place}};
  const absl::Status status = MakeLayout(sequences, {columns}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("sequences[0].columns: 1, must be 2"));
}

}  // namespace
}  // namespace forebay::batch
