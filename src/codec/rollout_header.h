// Decodes forebay.v1.RolloutHeader by hand, and checks it: this runs for every rollout that comes
// in.
//
// The struct is reused between calls, so its vectors stop allocating; text views point into the
// decoded bytes, which must outlive it. Pure; one header belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "codec/limits.h"

namespace forebay::codec {

// The numbers of forebay.v1.DType.
enum class DType : uint8_t {
  kUnspecified = 0,
  kU8 = 1,
  kI8 = 2,
  kU16 = 3,
  kI16 = 4,
  kU32 = 5,
  kI32 = 6,
  kU64 = 7,
  kI64 = 8,
  kF16 = 9,
  kBf16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBool = 13,
};
inline constexpr uint32_t kDTypeMax = 13;
// Bytes of one value; 0 for one that is unknown.
constexpr uint32_t DTypeBytes(uint32_t dtype) {
  constexpr uint8_t kBytes[kDTypeMax + 1] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1};
  return dtype <= kDTypeMax ? kBytes[dtype] : 0;
}

// The numbers of forebay.v1.Domain.
enum class Domain : uint8_t {
  kUnspecified = 0,
  kToken = 1,
  kResponseToken = 2,
  kTokenButLast = 3,
  kSequence = 4,
  kRagged = 5,
  kBlob = 6,
};
inline constexpr uint32_t kDomainMax = 6;

// The numbers of forebay.v1.RolloutStatus.
enum class WireRolloutStatus : uint8_t {
  kUnspecified = 0,
  kFinished = 1,
  kTruncated = 2,
  kAborted = 3
};

// Part of a shared vector of the header.
struct Range {
  uint32_t begin = 0;
  uint32_t count = 0;
};

struct HeaderColumn {
  std::string_view name;
  uint32_t dtype = 0;   // DType, as sent
  uint32_t domain = 0;  // Domain, as sent
  uint32_t inner[kInnerDimensionsMax] = {};
  uint32_t inner_count = 0;  // as sent; may exceed what `inner` holds
  double missing = 0;
  uint64_t bytes = 0;
  std::optional<uint32_t> crc32c;
  Range sequence_bytes;
  // Name, dtype, domain and inner shape are those of a column that passed the check.
  bool shape_checked = false;

  // The domain with its default.
  Domain domain_or_token() const {
    return domain == 0 ? Domain::kToken : static_cast<Domain>(domain);
  }
};

struct HeaderVersionRun {
  uint32_t offset = 0;
  uint32_t branch = 0;
  uint32_t number = 0;
  uint32_t loss_tokens = 0;
};

struct HeaderTurn {
  uint32_t offset = 0;
  uint32_t tokens = 0;
  std::string_view engine;  // "": the rollout's
};

struct HeaderSequence {
  uint32_t tokens = 0;
  uint32_t prompt_tokens = 0;
  uint32_t loss_tokens = 0;
  std::optional<float> advantage;
  Range versions;
  Range turns;
};

struct HeaderReward {
  std::string_view name;
  double value = 0;
};

// What is wrong, and where: "columns[2].bytes", "is 12, must be 16". Empty: nothing.
struct FieldError {
  std::string field;
  std::string message;
  bool ok() const { return field.empty(); }
};

struct RolloutHeader {
  uint64_t attempt_id = 0;
  uint32_t token = 0;
  uint32_t status = 0;  // WireRolloutStatus, as sent
  std::vector<HeaderSequence> sequences;
  std::vector<HeaderColumn> columns;
  std::vector<HeaderReward> rewards;  // no name twice; in order of arrival
  uint64_t duration_ms = 0;
  std::string_view extra_json;
  bool partial = false;
  std::string_view source;
  std::string_view site;
  std::string_view engine;  // that sampled what no turn names another for

  std::vector<HeaderVersionRun> version_runs;  // of all sequences
  std::vector<HeaderTurn> turns;
  std::vector<uint64_t> sequence_bytes;  // of all columns

  void Clear();
  absl::Span<const HeaderVersionRun> versions(const HeaderSequence& sequence) const {
    return {version_runs.data() + sequence.versions.begin, sequence.versions.count};
  }
  absl::Span<const uint64_t> parts(const HeaderColumn& column) const {
    return {sequence_bytes.data() + column.sequence_bytes.begin, column.sequence_bytes.count};
  }
  absl::Span<const HeaderTurn> turns_of(const HeaderSequence& sequence) const {
    return {turns.data() + sequence.turns.begin, sequence.turns.count};
  }
  // Sum of the columns' bytes; saturates.
  uint64_t payload_bytes() const {
    uint64_t sum = 0;
    for (const HeaderColumn& column : columns) {
      if (__builtin_add_overflow(sum, column.bytes, &sum)) return UINT64_MAX;
    }
    return sum;
  }
  // kColumnsMax or more if there is none.
  size_t FindColumn(std::string_view name) const;
};

// False if the bytes are no RolloutHeader, or hold more than kSequencesMax, kColumnsMax or
// kRewardsMax entries; `error` says which. Counts beyond a limit stop the decoding, so that a
// hostile header costs no more than its bytes.
bool DecodeRolloutHeader(std::string_view bytes, RolloutHeader* header, FieldError* error);

struct HeaderRules {
  uint64_t rollout_bytes_max = kRolloutBytesMax;  // header and payload
};

// Checks everything that can be known without the source: limits, dtypes, shapes, domains, bytes
// against lengths, names, finite rewards, version runs that rise and add up. A column's loss_mask
// and tokens have their own shapes.
bool CheckRolloutHeader(const RolloutHeader& header, size_t header_bytes, const HeaderRules& rules,
                        FieldError* error);
inline FieldError CheckRolloutHeader(const RolloutHeader& header, size_t header_bytes,
                                     const HeaderRules& rules = {}) {
  FieldError error;
  CheckRolloutHeader(header, header_bytes, rules, &error);
  return error;
}

// Whether a column whose name is well known has the dtype, domain and inner shape of those; others
// may have any. Part of CheckRolloutHeader.
bool CheckKnownColumn(const HeaderColumn& column, size_t index, FieldError* error);

// A column's bytes of one sequence, by its domain; `column` has been checked.
uint64_t SequencePartBytes(const RolloutHeader& header, const HeaderColumn& column,
                           size_t sequence);

// Bytes of one row: dtype and inner shape. Saturates.
inline uint64_t RowBytes(const HeaderColumn& column) {
  uint64_t bytes = DTypeBytes(column.dtype);
  for (uint32_t i = 0; i < column.inner_count && i < kInnerDimensionsMax; ++i) {
    if (__builtin_mul_overflow(bytes, uint64_t{column.inner[i]}, &bytes)) return UINT64_MAX;
  }
  return bytes;
}

}  // namespace forebay::codec
