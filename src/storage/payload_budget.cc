#include "storage/payload_budget.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace forebay::storage {

PayloadBudget::PayloadBudget(uint64_t bytes_max, uint64_t completion_reserve_bytes)
    : bytes_max_(bytes_max), completion_reserve_(completion_reserve_bytes) {}

PayloadBudget::Owner PayloadBudget::New(uint64_t bytes_max, uint64_t completion_reserve_bytes) {
  return Owner(new PayloadBudget(bytes_max, completion_reserve_bytes));
}

void PayloadBudget::Orphan() {
  {
    absl::MutexLock lock(&mutex_);
    waiters_.clear();
    waiting_.store(0);
  }
  LetGo(1);
}

void PayloadBudget::LetGo(uint64_t holders) {
  if (holders_.fetch_sub(holders, std::memory_order_acq_rel) == holders) delete this;
}

void PayloadBudget::BlocksGone(uint64_t blocks, uint64_t footprint) {
  Free(footprint);
  LetGo(blocks);
}

uint64_t PayloadBudget::ordinary_max() const {
  const uint64_t max = bytes_max_.load(std::memory_order_relaxed);
  return max - std::min(max, completion_reserve_.load(std::memory_order_relaxed));
}

bool PayloadBudget::CanEverFit(uint64_t bytes) const { return bytes <= ordinary_max(); }

bool PayloadBudget::Grab(uint64_t bytes, uint64_t limit) {
  uint64_t used = used_.load();
  do {
    if (used > limit || bytes > limit - used) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return true;
}

void PayloadBudget::Free(uint64_t bytes) {
  const uint64_t before = used_.fetch_sub(bytes);
  FOREBAY_CHECK(before >= bytes);
  // Ordered against Await, which publishes its waiter before it looks at used_: one of the two sees
  // the other.
  if (waiting_.load() > 0) ServeWaiters();
}

bool PayloadBudget::TryReserve(uint64_t bytes) {
  // Those who came before go first.
  return waiting_.load() == 0 && Grab(bytes, ordinary_max());
}

void PayloadBudget::Unreserve(uint64_t bytes) {
  if (bytes > 0) Free(bytes);
}

WaiterId PayloadBudget::Await(uint64_t bytes, uint64_t tag, std::function<void()> admitted) {
  WaiterId id;
  {
    absl::MutexLock lock(&mutex_);
    id = ++last_waiter_;
    waiters_.push_back({{id, bytes, tag}, std::move(admitted)});
    waiting_.store(waiters_.size());
  }
  ServeWaiters();
  return id;
}

bool PayloadBudget::Cancel(WaiterId id) {
  bool found = false;
  {
    absl::MutexLock lock(&mutex_);
    const auto at = std::find_if(waiters_.begin(), waiters_.end(),
                                 [id](const Waiting& w) { return w.waiter.id == id; });
    if (at != waiters_.end()) {
      found = true;
      waiters_.erase(at);
      waiting_.store(waiters_.size());
    }
  }
  if (found) ServeWaiters();  // one behind it may fit
  return found;
}

std::vector<BudgetWaiter> PayloadBudget::Waiters() const {
  absl::MutexLock lock(&mutex_);
  std::vector<BudgetWaiter> waiters;
  waiters.reserve(waiters_.size());
  for (const Waiting& waiting : waiters_) waiters.push_back(waiting.waiter);
  return waiters;
}

bool PayloadBudget::AdmitFromReserve(WaiterId id) {
  std::function<void()> admitted;
  {
    absl::MutexLock lock(&mutex_);
    const auto at = std::find_if(waiters_.begin(), waiters_.end(),
                                 [id](const Waiting& w) { return w.waiter.id == id; });
    if (at == waiters_.end()) return false;
    if (!Grab(at->waiter.bytes, bytes_max_.load(std::memory_order_relaxed))) return false;
    admitted = std::move(at->admitted);
    waiters_.erase(at);
    waiting_.store(waiters_.size());
  }
  admitted();
  return true;
}

void PayloadBudget::SetLimits(uint64_t bytes_max, uint64_t completion_reserve_bytes) {
  bytes_max_.store(bytes_max, std::memory_order_relaxed);
  completion_reserve_.store(completion_reserve_bytes, std::memory_order_relaxed);
  ServeWaiters();
}

BudgetUse PayloadBudget::use() const {
  absl::MutexLock lock(&mutex_);
  BudgetUse use;
  use.bytes_max = bytes_max_.load(std::memory_order_relaxed);
  use.completion_reserve_bytes = completion_reserve_.load(std::memory_order_relaxed);
  use.used_bytes = used_.load(std::memory_order_relaxed);
  use.waiters = waiters_.size();
  for (const Waiting& waiting : waiters_) use.waiting_bytes += waiting.waiter.bytes;
  return use;
}

void PayloadBudget::ServeWaiters() {
  std::vector<std::function<void()>> admitted;
  {
    absl::MutexLock lock(&mutex_);
    while (!waiters_.empty() && Grab(waiters_.front().waiter.bytes, ordinary_max())) {
      admitted.push_back(std::move(waiters_.front().admitted));
      waiters_.pop_front();
      waiting_.store(waiters_.size());
    }
  }
  for (const std::function<void()>& callback : admitted) callback();
}

}  // namespace forebay::storage
