// Counts payload memory against its limit and makes those wait who do not fit; nothing is ever
// taken that is not there.
//
//   used = reservations not yet turned into blocks + footprints of all blocks alive (also those
//   only a send still holds) admitted in the ordinary way while used + bytes <= bytes_max -
//   completion_reserve_bytes, and nobody waits before AdmitFromReserve: used + bytes <= bytes_max
//   AwaitRead: the same, and before all who wait in the ordinary way
//
// Where cached bytes may be given up, an evictor is asked for what is short before anybody waits.
// Thread-safe. `admitted` callbacks and the evictor run without a lock held, on the thread that
// freed or asked for the bytes, and must not block. It lives until its owner and the last block
// have let go of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "storage/page_pool.h"

namespace forebay::storage {

using WaiterId = uint64_t;

struct BudgetWaiter {
  WaiterId id = 0;
  uint64_t bytes = 0;
  uint64_t tag = 0;  // chosen by who waits: the attempt whose rollout it is
};

struct BudgetUse {
  uint64_t bytes_max = 0;
  uint64_t completion_reserve_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t waiting_bytes = 0;
  uint64_t waiters = 0;
  uint64_t read_waiting_bytes = 0;  // by AwaitRead
  uint64_t read_waiters = 0;
};

class PayloadBudget {
 public:
  // Owned by the returned pointer and by every block.
  struct Drop {
    void operator()(PayloadBudget* budget) const { budget->Orphan(); }
  };
  using Owner = std::unique_ptr<PayloadBudget, Drop>;
  static Owner New(uint64_t bytes_max, uint64_t completion_reserve_bytes);

  // Gives up cached blocks of so many bytes, if it can, and returns how many it gave up. `reading`:
  // for AwaitRead.
  using Evictor = std::function<uint64_t(uint64_t bytes, bool reading)>;
  // While nobody else uses the budget.
  void SetEvictor(Evictor evict) { evict_ = std::move(evict); }

  // Whether `bytes` could ever be admitted.
  bool CanEverFit(uint64_t bytes) const;
  // The most that a reservation can be: all but the completion reserve.
  uint64_t ordinary_max() const;
  bool TryReserve(uint64_t bytes);
  void Unreserve(uint64_t bytes);
  // Reserves `bytes` as soon as those who came before are served and there is room, then calls
  // `admitted`; perhaps at once.
  WaiterId Await(uint64_t bytes, uint64_t tag, std::function<void()> admitted);
  // For what is read back from the disk: the completion reserve is open to it.
  bool CanEverRead(uint64_t bytes) const { return bytes <= bytes_max_.load(); }
  WaiterId AwaitRead(uint64_t bytes, std::function<void()> admitted);
  // Looks again whether the evictor can make room for those who wait: when something became
  // evictable.
  void EvictForWaiters();
  // False if the waiter has been admitted: then its reservation stands.
  bool Cancel(WaiterId id);
  // Oldest first.
  std::vector<BudgetWaiter> Waiters() const;
  // Admits a waiter out of turn, from what is kept back for groups that are about to complete.
  // False if there is no room, or no such waiter any more.
  bool AdmitFromReserve(WaiterId id);
  void SetLimits(uint64_t bytes_max, uint64_t completion_reserve_bytes);
  BudgetUse use() const;

 private:
  friend class Block;
  struct Waiting {
    BudgetWaiter waiter;
    std::function<void()> admitted;
  };

  PayloadBudget(uint64_t bytes_max, uint64_t completion_reserve_bytes);
  ~PayloadBudget() = default;
  void Orphan();
  void BlockMade() { holders_.fetch_add(1, std::memory_order_relaxed); }
  // Of a large block. What others have freed goes back to the system before memory grows above the
  // limit.
  char* TakePages(size_t bytes);
  void BlocksGone(uint64_t blocks, uint64_t footprint);
  void LetGo(uint64_t holders);
  void Free(uint64_t bytes);
  bool Grab(uint64_t bytes, uint64_t limit);
  // Grab, with room made by the evictor.
  bool GrabEvicting(uint64_t bytes, uint64_t limit);
  // 0 if they fit.
  uint64_t Shortage(uint64_t bytes, uint64_t limit) const;
  WaiterId Enqueue(std::deque<Waiting>* queue, BudgetWaiter waiter, std::function<void()> admitted);
  void CountWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    waiting_.store(waiters_.size() + readers_.size());
  }
  // Admits those at the head that fit now, and calls them back.
  void ServeWaiters();

  PagePool pages_;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> holders_{1};  // the owner, and each block
  std::atomic<uint64_t> bytes_max_;
  std::atomic<uint64_t> completion_reserve_;
  std::atomic<uint64_t> waiting_{0};  // length of readers_ and waiters_
  Evictor evict_;
  mutable Mutex mutex_;
  std::deque<Waiting> waiters_ ABSL_GUARDED_BY(mutex_);
  std::deque<Waiting> readers_ ABSL_GUARDED_BY(mutex_);
  WaiterId last_waiter_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace forebay::storage
