// A rollout as the client takes and gives it: sequences, rewards, and columns whose bytes stay
// where the caller has them.
//
// Plain values; no thread-safety of their own. The bytes that a Column points to are the caller's;
// each call says for how long they must stay.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace forebay::client {

// The numbers of forebay.v1.DType.
enum class DType : uint8_t {
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

// What one row of a column belongs to; T tokens, P of the prompt.
enum class Domain : uint8_t {
  kToken = 1,          // T rows
  kResponseToken = 2,  // T - P rows
  kTokenButLast = 3,   // T - 1 rows
  kSequence = 4,       // one row
  kRagged = 5,         // u32 offsets [T + 1], then the values
  kBlob = 6,           // bytes as they are
};

enum class RolloutStatus : uint8_t { kFinished = 1, kTruncated = 2, kAborted = 3 };

struct PolicyVersion {
  std::string policy;  // empty: "main"
  uint32_t branch = 0;
  uint32_t number = 0;
  bool operator==(const PolicyVersion&) const = default;
};

// From token `offset` on the sequence was sampled by this version. The runs' loss tokens add up to
// the sequence's.
struct VersionRun {
  uint32_t offset = 0;
  uint32_t branch = 0;
  uint32_t number = 0;
  uint32_t loss_tokens = 0;
};

// A turn of the policy, a tool's answer, a user's message.
struct Turn {
  uint32_t offset = 0;
  uint32_t tokens = 0;
  std::string role;
  std::string engine;
  float temperature = 1;
  float top_p = 1;
  int32_t top_k = 0;
  uint64_t seed = 0;
  uint64_t tool_wait_ms = 0;
};

struct Sequence {
  uint32_t tokens = 0;
  uint32_t prompt_tokens = 0;
  uint32_t loss_tokens = 0;          // nonzero entries of loss_mask
  std::vector<VersionRun> versions;  // empty: the assignment's version throughout
  std::vector<Turn> turns;
  std::optional<float> advantage;  // overrides the rollout's
};

struct Column {
  std::string name;
  DType dtype = DType::kU8;
  Domain domain = Domain::kToken;
  std::vector<uint32_t> inner;  // shape of a row; empty: a scalar
  // The rows of all sequences one after another, little-endian.
  std::string_view bytes;
  double missing = 0;
  // Ragged and blob columns of several sequences: bytes of each sequence's part.
  std::vector<uint64_t> sequence_bytes;
};

struct Rollout {
  RolloutStatus status = RolloutStatus::kFinished;
  std::vector<Sequence> sequences;
  // In any order: those that are large beside the tokens are sent last, so that the daemon may keep
  // them apart (storage.cold_columns).
  std::vector<Column> columns;
  std::map<std::string, double> rewards;
  uint64_t duration_ms = 0;
  std::string extra_json;
  std::string site;
  std::string engine;  // that sampled what no turn names another for; "": the actor's
  // With each column a CRC-32C, so that the daemon checks the bytes end to end.
  bool checksums = true;
};

template <class T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, bool>) return DType::kBool;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    constexpr int kLog = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 2 : sizeof(T) == 4 ? 4 : 6;
    return static_cast<DType>(1 + kLog + (std::is_signed_v<T> ? 1 : 0));
  }
}

// A column over values that stay where they are.
template <class T>
Column MakeColumn(std::string name, absl::Span<const T> values, Domain domain = Domain::kToken,
                  std::vector<uint32_t> inner = {}) {
  static_assert(std::is_arithmetic_v<T>, "give f16 and bf16 as bytes");
  return {.name = std::move(name),
          .dtype = DTypeOf<T>(),
          .domain = domain,
          .inner = std::move(inner),
          .bytes = {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)}};
}

// Checks what can be known without the daemon: shapes, lengths, names, finite rewards. Push does so
// by itself.
absl::Status Check(const Rollout& rollout);

}  // namespace forebay::client
