#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace forebay {
namespace {

// Up to here the processor's own instruction beats ISA-L, which is made for long input.
constexpr size_t kShort = 256;
// A piece fits the first-level cache, so that its bytes come from memory once for checksum and
// copy.
constexpr size_t kPiece = 16 * 1024;
// From here on a copy goes past the caches: it is too long to be found in them by who reads it
// next, mostly a disk or a network card, and a line need not be read before it is written over.
constexpr size_t kPastCaches = 4 * 1024;

// Polynomials over GF(2) modulo Castagnoli's, their bits reversed: the highest one is of x^0.
constexpr uint32_t kPolynomial = 0x82f63b78;
constexpr uint32_t kOne = uint32_t{1} << 31;

constexpr uint32_t TimesX(uint32_t a) { return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0); }
constexpr uint32_t DividedByX(uint32_t a) {
  return (a & kOne) != 0 ? ((a ^ kPolynomial) << 1 | 1) : a << 1;
}
static_assert(DividedByX(TimesX(0x12345679)) == 0x12345679 && TimesX(DividedByX(kOne)) == kOne);

constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a & kOne) != 0) product ^= b;
    b = TimesX(b);
  }
  return product;
}

// x to the power of 8 * 2^k.
using Shifts = std::array<uint32_t, 61>;
constexpr Shifts kByteShifts = [] {
  Shifts shifts{};
  shifts[0] = kOne >> 8;
  for (size_t k = 1; k < shifts.size(); ++k) {
    shifts[k] = Multiply(shifts[k - 1], shifts[k - 1]);
  }
  return shifts;
}();

#if defined(__x86_64__)

const bool kHasInstruction = __builtin_cpu_supports("sse4.2") != 0;
const bool kMultiplies = kHasInstruction && __builtin_cpu_supports("pclmul") != 0;

// Without the inversions of Crc32c.
[[gnu::target("sse4.2")]] uint32_t CopyShort(char* to, const char* from, size_t size,
                                             uint32_t crc) {
  uint64_t sum = crc;
  for (; size >= sizeof(uint64_t); size -= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, from, sizeof(word));
    std::memcpy(to, &word, sizeof(word));
    sum = __builtin_ia32_crc32di(sum, word);
    from += sizeof(word);
    to += sizeof(word);
  }
  crc = static_cast<uint32_t>(sum);
  for (size_t i = 0; i < size; ++i) {
    to[i] = from[i];
    crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(from[i]));
  }
  return crc;
}

// What the instructions give is the product times x^33: the product without carries of two
// reversed words is shifted by one, and the checksum of a word is that times x^32.
constexpr Shifts kDividedShifts = [] {
  Shifts shifts = kByteShifts;
  for (uint32_t& shift : shifts) {
    for (int i = 0; i < 33; ++i) shift = DividedByX(shift);
  }
  return shifts;
}();

[[gnu::target("sse4.2,pclmul")]] uint32_t Shift(uint32_t crc, uint64_t bytes) {
  using Words = long long __attribute__((vector_size(16)));
  for (; bytes != 0; bytes &= bytes - 1) {
    const Words a = {crc, 0};
    const Words b = {kDividedShifts[static_cast<size_t>(std::countr_zero(bytes))], 0};
    const Words product = __builtin_ia32_pclmulqdq128(a, b, 0);
    crc = static_cast<uint32_t>(__builtin_ia32_crc32di(0, static_cast<uint64_t>(product[0])));
  }
  return crc;
}

const bool kHasStreams = __builtin_cpu_supports("avx") != 0;

// std::memcpy past the caches. Ends with a fence: who is told of the copy sees all of it.
[[gnu::target("avx")]] void CopyPastCaches(char* to, const char* from, size_t size) {
  using Lane = long long __attribute__((vector_size(32)));
  constexpr size_t kStep = 4 * sizeof(Lane);
  const size_t head = std::min(size, -reinterpret_cast<uintptr_t>(to) % sizeof(Lane));
  std::memcpy(to, from, head);
  size_t at = head;
  for (; size - at >= kStep; at += kStep) {
    Lane a, b, c, d;
    std::memcpy(&a, from + at, sizeof(Lane));
    std::memcpy(&b, from + at + sizeof(Lane), sizeof(Lane));
    std::memcpy(&c, from + at + 2 * sizeof(Lane), sizeof(Lane));
    std::memcpy(&d, from + at + 3 * sizeof(Lane), sizeof(Lane));
    auto* const out = reinterpret_cast<Lane*>(to + at);
    __builtin_ia32_movntdq256(out, a);
    __builtin_ia32_movntdq256(out + 1, b);
    __builtin_ia32_movntdq256(out + 2, c);
    __builtin_ia32_movntdq256(out + 3, d);
  }
  std::memcpy(to + at, from + at, size - at);
  __builtin_ia32_sfence();
}

#else

constexpr bool kHasInstruction = false;
constexpr bool kHasStreams = false;
void CopyPastCaches(char*, const char*, size_t) {}
constexpr bool kMultiplies = false;
uint32_t CopyShort(char*, const char*, size_t, uint32_t crc) { return crc; }
uint32_t Shift(uint32_t crc, uint64_t) { return crc; }

#endif

}  // namespace

uint32_t JoinCrc32cPlain(uint32_t first, uint32_t second, uint64_t second_bytes) {
  for (; second_bytes != 0; second_bytes &= second_bytes - 1) {
    first = Multiply(first, kByteShifts[static_cast<size_t>(std::countr_zero(second_bytes))]);
  }
  return first ^ second;
}

uint32_t JoinCrc32c(uint32_t first, uint32_t second, uint64_t second_bytes) {
  if (!kMultiplies) return JoinCrc32cPlain(first, second, second_bytes);
  return Shift(first, second_bytes) ^ second;
}

uint32_t Crc32c(std::string_view data, uint32_t before) {
  // ISA-L takes its input as non-const and its length as int; it does not write.
  auto* bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(data.data()));
  uint32_t crc = ~before;
  size_t left = data.size();
  while (left > 0) {
    const int piece = static_cast<int>(std::min<size_t>(left, 1u << 30));
    crc = crc32_iscsi(bytes, piece, crc);
    bytes += piece;
    left -= piece;
  }
  return ~crc;
}

uint32_t CopyCrc32c(void* to, const void* from, size_t size, uint32_t before) {
  if (size <= kShort && kHasInstruction) {
    return ~CopyShort(static_cast<char*>(to), static_cast<const char*>(from), size, ~before);
  }
  auto* out = static_cast<char*>(to);
  auto* in = static_cast<const char*>(from);
  uint32_t crc = before;
  while (size > 0) {
    const size_t piece = std::min(size, kPiece);
    crc = Crc32c({in, piece}, crc);
    if (kHasStreams && piece >= kPastCaches) {
      CopyPastCaches(out, in, piece);
    } else {
      std::memcpy(out, in, piece);
    }
    out += piece;
    in += piece;
    size -= piece;
  }
  return crc;
}

}  // namespace forebay
