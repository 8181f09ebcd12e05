// How many bytes of rollouts may be kept for people, by what their files take of the disk.
//
// A file of the store stays as long as anything in it is alive: a sample of one in a hundred holds
// files a hundred times its size. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace forebay::node {

// Dead bytes that may lie in files which are dead for the most part. Where much is alive, much is
// on its way to be dead, whatever is kept.
inline uint64_t PinnedBytesMax(uint64_t bytes_max, uint64_t segment_bytes, uint64_t live_bytes) {
  constexpr uint64_t kPinnedPerKept = 16;
  constexpr uint64_t kSegmentsLeast = 8;
  uint64_t pinned_max = 0;
  if (__builtin_mul_overflow(bytes_max, kPinnedPerKept, &pinned_max)) pinned_max = UINT64_MAX;
  return std::max({pinned_max, kSegmentsLeast * segment_bytes, live_bytes / 2});
}

// Of what is kept, the part that would pin as much as may be; all while less is pinned. The oldest
// go first, and with the last of them their files.
inline uint64_t KeptBytesMax(uint64_t kept_bytes, uint64_t pinned_bytes, uint64_t pinned_max) {
  if (pinned_bytes <= pinned_max) return kept_bytes;
  const double part = static_cast<double>(pinned_max) / static_cast<double>(pinned_bytes);
  return static_cast<uint64_t>(static_cast<double>(kept_bytes) * part);
}

}  // namespace forebay::node
