#include "shard/waiters.h"

#include <utility>

namespace forebay::shard {

using rollout::kNone;

void Waiters::Link(uint32_t index) {
  entries_[index].previous = tail_;
  entries_[index].next = kNone;
  (tail_ == kNone ? head_ : entries_[tail_].next) = index;
  tail_ = index;
}

void Waiters::Unlink(uint32_t index) {
  const Entry& entry = entries_[index];
  (entry.previous == kNone ? head_ : entries_[entry.previous].next) = entry.next;
  (entry.next == kNone ? tail_ : entries_[entry.next].previous) = entry.previous;
}

void Waiters::Add(Waiter waiter, uint64_t due_ms) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  by_session_[waiter.request.session] = index;
  by_tag_[waiter.tag] = index;
  entries_[index].waiter = std::move(waiter);
  Link(index);
  timers_.Set(index, due_ms);
}

Waiter Waiters::Take(uint32_t index) {
  Unlink(index);
  timers_.Cancel(index);
  Waiter waiter = std::move(entries_[index].waiter);
  by_session_.erase(waiter.request.session);
  by_tag_.erase(waiter.tag);
  free_.push_back(index);
  return waiter;
}

std::optional<Waiter> Waiters::TakeOfSession(SessionId session) {
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return std::nullopt;
  return Take(found->second);
}

std::optional<Waiter> Waiters::TakeOfTag(Tag tag) {
  const auto found = by_tag_.find(tag);
  if (found == by_tag_.end()) return std::nullopt;
  return Take(found->second);
}

void Waiters::MoveFrontToBack() {
  const uint32_t index = head_;
  Unlink(index);
  Link(index);
}

void Waiters::TakeDue(uint64_t now_ms, std::vector<Waiter>* due) {
  std::vector<uint32_t> indexes;
  timers_.TakeDue(now_ms, &indexes);
  for (uint32_t index : indexes) due->push_back(Take(index));
}

}  // namespace forebay::shard
