#include "batch/slice.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::batch {
namespace {

constexpr uint64_t kMostTokens = std::numeric_limits<int32_t>::max();
constexpr uint64_t kMostRowBytes = uint64_t{1} << 32;

template <class... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

absl::Status CheckContext(const ContextSlice& context) {
  if (context.size == 0 || context.size > kContextSizeMax) {
    return Refuse("context.size: ", context.size, ", from 1 to ", kContextSizeMax);
  }
  if (context.rank >= context.size) {
    return Refuse("context.rank: ", context.rank, ", below context.size, ", context.size);
  }
  if (context.pad_multiple == 0) return Refuse("context.pad_multiple: 0, at least 1");
  if (context.pad_multiple > 1 && context.order != ContextOrder::kZigzagSequences) {
    return Refuse("context.pad_multiple: ", context.pad_multiple,
                  ", which is for zig-zag within sequences; otherwise the step's pads all");
  }
  return absl::OkStatus();
}

// Appends the rows of the packed sequences that lie in [begin, end), padding as one more sequence.
void Cut(absl::Span<const uint64_t> starts, uint64_t begin, uint64_t end,
         std::vector<TokenSpan>* spans) {
  auto after = std::upper_bound(starts.begin(), starts.end(), begin);
  while (begin < end) {
    const auto sequence = static_cast<uint32_t>(after - starts.begin() - 1);
    const uint64_t start = starts[sequence];
    const uint64_t stop = after == starts.end() ? end : std::min(end, *after);
    const TokenSpan span{sequence, static_cast<uint32_t>(begin - start),
                         static_cast<uint32_t>(stop - start)};
    const bool continues =
        !spans->empty() && spans->back().sequence == sequence && spans->back().end == span.begin;
    if (continues) {
      spans->back().end = span.end;
    } else if (span.end > span.begin) {
      spans->push_back(span);
    }
    begin = stop;
    ++after;
  }
}

absl::Status CutPacked(absl::Span<const uint32_t> sequences, uint64_t padded_tokens,
                       const ContextSlice& context, std::vector<TokenSpan>* spans) {
  const bool zigzag = context.order == ContextOrder::kZigzag;
  const uint64_t chunks = uint64_t{context.size} * (zigzag ? 2 : 1);
  if (padded_tokens % chunks != 0) {
    return Refuse("context.size: ", context.size, ", but ", padded_tokens,
                  " rows are not divided by ", chunks, "; a step with a pad_multiple of ", chunks,
                  " has such rows");
  }
  std::vector<uint64_t> starts = {0};
  for (const uint32_t tokens : sequences) starts.push_back(starts.back() + tokens);
  if (starts.back() > padded_tokens) {
    return Refuse("sequences: ", starts.back(), " tokens, at most the rows, ", padded_tokens);
  }
  const uint64_t chunk = padded_tokens / chunks;
  Cut(starts, context.rank * chunk, (context.rank + 1) * chunk, spans);
  if (zigzag) {
    const uint64_t other = chunks - 1 - context.rank;
    Cut(starts, other * chunk, (other + 1) * chunk, spans);
  }
  return absl::OkStatus();
}

void CutSequences(absl::Span<const uint32_t> sequences, const ContextSlice& context,
                  std::vector<TokenSpan>* spans) {
  const uint64_t chunks = uint64_t{context.size} * 2;
  for (uint32_t s = 0; s < sequences.size(); ++s) {
    const uint64_t chunk = RoundUp(sequences[s], chunks) / chunks;
    const uint64_t first = context.rank * chunk, second = (chunks - 1 - context.rank) * chunk;
    const auto span = [&](uint64_t begin, uint64_t end) {
      spans->push_back({s, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    };
    if (first + chunk == second) {
      span(first, second + chunk);
    } else {
      span(first, first + chunk);
      span(second, second + chunk);
    }
  }
}

}  // namespace

absl::StatusOr<TokenSlice> SliceTokens(absl::Span<const uint32_t> sequences, uint64_t padded_tokens,
                                       const ContextSlice& context) {
  FOREBAY_RETURN_IF_ERROR(CheckContext(context));
  TokenSlice slice;
  if (context.order == ContextOrder::kZigzagSequences) {
    CutSequences(sequences, context, &slice.spans);
  } else {
    FOREBAY_RETURN_IF_ERROR(CutPacked(sequences, padded_tokens, context, &slice.spans));
  }
  const size_t count = sequences.size();
  std::vector<uint64_t> rows(count + 1);
  for (const TokenSpan& span : slice.spans) rows[span.sequence] += span.end - span.begin;
  uint64_t tokens = 0;
  slice.cu_seqlens.push_back(0);
  for (size_t s = 0; s < count; ++s) {
    tokens += rows[s];
    if (tokens > kMostTokens) break;
    slice.cu_seqlens.push_back(static_cast<int32_t>(tokens));
    slice.max_seqlen = std::max(slice.max_seqlen, static_cast<uint32_t>(rows[s]));
  }
  slice.padded_tokens = RoundUp(tokens + rows[count], context.pad_multiple);
  if (slice.padded_tokens > kMostTokens) {
    return Refuse("context: pads the slice to ", slice.padded_tokens, " rows, at most ",
                  kMostTokens);
  }
  if (const uint64_t more = slice.padded_tokens - tokens - rows[count]; more > 0) {
    slice.spans.push_back({static_cast<uint32_t>(count), 0, static_cast<uint32_t>(more)});
  }
  return slice;
}

namespace {

// The runs of one dimension's indexes, each of which has the runs of the dimensions within.
class RunBuilder {
 public:
  explicit RunBuilder(uint64_t extent) : extent_(extent), runs_({{0, extent}}) {}

  // False if there would be too many.
  bool Take(uint32_t size, absl::Span<const IndexRange> ranges) {
    const bool solid = runs_.size() == 1 && runs_[0].bytes == extent_;
    std::vector<ByteRun> next;
    for (const IndexRange& range : ranges) {
      if (solid) {
        Append(range.begin * extent_, (range.end - range.begin) * extent_, &next);
        continue;
      }
      if (next.size() + (range.end - range.begin) * runs_.size() > kRowRunsMax) return false;
      for (uint64_t index = range.begin; index < range.end; ++index) {
        for (const ByteRun& run : runs_) Append(index * extent_ + run.offset, run.bytes, &next);
      }
    }
    runs_ = std::move(next);
    extent_ *= size;
    return runs_.size() <= kRowRunsMax;
  }

  std::vector<ByteRun> TakeRuns() { return std::move(runs_); }
  uint64_t extent() const { return extent_; }

 private:
  static void Append(uint64_t offset, uint64_t bytes, std::vector<ByteRun>* runs) {
    if (!runs->empty() && runs->back().offset + runs->back().bytes == offset) {
      runs->back().bytes += bytes;
    } else {
      runs->push_back({offset, bytes});
    }
  }

  uint64_t extent_;
  std::vector<ByteRun> runs_;
};

absl::Status CheckRanges(absl::Span<const IndexRange> ranges, size_t dimension, uint32_t size) {
  uint32_t free_from = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].begin < free_from || ranges[i].begin >= ranges[i].end || ranges[i].end > size) {
      return Refuse("dimensions[", dimension, "].ranges[", i, "]: ", ranges[i].begin, " to ",
                    ranges[i].end, ", must be a range within ", free_from, " to ", size);
    }
    free_from = ranges[i].end;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RowSlice> SliceRow(absl::Span<const uint32_t> inner, uint32_t value_bytes,
                                  absl::Span<const std::vector<IndexRange>> dimensions) {
  if (dimensions.size() > inner.size()) {
    return Refuse("dimensions: ", dimensions.size(), ", the column has ", inner.size());
  }
  RunBuilder builder(value_bytes);
  RowSlice slice{.inner = {inner.begin(), inner.end()}, .bytes = value_bytes};
  for (size_t d = inner.size(); d-- > 0;) {
    if (inner[d] == 0 || builder.extent() * inner[d] > kMostRowBytes) {
      return Refuse("inner[", d, "]: ", inner[d], ", which makes rows of no bytes or of more than ",
                    kMostRowBytes);
    }
    std::vector<IndexRange> ranges = {{0, inner[d]}};
    if (d < dimensions.size() && !dimensions[d].empty()) {
      FOREBAY_RETURN_IF_ERROR(CheckRanges(dimensions[d], d, inner[d]));
      ranges = dimensions[d];
      slice.inner[d] = 0;
      for (const IndexRange& range : ranges) slice.inner[d] += range.end - range.begin;
    }
    if (!builder.Take(inner[d], ranges)) {
      return Refuse("dimensions[", d, "]: cuts a row into more than ", kRowRunsMax, " pieces");
    }
    slice.bytes *= slice.inner[d];
  }
  slice.runs = builder.TakeRuns();
  slice.row_bytes = builder.extent();
  return slice;
}

}  // namespace forebay::batch
