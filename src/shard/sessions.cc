#include "shard/sessions.h"

#include <span>
#include <utility>

#include "shard/limits.h"

namespace forebay::shard {
namespace {

// How many sessions a full table looks at for one without leases.
constexpr uint32_t kSearchMax = 1'024;

}  // namespace

uint32_t Sessions::Find(SessionId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? rollout::kNone : found->second;
}

// Only a full table has a use for the slots of closed sessions: they are filled at once.
uint32_t Sessions::FreeSlot() {
  if (records_.size() < kSessionsMax) {
    records_.Append();
    return size() - 1;
  }
  for (uint32_t i = 0; i < kSearchMax; ++i) {
    const uint32_t slot = next_closed_;
    next_closed_ = (next_closed_ + 1) % kSessionsMax;
    const SessionRecord& record = std::as_const(records_)[slot];
    if (record.leases != 0) continue;
    by_id_.erase(record.id);
    return slot;
  }
  return rollout::kNone;
}

uint32_t Sessions::Open(const OpenSession& open) {
  uint32_t slot = Find(open.session);
  if (slot == rollout::kNone) {
    slot = FreeSlot();
    if (slot == rollout::kNone) return slot;
    records_[slot] = SessionRecord{.id = open.session};
    by_id_[open.session] = slot;
  }
  SessionRecord& record = records_[slot];
  record.actor = open.actor;
  record.engine = open.engine;
  record.site = open.site;
  record.client = open.client;
  return slot;
}

uint64_t Sessions::memory_bytes() const {
  uint64_t bytes = by_id_.capacity() * (sizeof(SessionId) + sizeof(uint32_t) + 1);
  for (uint32_t slot = 0; slot < size(); ++slot) {
    bytes += records_[slot].answer.capacity() * sizeof(LeaseRef);
  }
  return bytes + records_.memory_bytes();
}

void Sessions::Snapshot(codec::Writer& writer) const {
  writer(next_closed_, size());
  records_.Snapshot(writer, [](codec::Writer& to, std::span<const SessionRecord> records) {
    for (const SessionRecord& record : records) to(record);
  });
}

bool Sessions::Restore(codec::Reader& reader) {
  *this = Sessions();
  uint32_t count = 0;
  reader(next_closed_, count);
  if (!reader.ok() || count > kSessionsMax || next_closed_ >= kSessionsMax) return false;
  for (uint32_t slot = 0; slot < count; ++slot) {
    SessionRecord& record = records_.Append();
    reader(record);
    if (!reader.ok() || !by_id_.emplace(record.id, slot).second) return false;
    if (record.answer.size() > kAssignmentsMax) return false;
  }
  return true;
}

}  // namespace forebay::shard
