// Parts of stored rows, put together and converted while they are sent: what cannot be sent from
// the blocks as it lies there.
//
// Immutable, and so safe from any thread; any byte of what it gives can be read at any time, so
// that a frame may end anywhere and no more than a frame is ever made. Holds the blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "batch/layout.h"
#include "codec/conversion.h"
#include "storage/payload_store.h"

namespace forebay::server {

// How each row becomes bytes; shared by the gathers of a column.
class RowFormat {
 public:
  // `conversion` may be null.
  RowFormat(const batch::RowSlice& row, const codec::Conversion* conversion);

  uint64_t stored_row_bytes() const { return stored_row_bytes_; }
  uint64_t sent_row_bytes() const { return sent_row_bytes_; }

 private:
  friend class RowGather;
  struct Run {
    uint64_t stored;  // offset in the stored row
    uint64_t sent;    // offset in the row that is sent
    uint64_t bytes;   // that are sent
  };

  std::vector<Run> runs_;
  const codec::Conversion* conversion_;
  uint64_t stored_row_bytes_;
  uint64_t sent_row_bytes_;
  bool solid_;  // rows are taken whole, so that values of all of them follow each other
};

class RowGather {
 public:
  // `stored` are whole rows. The format outlives this.
  RowGather(const RowFormat* format, std::vector<storage::BlockSlice> stored);

  uint64_t bytes() const { return bytes_; }
  // Bytes from `from`, at most bytes(), on.
  void Read(uint64_t from, size_t size, char* out) const;

 private:
  // A place in the stored bytes that moves on with the reading.
  struct Cursor {
    size_t slice = 0;
  };
  void ReadRun(uint64_t stored, uint64_t skip, size_t size, char* out, Cursor* cursor) const;
  void Convert(uint64_t stored, size_t values, char* out, Cursor* cursor) const;
  void Copy(uint64_t stored, size_t size, char* out, Cursor* cursor) const;
  // The slice that holds a stored byte.
  void Find(uint64_t stored, Cursor* cursor) const;

  const RowFormat* const format_;
  const std::vector<storage::BlockSlice> stored_;
  std::vector<uint64_t> ends_;  // of the slices
  uint64_t bytes_ = 0;
};

}  // namespace forebay::server
