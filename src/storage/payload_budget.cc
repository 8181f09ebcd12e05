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
    MutexLock lock(&mutex_);
    waiters_.clear();
    readers_.clear();
    CountWaiting();
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

char* PayloadBudget::TakePages(size_t bytes) {
  if (char* const data = pages_.TakeFreed(bytes); data != nullptr) return data;
  const uint64_t excess = Shortage(pages_.free_bytes(), bytes_max_.load());
  if (excess > 0) pages_.Trim(excess);
  return pages_.Take(bytes);
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
  return waiting_.load() == 0 && GrabEvicting(bytes, ordinary_max());
}

void PayloadBudget::Unreserve(uint64_t bytes) {
  if (bytes > 0) Free(bytes);
}

uint64_t PayloadBudget::Shortage(uint64_t bytes, uint64_t limit) const {
  const uint64_t used = used_.load();
  return used + bytes > limit ? used + bytes - limit : 0;
}

bool PayloadBudget::GrabEvicting(uint64_t bytes, uint64_t limit) {
  while (!Grab(bytes, limit)) {
    if (!evict_ || bytes > limit) return false;
    const uint64_t shortage = Shortage(bytes, limit);
    if (shortage > 0 && evict_(shortage, false) == 0) return false;
  }
  return true;
}

WaiterId PayloadBudget::Enqueue(std::deque<Waiting>* queue, BudgetWaiter waiter,
                                std::function<void()> admitted) {
  {
    MutexLock lock(&mutex_);
    waiter.id = ++last_waiter_;
    queue->push_back({waiter, std::move(admitted)});
    CountWaiting();
  }
  ServeWaiters();
  EvictForWaiters();
  return waiter.id;
}

WaiterId PayloadBudget::Await(uint64_t bytes, uint64_t tag, std::function<void()> admitted) {
  return Enqueue(&waiters_, {.bytes = bytes, .tag = tag}, std::move(admitted));
}

WaiterId PayloadBudget::AwaitRead(uint64_t bytes, std::function<void()> admitted) {
  return Enqueue(&readers_, {.bytes = bytes}, std::move(admitted));
}

void PayloadBudget::EvictForWaiters() {
  if (!evict_) return;
  while (waiting_.load() > 0) {
    uint64_t shortage;
    bool reading;
    {
      MutexLock lock(&mutex_);
      if (readers_.empty() && waiters_.empty()) return;
      reading = !readers_.empty();
      shortage = reading ? Shortage(readers_.front().waiter.bytes, bytes_max_.load())
                         : Shortage(waiters_.front().waiter.bytes, ordinary_max());
    }
    if (shortage > 0 && evict_(shortage, reading) == 0) return;
    ServeWaiters();
  }
}

bool PayloadBudget::Cancel(WaiterId id) {
  bool found = false;
  {
    MutexLock lock(&mutex_);
    for (auto* const queue : {&readers_, &waiters_}) {
      const auto at = std::find_if(queue->begin(), queue->end(),
                                   [id](const Waiting& w) { return w.waiter.id == id; });
      if (at == queue->end()) continue;
      found = true;
      queue->erase(at);
      CountWaiting();
      break;
    }
  }
  if (found) {  // one behind it may fit
    ServeWaiters();
    EvictForWaiters();
  }
  return found;
}

std::vector<BudgetWaiter> PayloadBudget::Waiters() const {
  MutexLock lock(&mutex_);
  std::vector<BudgetWaiter> waiters;
  waiters.reserve(waiters_.size());
  for (const Waiting& waiting : waiters_) waiters.push_back(waiting.waiter);
  return waiters;
}

bool PayloadBudget::AdmitFromReserve(WaiterId id) {
  while (true) {
    std::function<void()> admitted;
    uint64_t shortage;
    {
      MutexLock lock(&mutex_);
      const auto at = std::find_if(waiters_.begin(), waiters_.end(),
                                   [id](const Waiting& w) { return w.waiter.id == id; });
      if (at == waiters_.end()) return false;
      const uint64_t limit = bytes_max_.load(std::memory_order_relaxed);
      if (at->waiter.bytes > limit) return false;
      shortage = Shortage(at->waiter.bytes, limit);
      if (Grab(at->waiter.bytes, limit)) {
        admitted = std::move(at->admitted);
        waiters_.erase(at);
        CountWaiting();
      }
    }
    if (admitted) {
      admitted();
      return true;
    }
    if (!evict_) return false;
    if (shortage > 0 && evict_(shortage, false) == 0) return false;
  }
}

void PayloadBudget::SetLimits(uint64_t bytes_max, uint64_t completion_reserve_bytes) {
  bytes_max_.store(bytes_max, std::memory_order_relaxed);
  completion_reserve_.store(completion_reserve_bytes, std::memory_order_relaxed);
  const uint64_t excess = Shortage(0, bytes_max);
  if (evict_ && excess > 0) evict_(excess, false);
  const uint64_t kept = Shortage(pages_.free_bytes(), bytes_max);
  if (kept > 0) pages_.Trim(kept);
  ServeWaiters();
  EvictForWaiters();
}

BudgetUse PayloadBudget::use() const {
  MutexLock lock(&mutex_);
  BudgetUse use;
  use.bytes_max = bytes_max_.load(std::memory_order_relaxed);
  use.completion_reserve_bytes = completion_reserve_.load(std::memory_order_relaxed);
  use.used_bytes = used_.load(std::memory_order_relaxed);
  use.waiters = waiters_.size();
  for (const Waiting& waiting : waiters_) use.waiting_bytes += waiting.waiter.bytes;
  use.read_waiters = readers_.size();
  for (const Waiting& waiting : readers_) use.read_waiting_bytes += waiting.waiter.bytes;
  return use;
}

void PayloadBudget::ServeWaiters() {
  std::vector<std::function<void()>> admitted;
  {
    MutexLock lock(&mutex_);
    while (!readers_.empty() || !waiters_.empty()) {
      auto& queue = readers_.empty() ? waiters_ : readers_;
      const uint64_t limit =
          readers_.empty() ? ordinary_max() : bytes_max_.load(std::memory_order_relaxed);
      if (!Grab(queue.front().waiter.bytes, limit)) break;
      admitted.push_back(std::move(queue.front().admitted));
      queue.pop_front();
      CountWaiting();
    }
  }
  for (const std::function<void()>& callback : admitted) callback();
}

}  // namespace forebay::storage
