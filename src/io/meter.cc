#include "io/meter.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::io {
namespace {

// The newest operation's share of the mean.
constexpr double kRecentShare = 1.0 / 32;

// `before`: operations of the kind that came before.
void Note(double ms, uint64_t before, OperationTime* time) {
  time->recent_ms = before == 0 ? ms : time->recent_ms + kRecentShare * (ms - time->recent_ms);
  time->slowest_ms = std::max(time->slowest_ms, ms);
}

}  // namespace

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
  const double ms =
      std::chrono::duration<double, std::milli>(Clock::now() - ticket->since_).count();
  std::lock_guard lock(mutex_);
  ticket->older_->younger_ = ticket->younger_;
  ticket->younger_->older_ = ticket->older_;
  --use_.in_flight;
  if (!ok) ++use_.errors;
  switch (kind) {
    case Kind::kRead:
      Note(ms, use_.reads++, &use_.read_time);
      use_.read_bytes += bytes;
      break;
    case Kind::kWriteSynced:
      Note(ms, use_.syncs++, &use_.sync_time);
      [[fallthrough]];
    case Kind::kWrite:
      Note(ms, use_.writes++, &use_.write_time);
      use_.written_bytes += bytes;
      break;
    case Kind::kSync:
      Note(ms, use_.syncs++, &use_.sync_time);
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
