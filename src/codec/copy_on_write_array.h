// An array in chunks of which a snapshot takes a look in almost no time, whatever its size: a chunk
// is copied when it is to change while a snapshot still needs it, once for all that do.
//
// Growing never moves what is there. New elements are value-initialised. Not thread-safe, but for
// what a Piece reads (snapshot_parts.h). Indexes are not checked: callers stay below size().
// References to elements are good until the next snapshot; one that was got from a const array
// also shows no change that is made through another one after a snapshot was taken. So who changes
// an element looks at it through the array that is not const.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "codec/archive.h"
#include "codec/snapshot_parts.h"

namespace forebay::codec {

template <class T, size_t kChunkSize>
class CopyOnWriteArray {
  static_assert((kChunkSize & (kChunkSize - 1)) == 0, "an index splits into chunk and offset");

 public:
  CopyOnWriteArray() = default;
  // A snapshot of `other` is not under way.
  CopyOnWriteArray(CopyOnWriteArray&& other) noexcept { *this = std::move(other); }
  CopyOnWriteArray& operator=(CopyOnWriteArray&& other) noexcept {
    FOREBAY_CHECK(!other.held());
    LeaveToSnapshots();
    chunks_ = std::exchange(other.chunks_, {});
    writable_ = std::exchange(other.writable_, {});
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~CopyOnWriteArray() { LeaveToSnapshots(); }

  size_t size() const { return size_; }
  const T& operator[](size_t i) const { return chunks_[i / kChunkSize][i % kChunkSize]; }
  T& operator[](size_t i) {
    T* const chunk = writable_[i / kChunkSize];
    if (chunk != nullptr) [[likely]]
      return chunk[i % kChunkSize];
    return Thaw(i / kChunkSize)[i % kChunkSize];
  }

  T& Append() {
    if (size_ % kChunkSize == 0) {
      chunks_.push_back(NewChunk());
      writable_.push_back(chunks_.back().get());
    }
    return (*this)[size_++];
  }

  // Writes all elements in order, as they are now, by encode(writer, std::span<const T>): at once,
  // or later if the writer is that of Parts. Several may be under way.
  template <class Encode>
  void Snapshot(Writer& writer, Encode encode) const {
    if (writer.later() == nullptr) {
      for (size_t c = 0; c < chunks_.size(); ++c) encode(writer, Elements(chunks_[c], c, size_));
      return;
    }
    std::erase_if(frozen_, [](const auto& frozen) { return frozen->over(); });
    frozen_.push_back(std::make_shared<Frozen>(&chunks_, writer.later()->copies()));
    std::ranges::fill(writable_, nullptr);
    writer.later()->Add(
        std::make_unique<ArrayPart<Encode>>(frozen_.back(), size_, std::move(encode)));
  }

  size_t memory_bytes() const {
    return chunks_.size() * kChunkSize * sizeof(T) + chunks_.capacity() * sizeof(chunks_[0]) +
           writable_.capacity() * sizeof(writable_[0]);
  }

 private:
  using Chunk = std::shared_ptr<T[]>;
  static constexpr size_t kPieceBytes = size_t{1} << 20;
  static constexpr size_t kPieceChunks =
      std::max<size_t>(kPieceBytes / (kChunkSize * sizeof(T)), 1);

  // What array and snapshot share, within their loop: chunks from `done` on are still needed as
  // they were. It does not touch them when it is made: that would take as long as they are many.
  struct Frozen {
    Frozen(const std::vector<Chunk>* chunks, std::shared_ptr<CopyCount> count)
        : in_array(chunks), end(chunks->size()), copies(std::move(count)) {}
    bool over() const { return done == end; }
    // Unless it has what was there already.
    bool Needs(size_t c) const { return c >= done && c < end && !copied.contains(c); }
    const Chunk& AsItWas(size_t c) const {
      const auto copy = copied.find(c);
      return copy != copied.end() ? copy->second : (*in_array)[c];
    }
    void DoneBefore(size_t next) {
      for (; done < next; ++done) copied.erase(done);
    }

    const std::vector<Chunk>* const in_array;
    const size_t end;
    absl::flat_hash_map<size_t, Chunk> copied;  // the old ones of those that were copied
    size_t done = 0;
    const std::shared_ptr<CopyCount> copies;
  };

  template <class Encode>
  class ArrayPart final : public Part {
   public:
    ArrayPart(std::shared_ptr<Frozen> frozen, size_t size, Encode encode)
        : frozen_(std::move(frozen)), size_(size), encode_(std::move(encode)) {}
    ~ArrayPart() override { frozen_->DoneBefore(frozen_->end); }

    Piece Next() override {
      frozen_->DoneBefore(next_);
      const size_t first = next_;
      next_ = std::min(first + kPieceChunks, frozen_->end);
      if (first == next_) return nullptr;
      std::vector<Chunk> chunks;
      for (size_t c = first; c < next_; ++c) chunks.push_back(frozen_->AsItWas(c));
      return [chunks = std::move(chunks), first, size = size_,
              encode = encode_](std::string* to) mutable {
        Writer writer(to);
        for (size_t i = 0; i < chunks.size(); ++i) {
          encode(writer, Elements(chunks[i], first + i, size));
        }
      };
    }

   private:
    const std::shared_ptr<Frozen> frozen_;
    const size_t size_;
    const Encode encode_;
    size_t next_ = 0;
  };

  // By itself, without a count beside it: its size is one that allocators have.
  static Chunk NewChunk() { return std::make_unique<T[]>(kChunkSize); }
  static std::span<const T> Elements(const Chunk& chunk, size_t number, size_t size) {
    return {chunk.get(), std::min(kChunkSize, size - number * kChunkSize)};
  }

  bool held() const {
    return !std::ranges::all_of(frozen_, [](const auto& frozen) { return frozen->over(); });
  }

  // What may be written from now on in place of chunk `c`.
  T* Thaw(size_t c) {
    Chunk before;
    for (const auto& frozen : frozen_) {
      if (!frozen->Needs(c)) continue;
      if (before == nullptr) {
        before = std::exchange(chunks_[c], NewChunk());
        std::copy_n(before.get(), kChunkSize, chunks_[c].get());
        frozen->copies->bytes += kChunkSize * sizeof(T);
      }
      frozen->copied[c] = before;
    }
    return writable_[c] = chunks_[c].get();
  }

  // Before the array goes.
  void LeaveToSnapshots() {
    for (const auto& frozen : std::exchange(frozen_, {})) {
      for (size_t c = frozen->done; c < frozen->end; ++c) frozen->copied.try_emplace(c, chunks_[c]);
    }
  }

  std::vector<Chunk> chunks_;
  mutable std::vector<T*> writable_;  // the same; null: first look whether a snapshot needs it
  size_t size_ = 0;
  mutable std::vector<std::shared_ptr<Frozen>> frozen_;  // of snapshots, those that are over too
};

}  // namespace forebay::codec
