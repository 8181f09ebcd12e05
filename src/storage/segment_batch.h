// What one lane of the segment store writes at once: parts of payloads as records one after
// another, or a segment's footer, as pieces of memory that the disk can take. Large payloads are
// written from where they are; heads, ends and small payloads are copied into a buffer.
//
// Used by one thread at a time. The payloads' bytes were checked when they came, and carry their
// checksum in the head: they are not read again here.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/disk.h"
#include "storage/payload_store.h"
#include "storage/segment_format.h"

namespace forebay::storage {

// One call of Finish: answered when nothing of it is left.
struct FinishTicket {
  absl::Span<PayloadId> ids;
  size_t left = 0;
  absl::Status status;
  PayloadStore::Done done;
};

// A part of a payload that is not safe yet.
struct WaitingPart {
  std::shared_ptr<FinishTicket> ticket;
  size_t index = 0;  // of its payload's id
  RecordHead head;   // the id is set with the place
  BlockList blocks;
  // Of a cold part: the payload's hot one, which is written when this one is safe.
  std::unique_ptr<WaitingPart> hot;
};

// What of a payload is written first; takes its blocks.
WaitingPart Take(PayloadBuilder& builder, const std::shared_ptr<FinishTicket>& ticket,
                 size_t index);
// With the part that follows it.
uint64_t BytesOf(const WaitingPart& part);

// Aligned memory of a fixed size.
class WriteBuffer {
 public:
  explicit WriteBuffer(size_t size)
      : data_(static_cast<char*>(std::aligned_alloc(io::kAlignment, size))), size_(size) {}
  char* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(char* data) const { std::free(data); }
  };
  std::unique_ptr<char, Free> data_;
  size_t size_;
};

class SegmentBatch {
 public:
  SegmentBatch(size_t lane, uint32_t segment, io::FileRef file, uint64_t begin, WriteBuffer buffer)
      : lane(lane),
        segment(segment),
        file(std::move(file)),
        buffer(std::move(buffer)),
        begin_(begin),
        end_(begin) {}

  // --- building, in order of the file ---
  // Whole pages: the header, a footer.
  void AddBytes(std::string bytes);
  // Where the part would end the file.
  uint64_t EndWith(const WaitingPart& part) const {
    return RoundUp(PlaceFor(part) + RecordBytes(part.head.bytes), kSegmentPage);
  }
  void Add(WaitingPart part);
  uint64_t begin() const { return begin_; }
  // A multiple of a page.
  uint64_t end() const { return RoundUp(end_, kSegmentPage); }

  // --- writing ---
  struct Write {
    uint64_t offset = 0;
    size_t bytes = 0;
    std::vector<io::ConstBuffer> pieces;
  };
  // What comes next, at most as much as the buffer holds; no bytes at the end. Its memory is kept
  // until the next call, or the batch's end.
  Write Next();
  // Whether nothing comes next.
  bool AtEnd() const { return piece_ == pieces_.size(); }

  const size_t lane;
  const uint32_t segment;
  const io::FileRef file;
  std::string entry_folder;  // to be synced too, if not empty
  bool seals = false;
  // Under the writer's lock:
  bool with_disk = false;  // the disk has it, and nobody reads it
  bool given_up = false;
  std::vector<WaitingPart> parts;
  WriteBuffer buffer;

 private:
  struct Piece {
    std::string_view bytes;
    Block* block = nullptr;  // whose these are, if it begins a page
  };
  // Where the part's head goes: to a page's end if its first block begins a page.
  uint64_t PlaceFor(const WaitingPart& part) const;
  void AddPadding(uint64_t bytes);
  // Adds the next bytes of a piece, from where they are if they fill pages there and in the file.
  void AddTo(Write* write, const Piece& piece);
  void Copy(Write* write, std::string_view bytes);

  const uint64_t begin_;
  uint64_t end_;
  std::vector<std::string> texts_;
  std::vector<std::unique_ptr<std::array<char, kRecordHeadBytes>>> heads_;
  std::vector<Piece> pieces_;
  size_t piece_ = 0;  // the next to write
  size_t in_piece_ = 0;
  size_t copied_ = 0;           // into the buffer, for the present write
  std::vector<BlockRef> held_;  // by the present write: the disk reads them
  uint64_t written_ = 0;
};

}  // namespace forebay::storage
