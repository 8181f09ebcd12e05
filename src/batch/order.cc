#include "batch/order.h"

#include <array>
#include <utility>

namespace forebay::batch {
namespace {

constexpr int kDigitBits = 11;
constexpr uint32_t kBuckets = 1u << kDigitBits;

struct Entry {
  uint64_t key;
  uint32_t index;
};

uint32_t Digit(uint64_t key, int shift) { return (key >> shift) & (kBuckets - 1); }

}  // namespace

std::vector<uint32_t> OrderDescending(absl::Span<const uint64_t> keys) {
  std::vector<Entry> from(keys.size());
  std::vector<Entry> to(keys.size());
  uint64_t differing = 0;  // bits in which some key differs from the first
  for (size_t i = 0; i < keys.size(); ++i) {
    from[i] = {keys[i], static_cast<uint32_t>(i)};
    differing |= keys[i] ^ keys[0];
  }
  for (int shift = 0; shift < 64; shift += kDigitBits) {
    if (Digit(differing, shift) == 0) continue;
    std::array<uint32_t, kBuckets> next{};
    for (const Entry& entry : from) ++next[Digit(entry.key, shift)];
    uint32_t begin = 0;
    for (uint32_t bucket = kBuckets; bucket-- > 0;) {
      begin += std::exchange(next[bucket], begin);
    }
    // Reading forward keeps equal digits in their order, so the sort is stable.
    for (const Entry& entry : from) to[next[Digit(entry.key, shift)]++] = entry;
    from.swap(to);
  }
  std::vector<uint32_t> order(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) order[i] = from[i].index;
  return order;
}

}  // namespace forebay::batch
