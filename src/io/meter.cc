#include "io/meter.h"

#include "base/check.h"

namespace forebay::io {

Meter::Meter() { ends_.older_ = ends_.younger_ = &ends_; }

void Meter::Start(Ticket* ticket) {
  absl::MutexLock lock(&mutex_);
  ticket->since_ = Clock::now();
  ticket->older_ = ends_.older_;
  ticket->younger_ = &ends_;
  ends_.older_->younger_ = ticket;
  ends_.older_ = ticket;
  ++use_.in_flight;
  ++not_left_;
}

void Meter::Finish(Ticket* ticket, Kind kind, uint64_t bytes, bool ok) {
  absl::MutexLock lock(&mutex_);
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
  absl::MutexLock lock(&mutex_);
  FOREBAY_CHECK(not_left_ > 0);
  --not_left_;
}

void Meter::AwaitIdle() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](Meter* self) ABSL_NO_THREAD_SAFETY_ANALYSIS { return self->not_left_ == 0; }, this));
}

DiskUse Meter::use() const {
  absl::MutexLock lock(&mutex_);
  DiskUse use = use_;
  if (ends_.younger_ != &ends_) {
    const auto age = Clock::now() - ends_.younger_->since_;
    use.oldest_ms =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(age).count());
  }
  return use;
}

}  // namespace forebay::io
