// A doubly linked list through records of a SlotTable: no allocation, O(1) at both ends and for
// removal of any member.
//
// `kLink` is the Link member of the record that this list uses; a record is in at most one list for
// each of its Links. Not thread-safe. Callers keep track of which list a record is in.
#pragma once

#include <cstdint>

#include "rollout/slot_table.h"

namespace forebay::rollout {

struct Link {
  uint32_t previous = kNone;
  uint32_t next = kNone;
  template <class A>
  void Fields(A& a) {
    a(previous, next);
  }
};

template <class T, Link T::*kLink>
class LinkList {
 public:
  uint32_t head() const { return head_; }
  uint32_t tail() const { return tail_; }
  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  static uint32_t Next(const SlotTable<T>& table, uint32_t slot) {
    return (table[slot].*kLink).next;
  }
  static uint32_t Previous(const SlotTable<T>& table, uint32_t slot) {
    return (table[slot].*kLink).previous;
  }

  void PushBack(SlotTable<T>& table, uint32_t slot) { InsertBefore(table, slot, kNone); }

  // Puts `slot` before `position`; kNone: at the end.
  void InsertBefore(SlotTable<T>& table, uint32_t slot, uint32_t position) {
    Link& link = table[slot].*kLink;
    link.next = position;
    link.previous = position == kNone ? tail_ : (table[position].*kLink).previous;
    Before(table, position) = slot;
    After(table, link.previous) = slot;
    ++size_;
  }

  void Remove(SlotTable<T>& table, uint32_t slot) {
    Link& link = table[slot].*kLink;
    After(table, link.previous) = link.next;
    Before(table, link.next) = link.previous;
    link = Link{};
    --size_;
  }

  // Calls `check(slot)` for every member; false when a check says so or the links do not form this
  // list. Safe on any links.
  template <class Check>
  bool Walk(const SlotTable<T>& table, Check check) const {
    uint32_t previous = kNone;
    uint32_t count = 0;
    for (uint32_t slot = head_; slot != kNone; slot = Next(table, slot)) {
      if (!table.InUse(slot) || Previous(table, slot) != previous) return false;
      if (++count > size_ || !check(slot)) return false;
      previous = slot;
    }
    return count == size_ && previous == tail_;
  }

  template <class A>
  void Fields(A& a) {
    a(head_, tail_, size_);
  }

 private:
  uint32_t& After(SlotTable<T>& table, uint32_t slot) {
    return slot == kNone ? head_ : (table[slot].*kLink).next;
  }
  uint32_t& Before(SlotTable<T>& table, uint32_t slot) {
    return slot == kNone ? tail_ : (table[slot].*kLink).previous;
  }

  uint32_t head_ = kNone;
  uint32_t tail_ = kNone;
  uint32_t size_ = 0;
};

}  // namespace forebay::rollout
