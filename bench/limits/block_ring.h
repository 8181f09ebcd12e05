// Aligned memory that is written or read round and round: stands for a payload cache that never
// fills.
//
// Not thread-safe: one thread uses it. Its memory is touched at construction, so that no page fault
// is measured.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace forebay::bench {

class BlockRing {
 public:
  // Larger than the last-level cache, so that bytes come from memory as a real buffer's do.
  explicit BlockRing(size_t bytes = size_t{128} << 20);

  // Copies all of `message` into the ring in one pass and returns the crc32c of its bytes.
  uint32_t Store(grpc::ByteBuffer* message);

  // A message of `bytes` bytes out of the ring, as slices that refer to it: the ring outlives the
  // message.
  grpc::ByteBuffer Lend(size_t bytes);

 private:
  static constexpr size_t kAlignment = 4096;
  struct Free {
    void operator()(char* memory) const;
  };

  size_t size_;
  size_t position_ = 0;
  std::unique_ptr<char, Free> memory_;
};

}  // namespace forebay::bench
