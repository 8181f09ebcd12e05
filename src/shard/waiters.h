// Requests for assignments that wait for something to hand out: first come, first served; one for
// each session.
//
// Not thread-safe. Bounded by whoever adds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "rollout/slot_table.h"
#include "shard/messages.h"
#include "shard/timers.h"

namespace forebay::shard {

struct Waiter {
  Tag tag = 0;
  Assign request;
};

class Waiters {
 public:
  explicit Waiters(uint64_t now_ms) : timers_(now_ms) {}

  size_t size() const { return by_session_.size(); }
  bool empty() const { return by_session_.empty(); }
  // The session has no waiter yet.
  void Add(Waiter waiter, uint64_t due_ms);
  // nullopt: there is none.
  std::optional<Waiter> TakeOfSession(SessionId session);
  std::optional<Waiter> TakeOfTag(Tag tag);
  // Not empty.
  const Waiter& front() const { return entries_[head_].waiter; }
  Waiter TakeFront() { return Take(head_); }
  void MoveFrontToBack();
  void TakeDue(uint64_t now_ms, std::vector<Waiter>* due);
  uint64_t NextDue() const { return timers_.Next(); }

 private:
  struct Nothing {};
  struct Entry {
    Waiter waiter;
    uint32_t previous = rollout::kNone;
    uint32_t next = rollout::kNone;
  };

  Waiter Take(uint32_t index);
  void Link(uint32_t index);
  void Unlink(uint32_t index);

  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  uint32_t head_ = rollout::kNone;
  uint32_t tail_ = rollout::kNone;
  Timers<Nothing> timers_;
  absl::flat_hash_map<SessionId, uint32_t> by_session_;
  absl::flat_hash_map<Tag, uint32_t> by_tag_;
};

}  // namespace forebay::shard
