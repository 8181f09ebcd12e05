// A 64-bit hash that is the same on every machine and in every version: it is stored and compared
// across replicas.
//
// Pure functions; safe from any thread. Not for keys that an adversary chooses.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/prng.h"

namespace forebay {

inline uint64_t HashCombine(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a ^ 0x9e3779b97f4a7c15ull) *
                       (Mix64(b) ^ 0xe7037ed1a0b428dbull);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t Hash64(std::string_view data, uint64_t seed = 0) {
  uint64_t h = HashCombine(seed, data.size() + 1);
  while (data.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, data.data(), 8);
    h = HashCombine(h, word);
    data.remove_prefix(8);
  }
  uint64_t tail = 0;
  if (!data.empty()) std::memcpy(&tail, data.data(), data.size());
  return Mix64(HashCombine(h, tail));
}

}  // namespace forebay
