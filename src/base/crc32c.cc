#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace forebay {
namespace {

// Up to here the processor's own instruction beats ISA-L, which is made for long input.
constexpr size_t kShort = 256;

#if defined(__x86_64__)

const bool kHasInstruction = __builtin_cpu_supports("sse4.2") != 0;

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

#else

constexpr bool kHasInstruction = false;
uint32_t CopyShort(char*, const char*, size_t, uint32_t crc) { return crc; }

#endif

// Polynomials over GF(2) modulo Castagnoli's, their bits reversed: the highest one is of x^0.
constexpr uint32_t kPolynomial = 0x82f63b78;
constexpr uint32_t kOne = uint32_t{1} << 31;

constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a & kOne) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);  // times x
  }
  return product;
}

// x to the power of 8 * 2^k.
constexpr std::array<uint32_t, 61> kByteShifts = [] {
  std::array<uint32_t, 61> shifts{};
  shifts[0] = kOne >> 8;
  for (size_t k = 1; k < shifts.size(); ++k) {
    shifts[k] = Multiply(shifts[k - 1], shifts[k - 1]);
  }
  return shifts;
}();

}  // namespace

uint32_t JoinCrc32c(uint32_t first, uint32_t second, uint64_t second_bytes) {
  for (const uint32_t shift : kByteShifts) {
    if (second_bytes == 0) break;
    if ((second_bytes & 1) != 0) first = Multiply(first, shift);
    second_bytes >>= 1;
  }
  return first ^ second;
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
  // A piece fits the first-level cache, so the checksum reads what the copy has just brought in.
  constexpr size_t kPiece = 16 * 1024;
  auto* out = static_cast<char*>(to);
  auto* in = static_cast<const char*>(from);
  uint32_t crc = before;
  while (size > 0) {
    const size_t piece = std::min(size, kPiece);
    std::memcpy(out, in, piece);
    crc = Crc32c({out, piece}, crc);
    out += piece;
    in += piece;
    size -= piece;
  }
  return crc;
}

}  // namespace forebay
