// The first bytes of every message that the limit server reads: how large an answer it wants.
//
// Pure values; safe from any thread. The rest of a message is any bytes. All integers are
// little-endian, as the machine's are.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay::bench {

struct LimitHeader {
  uint32_t answer_bytes = 0;        // 0: no answer
  uint32_t answer_frame_bytes = 0;  // the answer comes in messages of at most this size; 0: in one
};
static_assert(sizeof(LimitHeader) == 8);

// A call of one request and one answer; the request is dropped.
inline constexpr char kUnaryMethod[] = "/forebay.limits.Limits/Unary";
// A stream in both directions; what arrives is dropped.
inline constexpr char kStreamMethod[] = "/forebay.limits.Limits/Stream";
// The same, and each message is copied once into aligned blocks with its crc32c on the way.
inline constexpr char kStoreMethod[] = "/forebay.limits.Limits/Store";

}  // namespace forebay::bench
