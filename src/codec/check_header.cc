// The checks of a decoded RolloutHeader. Text is made only for what is wrong.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "codec/rollout_header.h"

namespace forebay::codec {
namespace {

// Debian's Abseil has a string_view of its own.
template <class T>
const T& Piece(const T& value) {
  return value;
}
absl::string_view Piece(std::string_view text) { return {text.data(), text.size()}; }

// Always false, for `return Wrong(...)`. Noinline keeps what is never needed out of the hot path.
template <class... T>
[[gnu::noinline]] bool Wrong(FieldError* error, std::string field, const T&... message) {
  error->field = std::move(field);
  error->message = absl::StrCat(Piece(message)...);
  return false;
}

std::string At(const char* list, size_t index, const char* field) {
  return absl::StrCat(list, "[", index, "].", field);
}

constexpr bool IsNameCharacter(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

constexpr auto kNameCharacters = [] {
  std::array<bool, 256> table{};
  for (int c = 0; c < 256; ++c) table[static_cast<size_t>(c)] = IsNameCharacter(c);
  return table;
}();

bool CheckVersions(const RolloutHeader& header, size_t index, FieldError* error) {
  const HeaderSequence& s = header.sequences[index];
  const auto runs = header.versions(s);
  if (runs.empty()) return true;
  const auto field = [&](size_t i, const char* name) {
    return absl::StrCat("sequences[", index, "].versions[", i, "].", name);
  };
  uint64_t loss_tokens = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (i == 0 && runs[0].offset != 0) {
      return Wrong(error, field(0, "offset"), "is ", runs[0].offset, ", must be 0");
    }
    if (i > 0 && runs[i].offset <= runs[i - 1].offset) {
      return Wrong(error, field(i, "offset"), "is ", runs[i].offset, ", must be above ",
                   runs[i - 1].offset);
    }
    if (runs[i].offset >= s.tokens) {
      return Wrong(error, field(i, "offset"), "is ", runs[i].offset, ", must be below ", s.tokens);
    }
    const uint32_t end = i + 1 < runs.size() ? runs[i + 1].offset : s.tokens;
    if (end > runs[i].offset && runs[i].loss_tokens > end - runs[i].offset) {
      return Wrong(error, field(i, "loss_tokens"), "is ", runs[i].loss_tokens, ", at most ",
                   end - runs[i].offset);
    }
    loss_tokens += runs[i].loss_tokens;
  }
  if (loss_tokens != s.loss_tokens) {
    return Wrong(error, At("sequences", index, "versions"), "have ", loss_tokens,
                 " loss tokens, the sequence has ", s.loss_tokens);
  }
  return true;
}

constexpr size_t kLabelBytesMax = 256;

bool CheckTurns(const RolloutHeader& header, size_t index, FieldError* error) {
  const HeaderSequence& s = header.sequences[index];
  for (uint32_t i = 0; i < s.turns.count; ++i) {
    const HeaderTurn& turn = header.turns[s.turns.begin + i];
    const uint64_t end = uint64_t{turn.offset} + turn.tokens;
    if (end > s.tokens) {
      return Wrong(error, absl::StrCat("sequences[", index, "].turns[", i, "]"), "ends at ", end,
                   ", the sequence at ", s.tokens);
    }
    if (turn.engine.size() > kLabelBytesMax) {
      return Wrong(error, absl::StrCat("sequences[", index, "].turns[", i, "].engine"), "has ",
                   turn.engine.size(), " bytes, at most ", kLabelBytesMax);
    }
  }
  return true;
}

bool CheckSequence(const RolloutHeader& header, size_t index, FieldError* error) {
  const HeaderSequence& s = header.sequences[index];
  if (s.tokens == 0 || s.tokens > kTokensMax) {
    return Wrong(error, At("sequences", index, "tokens"), "is ", s.tokens, ", must be 1 to ",
                 kTokensMax);
  }
  if (s.prompt_tokens > s.tokens) {
    return Wrong(error, At("sequences", index, "prompt_tokens"), "is ", s.prompt_tokens,
                 ", at most ", s.tokens);
  }
  if (s.loss_tokens > s.tokens) {
    return Wrong(error, At("sequences", index, "loss_tokens"), "is ", s.loss_tokens, ", at most ",
                 s.tokens);
  }
  if (s.advantage.has_value() && !std::isfinite(*s.advantage)) {
    return Wrong(error, At("sequences", index, "advantage"), "is ", *s.advantage,
                 ", must be finite");
  }
  return CheckVersions(header, index, error) && CheckTurns(header, index, error);
}

// A list of dtypes as bits.
constexpr uint32_t Bits(std::initializer_list<DType> types) {
  uint32_t bits = 0;
  for (DType type : types) bits |= 1u << static_cast<uint32_t>(type);
  return bits;
}

// Section 6 of the design: what the columns with known names look like.
struct KnownColumn {
  std::string_view name;
  uint32_t dtypes;   // 0: any
  uint32_t domains;  // bits
  uint32_t inner;    // dimensions
  const char* says;
};
constexpr uint32_t kTokenBit = 1u << static_cast<uint32_t>(Domain::kToken);
constexpr uint32_t kButLastBit = 1u << static_cast<uint32_t>(Domain::kTokenButLast);
constexpr uint32_t kBlobBit = 1u << static_cast<uint32_t>(Domain::kBlob);
constexpr uint32_t kFloat = Bits({DType::kF32});
constexpr KnownColumn kKnownColumns[] = {
    {"tokens", Bits({DType::kU32}), kTokenBit, 0, "u32 per token"},
    {"loss_mask", Bits({DType::kU8}), kTokenBit, 0, "u8 per token"},
    {"logprobs", Bits({DType::kF32, DType::kBf16}), kTokenBit, 0, "f32 or bf16 per token"},
    {"old_logprobs", kFloat, kTokenBit, 0, "f32 per token"},
    {"ref_logprobs", kFloat, kTokenBit, 0, "f32 per token"},
    {"teacher_logprobs", kFloat, kTokenBit, 0, "f32 per token"},
    {"values", kFloat, kTokenBit, 0, "f32 per token"},
    {"advantages", kFloat, kTokenBit, 0, "f32 per token"},
    {"routed_experts", Bits({DType::kU8, DType::kU16, DType::kI16}), kTokenBit | kButLastBit, 2,
     "u8, u16 or i16 per token or token but last, inner shape [layers, top_k]"},
    {"text", 0, kBlobBit, 0, "a blob"},
};

}  // namespace

bool CheckKnownColumn(const HeaderColumn& column, size_t index, FieldError* error) {
  for (const KnownColumn& known : kKnownColumns) {
    if (column.name != known.name) continue;
    if (known.dtypes != 0 && (known.dtypes >> column.dtype & 1) == 0) {
      return Wrong(error, At("columns", index, "dtype"), "is ", column.dtype, ", but ", column.name,
                   " is ", known.says);
    }
    if ((known.domains >> static_cast<uint32_t>(column.domain_or_token()) & 1) == 0) {
      return Wrong(error, At("columns", index, "domain"), "is ", column.domain, ", but ",
                   column.name, " is ", known.says);
    }
    if (known.domains != kBlobBit && column.inner_count != known.inner) {
      return Wrong(error, At("columns", index, "inner"), "has ", column.inner_count,
                   " dimensions, but ", column.name, " is ", known.says);
    }
    break;
  }
  return true;
}

namespace {

bool CheckName(const RolloutHeader& header, size_t index, FieldError* error) {
  const std::string_view name = header.columns[index].name;
  if (name.empty() || name.size() > kNameBytesMax) {
    return Wrong(error, At("columns", index, "name"), "has ", name.size(), " bytes, must be 1 to ",
                 kNameBytesMax);
  }
  const auto may = [](char c) { return kNameCharacters[static_cast<unsigned char>(c)]; };
  if (!std::all_of(name.begin(), name.end(), may)) {
    return Wrong(error, At("columns", index, "name"), "may hold letters, digits, '_' and '.' only");
  }
  // Headers have few columns; 256 of them cost 33,000 comparisons of lengths.
  for (size_t i = 0; i < index; ++i) {
    if (header.columns[i].name == name) {
      return Wrong(error, At("columns", index, "name"), "is ", name, ", as columns[", i, "] is");
    }
  }
  return true;
}

// The parts of a ragged or blob column; every other column's follow from the lengths.
bool CheckParts(const RolloutHeader& header, size_t index, FieldError* error) {
  const HeaderColumn& column = header.columns[index];
  const auto parts = header.parts(column);
  const size_t sequences = header.sequences.size();
  if (parts.size() != sequences && !(parts.empty() && sequences == 1)) {
    return Wrong(error, At("columns", index, "sequence_bytes"), "has ", parts.size(),
                 " entries, must have ", sequences);
  }
  uint64_t sum = parts.empty() ? column.bytes : 0;
  for (uint64_t part : parts) {
    if (__builtin_add_overflow(sum, part, &sum)) sum = UINT64_MAX;
  }
  if (sum != column.bytes) {
    return Wrong(error, At("columns", index, "sequence_bytes"), "add up to ", sum, ", bytes is ",
                 column.bytes);
  }
  if (column.domain_or_token() == Domain::kBlob) return true;
  const uint64_t row = RowBytes(column);
  for (size_t s = 0; s < sequences; ++s) {
    const uint64_t offsets = (uint64_t{header.sequences[s].tokens} + 1) * sizeof(uint32_t);
    const uint64_t part = SequencePartBytes(header, column, s);
    if (part < offsets || (part - offsets) % row != 0) {
      return Wrong(error, At("columns", index, "bytes"), "has ", part, " for sequence ", s,
                   ", must be ", offsets, " of offsets and a multiple of ", row);
    }
  }
  return true;
}

// Rows of a column over all sequences, by its domain; at most 1024 x 2^31 each.
struct Rows {
  uint64_t token = 0, response_token = 0, token_but_last = 0, sequence = 0;

  explicit Rows(const RolloutHeader& header) : sequence(header.sequences.size()) {
    for (const HeaderSequence& s : header.sequences) {
      token += s.tokens;
      response_token += s.tokens - s.prompt_tokens;
    }
    token_but_last = token - sequence;
  }

  uint64_t Of(Domain domain) const {
    switch (domain) {
      case Domain::kResponseToken:
        return response_token;
      case Domain::kTokenButLast:
        return token_but_last;
      case Domain::kSequence:
        return sequence;
      default:
        return token;
    }
  }
};

bool CheckRows(const HeaderColumn& column, size_t index, uint64_t rows, FieldError* error) {
  if (column.sequence_bytes.count != 0) {
    return Wrong(error, At("columns", index, "sequence_bytes"), "has ", column.sequence_bytes.count,
                 " entries, must have none: its lengths follow from the sequences");
  }
  uint64_t expected = 0;
  if (__builtin_mul_overflow(rows, RowBytes(column), &expected)) expected = UINT64_MAX;
  if (column.bytes != expected) {
    return Wrong(error, At("columns", index, "bytes"), "is ", column.bytes, ", must be ", expected,
                 " (", rows, " rows of ", RowBytes(column), ")");
  }
  return true;
}

bool CheckShape(const RolloutHeader& header, size_t index, FieldError* error) {
  const HeaderColumn& column = header.columns[index];
  if (!CheckName(header, index, error)) return false;
  if (column.dtype == 0 || column.dtype > kDTypeMax) {
    return Wrong(error, At("columns", index, "dtype"), "is ", column.dtype, ", must be 1 to ",
                 kDTypeMax);
  }
  if (column.domain > kDomainMax) {
    return Wrong(error, At("columns", index, "domain"), "is ", column.domain, ", at most ",
                 kDomainMax);
  }
  if (column.inner_count > kInnerDimensionsMax) {
    return Wrong(error, At("columns", index, "inner"), "has ", column.inner_count,
                 " dimensions, at most ", kInnerDimensionsMax);
  }
  for (uint32_t i = 0; i < column.inner_count; ++i) {
    if (column.inner[i] == 0) {
      return Wrong(error, absl::StrCat("columns[", index, "].inner[", i, "]"),
                   "is 0, must be at least 1");
    }
  }
  return CheckKnownColumn(column, index, error);
}

bool CheckColumn(const RolloutHeader& header, size_t index, const Rows& rows, FieldError* error) {
  const HeaderColumn& column = header.columns[index];
  if (!column.shape_checked && !CheckShape(header, index, error)) return false;
  const Domain domain = column.domain_or_token();
  if (domain == Domain::kRagged || domain == Domain::kBlob) {
    return CheckParts(header, index, error);
  }
  return CheckRows(column, index, rows.Of(domain), error);
}

bool CheckReward(const HeaderReward& reward, FieldError* error) {
  if (reward.name.empty() || reward.name.size() > kNameBytesMax) {
    return Wrong(error, "rewards", "has a name of ", reward.name.size(), " bytes, must be 1 to ",
                 kNameBytesMax);
  }
  // Written so that NaN fails.
  if (!(std::abs(reward.value) <= kRewardMax)) {
    return Wrong(error, absl::StrCat("rewards[", Piece(reward.name), "]"), "is ", reward.value,
                 ", must be finite and within +-", kRewardMax);
  }
  return true;
}

bool CheckText(const RolloutHeader& header, FieldError* error) {
  if (header.extra_json.size() > kExtraJsonBytesMax) {
    return Wrong(error, "extra_json", "has ", header.extra_json.size(), " bytes, at most ",
                 kExtraJsonBytesMax);
  }
  if (header.source.size() > kLabelBytesMax) {
    return Wrong(error, "source", "has ", header.source.size(), " bytes, at most ", kLabelBytesMax);
  }
  if (header.site.size() > kLabelBytesMax) {
    return Wrong(error, "site", "has ", header.site.size(), " bytes, at most ", kLabelBytesMax);
  }
  if (header.engine.size() > kLabelBytesMax) {
    return Wrong(error, "engine", "has ", header.engine.size(), " bytes, at most ", kLabelBytesMax);
  }
  return true;
}

}  // namespace

bool CheckRolloutHeader(const RolloutHeader& header, size_t header_bytes, const HeaderRules& rules,
                        FieldError* error) {
  if (header.status > 3) return Wrong(error, "status", "is ", header.status, ", at most 3");
  if (header.sequences.empty()) {
    return Wrong(error, "sequences", "has no entry, must have at least 1");
  }
  for (size_t i = 0; i < header.sequences.size(); ++i) {
    if (!CheckSequence(header, i, error)) return false;
  }
  const Rows rows(header);
  for (size_t i = 0; i < header.columns.size(); ++i) {
    if (!CheckColumn(header, i, rows, error)) return false;
  }
  for (const HeaderReward& reward : header.rewards) {
    if (!CheckReward(reward, error)) return false;
  }
  if (!CheckText(header, error)) return false;
  const uint64_t payload = header.payload_bytes();
  if (payload > rules.rollout_bytes_max || payload + header_bytes > rules.rollout_bytes_max) {
    return Wrong(error, "bytes", "is ", payload, " of payload and ", header_bytes,
                 " of header, together at most ", rules.rollout_bytes_max);
  }
  return true;
}

}  // namespace forebay::codec
