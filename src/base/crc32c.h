// CRC-32C (Castagnoli), as iSCSI and ext4 use it; "123456789" gives 0xe3069283.
//
// Pure functions; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace forebay {

// The checksum of `data` that follows bytes whose checksum is `before` (0 for none).
uint32_t Crc32c(std::string_view data, uint32_t before = 0);

// The checksum of two areas one after the other, from theirs; `second_bytes` long is the second,
// less than 2^61.
uint32_t JoinCrc32c(uint32_t first, uint32_t second, uint64_t second_bytes);
// The same bit by bit, for processors without the instructions; slower by a hundred times.
uint32_t JoinCrc32cPlain(uint32_t first, uint32_t second, uint64_t second_bytes);

// Copies `size` bytes and returns the checksum in the same pass over the cache. The areas do not
// overlap.
uint32_t CopyCrc32c(void* to, const void* from, size_t size, uint32_t before = 0);

}  // namespace forebay
