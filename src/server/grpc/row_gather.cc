#include "server/grpc/row_gather.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace forebay::server {
namespace {

constexpr size_t kValueBytesMax = 8;

uint64_t SentBytes(uint64_t stored, const codec::Conversion* conversion) {
  return conversion == nullptr ? stored : stored / conversion->from_bytes * conversion->to_bytes;
}

}  // namespace

RowFormat::RowFormat(const batch::RowSlice& row, const codec::Conversion* conversion)
    : conversion_(conversion),
      stored_row_bytes_(row.row_bytes),
      sent_row_bytes_(SentBytes(row.bytes, conversion)),
      solid_(row.whole()) {
  uint64_t sent = 0;
  for (const batch::ByteRun& run : row.runs) {
    const uint64_t bytes = SentBytes(run.bytes, conversion);
    runs_.push_back({.stored = run.offset, .sent = sent, .bytes = bytes});
    sent += bytes;
  }
}

RowGather::RowGather(const RowFormat* format, std::vector<storage::BlockSlice> stored)
    : format_(format), stored_(std::move(stored)) {
  uint64_t end = 0;
  for (const storage::BlockSlice& slice : stored_) ends_.push_back(end += slice.size);
  FOREBAY_CHECK(end % format->stored_row_bytes_ == 0);
  bytes_ = end / format->stored_row_bytes_ * format->sent_row_bytes_;
}

void RowGather::Find(uint64_t stored, Cursor* cursor) const {
  const bool here =
      stored < ends_[cursor->slice] && (cursor->slice == 0 || stored >= ends_[cursor->slice - 1]);
  if (here) return;
  cursor->slice =
      static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), stored) - ends_.begin());
}

void RowGather::Copy(uint64_t stored, size_t size, char* out, Cursor* cursor) const {
  while (size > 0) {
    Find(stored, cursor);
    const storage::BlockSlice& slice = stored_[cursor->slice];
    const uint64_t left = ends_[cursor->slice] - stored;
    const auto now = static_cast<size_t>(std::min<uint64_t>(size, left));
    std::memcpy(out, slice.data + (slice.size - left), now);
    stored += now;
    out += now;
    size -= now;
  }
}

void RowGather::Convert(uint64_t stored, size_t values, char* out, Cursor* cursor) const {
  const codec::Conversion& conversion = *format_->conversion_;
  while (values > 0) {
    Find(stored, cursor);
    const storage::BlockSlice& slice = stored_[cursor->slice];
    const uint64_t left = ends_[cursor->slice] - stored;
    auto now = static_cast<size_t>(std::min<uint64_t>(values, left / conversion.from_bytes));
    if (now > 0) {
      conversion.convert(slice.data + (slice.size - left), out, now);
    } else {  // a value that lies in two blocks
      char value[kValueBytesMax];
      now = 1;
      Copy(stored, conversion.from_bytes, value, cursor);
      conversion.convert(value, out, now);
    }
    stored += now * conversion.from_bytes;
    out += now * conversion.to_bytes;
    values -= now;
  }
}

// `skip`: bytes of the run, as it is sent, that have been read.
void RowGather::ReadRun(uint64_t stored, uint64_t skip, size_t size, char* out,
                        Cursor* cursor) const {
  const codec::Conversion* const conversion = format_->conversion_;
  if (conversion == nullptr) return Copy(stored + skip, size, out, cursor);
  stored += skip / conversion->to_bytes * conversion->from_bytes;
  size_t part = skip % conversion->to_bytes;
  while (size > 0) {
    if (part == 0 && size >= conversion->to_bytes) {
      const size_t values = size / conversion->to_bytes;
      Convert(stored, values, out, cursor);
      stored += values * conversion->from_bytes;
      out += values * conversion->to_bytes;
      size -= values * conversion->to_bytes;
      continue;
    }
    // A frame ends or begins within a value.
    char value[kValueBytesMax];
    Convert(stored, 1, value, cursor);
    const size_t now = std::min(size, conversion->to_bytes - part);
    std::memcpy(out, value + part, now);
    stored += conversion->from_bytes;
    out += now;
    size -= now;
    part = 0;
  }
}

void RowGather::Read(uint64_t from, size_t size, char* out) const {
  FOREBAY_CHECK(from <= bytes_ && size <= bytes_ - from);
  Cursor cursor;
  if (format_->solid_) return ReadRun(0, from, size, out, &cursor);
  const std::vector<RowFormat::Run>& runs = format_->runs_;
  uint64_t row = from / format_->sent_row_bytes_;
  uint64_t at = from % format_->sent_row_bytes_;
  auto run = std::upper_bound(runs.begin(), runs.end(), at,
                              [](uint64_t value, const auto& r) { return value < r.sent; }) -
             1;
  while (size > 0) {
    const uint64_t skip = at - run->sent;
    const auto now = static_cast<size_t>(std::min<uint64_t>(size, run->bytes - skip));
    ReadRun(row * format_->stored_row_bytes_ + run->stored, skip, now, out, &cursor);
    out += now;
    size -= now;
    at += now;
    if (skip + now < run->bytes) continue;
    if (++run == runs.end()) {
      run = runs.begin();
      at = 0;
      ++row;
    }
  }
}

}  // namespace forebay::server
