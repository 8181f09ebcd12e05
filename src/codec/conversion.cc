#include "codec/conversion.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace forebay::codec {
namespace {

// Sixteen at a time: the compiler makes vector instructions of a loop whose length it knows.
constexpr size_t kAtOnce = 16;

template <class From, class To, To (*One)(From)>
void Each(const char* from, char* to, size_t values) {
  while (values > 0) {
    From in[kAtOnce] = {};
    To out[kAtOnce];
    const size_t now = std::min(values, kAtOnce);
    if (now == kAtOnce) {
      std::memcpy(in, from, sizeof(in));
    } else {
      std::memcpy(in, from, now * sizeof(From));
    }
    for (size_t i = 0; i < kAtOnce; ++i) out[i] = One(in[i]);
    if (now == kAtOnce) {
      std::memcpy(to, out, sizeof(out));
    } else {
      std::memcpy(to, out, now * sizeof(To));
    }
    from += now * sizeof(From);
    to += now * sizeof(To);
    values -= now;
  }
}

template <class From, class To>
To Cast(From value) {
  return static_cast<To>(value);
}

uint16_t Bf16OfF32(uint32_t bits) {
  const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>((nan ? bits | 0x400000 : rounded) >> 16);
}

uint32_t F32OfBf16(uint16_t bits) { return uint32_t{bits} << 16; }

uint32_t F32OfF16(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = (half & 0x7fffu) << 13;
  if (magnitude >= 0x7c00u << 13) return sign | 0x7f800000 | magnitude;  // infinite, or NaN
  // Scaled by 2^112, the difference of the exponents' biases; this is exact, of subnormals too.
  const float scaled = std::bit_cast<float>(magnitude) * std::bit_cast<float>(239u << 23);
  return sign | std::bit_cast<uint32_t>(scaled);
}

template <class From, class To, To (*One)(From) = Cast<From, To>>
constexpr Conversion Of(DType from, DType to) {
  return {from, to, sizeof(From), sizeof(To), Each<From, To, One>};
}

constexpr Conversion kConversions[] = {
    Of<uint32_t, uint16_t, Bf16OfF32>(DType::kF32, DType::kBf16),
    Of<uint16_t, uint32_t, F32OfBf16>(DType::kBf16, DType::kF32),
    Of<uint16_t, uint32_t, F32OfF16>(DType::kF16, DType::kF32),
    Of<double, float>(DType::kF64, DType::kF32),
    Of<uint8_t, uint16_t>(DType::kU8, DType::kU16),
    Of<uint8_t, int16_t>(DType::kU8, DType::kI16),
    Of<uint8_t, uint32_t>(DType::kU8, DType::kU32),
    Of<uint8_t, int32_t>(DType::kU8, DType::kI32),
    Of<uint8_t, uint64_t>(DType::kU8, DType::kU64),
    Of<uint8_t, int64_t>(DType::kU8, DType::kI64),
    Of<int8_t, int16_t>(DType::kI8, DType::kI16),
    Of<int8_t, int32_t>(DType::kI8, DType::kI32),
    Of<int8_t, int64_t>(DType::kI8, DType::kI64),
    Of<uint16_t, uint32_t>(DType::kU16, DType::kU32),
    Of<uint16_t, int32_t>(DType::kU16, DType::kI32),
    Of<uint16_t, uint64_t>(DType::kU16, DType::kU64),
    Of<uint16_t, int64_t>(DType::kU16, DType::kI64),
    Of<int16_t, int32_t>(DType::kI16, DType::kI32),
    Of<int16_t, int64_t>(DType::kI16, DType::kI64),
    Of<uint32_t, uint64_t>(DType::kU32, DType::kU64),
    Of<uint32_t, int64_t>(DType::kU32, DType::kI64),
    Of<int32_t, int64_t>(DType::kI32, DType::kI64),
};

}  // namespace

const Conversion* FindConversion(DType from, DType to) {
  for (const Conversion& conversion : kConversions) {
    if (conversion.from == from && conversion.to == to) return &conversion;
  }
  return nullptr;
}

}  // namespace forebay::codec
