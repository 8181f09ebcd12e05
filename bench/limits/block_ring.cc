#include "bench/limits/block_ring.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"

namespace forebay::bench {

void BlockRing::Free::operator()(char* memory) const { std::free(memory); }

BlockRing::BlockRing(size_t bytes)
    : size_((bytes + kAlignment - 1) / kAlignment * kAlignment),
      memory_(static_cast<char*>(std::aligned_alloc(kAlignment, size_))) {
  FOREBAY_CHECK(memory_ != nullptr);
  // Not all the same byte, so that no layer below can do better than it would with real data.
  uint64_t state = 1;
  for (size_t i = 0; i < size_; i += sizeof(state)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::copy_n(reinterpret_cast<const char*>(&state), sizeof(state), memory_.get() + i);
  }
}

uint32_t BlockRing::Store(grpc::ByteBuffer* message) {
  grpc::ProtoBufferReader reader(message);
  const void* data = nullptr;
  int size = 0;
  uint32_t crc = 0;
  while (reader.Next(&data, &size)) {
    auto* from = static_cast<const char*>(data);
    size_t left = static_cast<size_t>(size);
    while (left > 0) {
      const size_t piece = std::min(left, size_ - position_);
      crc = CopyCrc32c(memory_.get() + position_, from, piece, crc);
      position_ = (position_ + piece) % size_;
      from += piece;
      left -= piece;
    }
  }
  return crc;
}

grpc::ByteBuffer BlockRing::Lend(size_t bytes) {
  std::vector<grpc::Slice> slices;
  slices.reserve(2);
  while (bytes > 0) {
    const size_t piece = std::min(bytes, size_ - position_);
    slices.emplace_back(
        memory_.get() + position_, piece, [](void*) {}, memory_.get());
    position_ = (position_ + piece) % size_;
    bytes -= piece;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace forebay::bench
