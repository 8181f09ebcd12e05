// A small deterministic generator that can live in replicated state (SplitMix64, Steele et al.
// 2014).
//
// A value; not thread-safe. The same seed gives the same numbers on every machine.
#pragma once

#include <cstdint>

namespace forebay {

// The finalizer of SplitMix64: a bijection that mixes all bits.
constexpr uint64_t Mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

class Prng {
 public:
  constexpr explicit Prng(uint64_t seed = 0) : state_(seed) {}
  constexpr uint64_t Next() { return Mix64(state_ += 0x9e3779b97f4a7c15ull); }
  // Uniform in [0, bound); bound > 0. Multiply-shift; the bias is below bound / 2^64.
  constexpr uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  // Uniform in [0, 1) with 53 bits.
  constexpr double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  constexpr uint64_t state() const { return state_; }
  constexpr void set_state(uint64_t state) { state_ = state; }

 private:
  uint64_t state_;
};

}  // namespace forebay
