#include "io/meter.h"

#include "base/check.h"

namespace forebay::io {

Meter::Meter() { ends_.older_ = ends_.younger_ = &ends_; }

void Meter::Start(Ticket* ticket) {
  std::lock_guard lock(mutex_);
  ticket->since_ = Clock::now();
  ticket->older_ = ends_.older_;
  ticket->younger_ = &ends_;
  ends_.older_->younger_ = ticket;
  ends_.older_ = ticket;
  ++use_.in_flight;
  ++not_left_;
}

void Meter::Finish(Ticket* ticket, Kind kind, uint64_t bytes, bool ok) {
  std::lock_guard lock(mutex_);
  ticket->older_->younger_ = ticket->younger_;
  ticket->younger_->older_ = ticket->older_;
  --use_.in_flight;
  if (!ok) ++use_.errors;
  switch (kind) {
    case Kind::kRead:
      ++use_.reads;
      use_.read_bytes += bytes;
      break;
    case Kind::kWrite:
      ++use_.writes;
      use_.written_bytes += bytes;
      break;
    case Kind::kSync:
      ++use_.syncs;
      break;
    case Kind::kOther:
      break;
  }
}

void Meter::Leave() {
  std::lock_guard lock(mutex_);
  FOREBAY_CHECK(not_left_ > 0);
  if (--not_left_ == 0) idle_.notify_all();
}

void Meter::AwaitIdle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return not_left_ == 0; });
}

DiskUse Meter::use() const {
  std::lock_guard lock(mutex_);
  DiskUse use = use_;
  if (ends_.younger_ != &ends_) {
    const auto age = Clock::now() - ends_.younger_->since_;
    use.oldest_ms =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(age).count());
  }
  return use;
}

}  // namespace forebay::io
