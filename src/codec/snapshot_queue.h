// A queue in chunks of which a snapshot takes a look in almost no time: what is in it does not
// change, so the snapshot shares the chunks, and new elements go behind those that it reads.
//
// T is a plain value with Fields. Not thread-safe, but for what a Piece reads (snapshot_parts.h).
// Indexes are not checked: callers stay below size(), and pop nothing from an empty queue.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "codec/archive.h"
#include "codec/snapshot_parts.h"

namespace forebay::codec {

template <class T, size_t kChunkSize>
class SnapshotQueue {
 public:
  size_t size() const { return end_ - first_; }
  bool empty() const { return end_ == first_; }
  const T& operator[](size_t i) const { return At(chunks_, first_ + i); }
  const T& back() const { return At(chunks_, end_ - 1); }

  void PushBack(const T& value) {
    if (end_ == chunks_.size() * kChunkSize) {
      chunks_.emplace_back(std::make_unique<T[]>(kChunkSize));
      seen_ = std::min(seen_, end_);
    } else if (end_ < seen_) {  // a snapshot reads what was in this place
      const Chunk& seen = chunks_.back();
      Chunk own = std::make_unique<T[]>(kChunkSize);
      std::copy_n(seen.get(), end_ % kChunkSize, own.get());
      chunks_.back() = std::move(own);
      seen_ = end_;
    }
    chunks_.back()[end_++ % kChunkSize] = value;
  }
  void PopFront() {
    if (++first_ < kChunkSize) return;
    chunks_.pop_front();
    first_ -= kChunkSize;
    end_ -= kChunkSize;
    seen_ -= std::min(seen_, kChunkSize);
  }
  void PopBack() {
    if (--end_ % kChunkSize == 0) chunks_.pop_back();
  }

  // Writes the count and all elements, as they are now: at once, or later if the writer is that of
  // Parts.
  void Snapshot(Writer& writer) const {
    writer(static_cast<uint32_t>(size()));
    if (writer.later() == nullptr) return Encode(chunks_, first_, end_, writer);
    seen_ = std::max(seen_, end_);
    writer.later()->Add(std::make_unique<QueuePart>(*this));
  }
  // False if there are more than `most`.
  bool Restore(Reader& reader, size_t most) {
    *this = SnapshotQueue();
    uint32_t count = 0;
    reader(count);
    if (count > most || count > reader.left()) return false;
    for (uint32_t i = 0; i < count && reader.ok(); ++i) {
      T value;
      reader(value);
      PushBack(value);
    }
    return reader.ok();
  }

  size_t memory_bytes() const { return chunks_.size() * kChunkSize * sizeof(T); }

 private:
  using Chunk = std::shared_ptr<T[]>;
  using Chunks = std::deque<Chunk>;
  static constexpr size_t kPieceElements = std::max<size_t>((size_t{1} << 20) / sizeof(T), 1);

  static const T& At(const Chunks& chunks, size_t i) {
    return chunks[i / kChunkSize][i % kChunkSize];
  }
  static void Encode(const Chunks& chunks, size_t from, size_t to, Writer& writer) {
    for (size_t i = from; i < to; ++i) writer(At(chunks, i));
  }

  class QueuePart final : public Part {
   public:
    explicit QueuePart(const SnapshotQueue& queue)
        : chunks_(std::make_shared<const Chunks>(queue.chunks_)),
          next_(queue.first_),
          end_(queue.end_) {}

    Piece Next() override {
      if (next_ == end_) return nullptr;
      const size_t from = std::exchange(next_, std::min(next_ + kPieceElements, end_));
      return [chunks = chunks_, from, to = next_](std::string* bytes) {
        Writer writer(bytes);
        Encode(*chunks, from, to, writer);
      };
    }

   private:
    const std::shared_ptr<const Chunks> chunks_;
    size_t next_;
    const size_t end_;
  };

  // Places count from the begin of the first chunk.
  Chunks chunks_;
  size_t first_ = 0, end_ = 0;
  mutable size_t seen_ = 0;  // places before it were there when the last snapshot was taken
};

}  // namespace forebay::codec
