#include "shard/sessions.h"

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
    records_.emplace_back();
    return static_cast<uint32_t>(records_.size() - 1);
  }
  for (uint32_t i = 0; i < kSearchMax; ++i) {
    const uint32_t slot = next_closed_;
    next_closed_ = (next_closed_ + 1) % kSessionsMax;
    if (records_[slot]->leases != 0) continue;
    by_id_.erase(records_[slot]->id);
    return slot;
  }
  return rollout::kNone;
}

uint32_t Sessions::Open(const OpenSession& open) {
  uint32_t slot = Find(open.session);
  if (slot == rollout::kNone) {
    slot = FreeSlot();
    if (slot == rollout::kNone) return slot;
    records_[slot] = std::make_unique<SessionRecord>();
    records_[slot]->id = open.session;
    by_id_[open.session] = slot;
  }
  SessionRecord& record = *records_[slot];
  record.actor = open.actor;
  record.engine = open.engine;
  record.site = open.site;
  record.client = open.client;
  return slot;
}

uint64_t Sessions::memory_bytes() const {
  uint64_t bytes = by_id_.capacity() * (sizeof(SessionId) + sizeof(uint32_t) + 1);
  for (const auto& record : records_) {
    bytes += sizeof(record) + sizeof(*record) + record->answer.capacity() * sizeof(LeaseRef);
  }
  return bytes;
}

void Sessions::Snapshot(codec::Writer& writer) const {
  writer(next_closed_, static_cast<uint32_t>(records_.size()));
  for (const auto& record : records_) writer(*record);
}

bool Sessions::Restore(codec::Reader& reader) {
  records_.clear();
  by_id_.clear();
  uint32_t size = 0;
  reader(next_closed_, size);
  if (!reader.ok() || size > kSessionsMax || next_closed_ >= kSessionsMax) return false;
  for (uint32_t slot = 0; slot < size; ++slot) {
    records_.push_back(std::make_unique<SessionRecord>());
    reader(*records_.back());
    if (!reader.ok() || !by_id_.emplace(records_.back()->id, slot).second) return false;
    if (records_.back()->answer.size() > kAssignmentsMax) return false;
  }
  return true;
}

}  // namespace forebay::shard
