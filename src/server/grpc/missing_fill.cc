#include "server/grpc/missing_fill.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "codec/rollout_header.h"

namespace forebay::server {

std::string MissingFill(uint32_t dtype, double missing, size_t size) {
  std::string out(size, '\0');
  const auto repeat = [&out]<class T>(T value) {
    for (size_t at = 0; at + sizeof(T) <= out.size(); at += sizeof(T)) {
      std::memcpy(out.data() + at, &value, sizeof(T));
    }
  };
  const auto integer = static_cast<int64_t>(missing);
  switch (static_cast<codec::DType>(dtype)) {
    case codec::DType::kF64:
      repeat(missing);
      break;
    case codec::DType::kF32:
      repeat(static_cast<float>(missing));
      break;
    case codec::DType::kBf16: {
      const auto value = static_cast<float>(missing);
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      repeat(static_cast<uint16_t>(bits >> 16));
      break;
    }
    case codec::DType::kF16:
      break;  // only zero: see CheckMissing
    default:
      switch (codec::DTypeBytes(dtype)) {
        case 1:
          repeat(static_cast<uint8_t>(integer));
          break;
        case 2:
          repeat(static_cast<uint16_t>(integer));
          break;
        case 4:
          repeat(static_cast<uint32_t>(integer));
          break;
        case 8:
          repeat(static_cast<uint64_t>(integer));
          break;
      }
  }
  return out;
}

// Integers of less than 2^53, so that the cast is exact.
absl::Status CheckMissing(std::string_view column, uint32_t number, double missing) {
  const auto dtype = static_cast<codec::DType>(number);
  const bool floats =
      dtype == codec::DType::kF64 || dtype == codec::DType::kF32 || dtype == codec::DType::kBf16;
  constexpr double kExact = 9007199254740992.0;
  if (missing == 0 || floats) return absl::OkStatus();
  if (dtype != codec::DType::kF16 && missing > -kExact && missing < kExact) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("column ", std::string(column), ": missing is ",
                                                    missing, ", which its dtype cannot say"));
}

}  // namespace forebay::server
