#include "bench/load/conversation.h"

#include <cstring>

#include "base/check.h"

namespace forebay::bench {
namespace {

constexpr size_t kSharedPayloadBytes = size_t{128} << 20;

char* MakePayload() {
  auto* memory = new char[kSharedPayloadBytes];
  uint64_t state = 7;
  for (size_t i = 0; i < kSharedPayloadBytes; i += sizeof(state)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(memory + i, &state, sizeof(state));
  }
  return memory;
}

}  // namespace

const char* SharedPayload(size_t bytes) {
  static char* const memory = MakePayload();
  static size_t position = 0;
  FOREBAY_CHECK(bytes <= kSharedPayloadBytes);
  if (position + bytes > kSharedPayloadBytes) position = 0;
  const char* start = memory + position;
  position += (bytes + 63) / 64 * 64;
  return start;
}

}  // namespace forebay::bench
