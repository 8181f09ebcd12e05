// Values of one dtype as those of another: what a fetch may ask for.
//
// Only what loses nothing, and the roundings that trainers do by themselves: f32 to bf16 and f64 to
// f32, to nearest even. A NaN stays one, with its sign. Pure; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/rollout_header.h"

namespace forebay::codec {

struct Conversion {
  DType from = DType::kUnspecified;
  DType to = DType::kUnspecified;
  uint32_t from_bytes = 0;
  uint32_t to_bytes = 0;
  // Little-endian values, of any alignment; the places do not overlap.
  void (*convert)(const char* from, char* to, size_t values) = nullptr;
};

// Null if there is none, as of a dtype to itself.
const Conversion* FindConversion(DType from, DType to);

}  // namespace forebay::codec
