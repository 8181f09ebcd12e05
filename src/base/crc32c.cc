#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

namespace forebay {

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
