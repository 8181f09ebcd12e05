#include "shard/kept.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/hash.h"
#include "shard/limits.h"

namespace forebay::shard {
namespace {

// In [0, 1).
double Draw(uint64_t seed, RolloutId rollout) {
  return static_cast<double>(Mix64(HashCombine(seed, rollout.value)) >> 11) * 0x1p-53;
}

bool ValuesHold(const KeptRecord& record, ShardId shard) {
  return record.rollout.shard() == shard && record.group.shard() == shard &&
         record.attempt.shard() == shard && record.payload != PayloadId() &&
         std::isfinite(record.reward) && std::isfinite(record.advantage) &&
         record.status <= rollout::RolloutStatus::kAborted;
}

}  // namespace

bool Takes(const codec::KeepRule& rule, uint64_t run_seed, const KeptRecord& record) {
  if (rule.bytes_max == 0 || record.payload_bytes > rule.bytes_max) return false;
  const bool flagged = rule.flagged && record.status != rollout::RolloutStatus::kFinished;
  return flagged || Draw(run_seed, record.rollout) < rule.sample;
}

void KeptRollouts::Add(const KeptRecord& record, Dead* dead) {
  if (const uint32_t same = Find(record.rollout); same != rollout::kNone) Drop(same, dead);
  const uint32_t slot = table_.Add();
  KeptRecord& added = table_[slot];
  const uint32_t slot_state = added.slot_state;
  added = record;
  added.slot_state = slot_state;
  added.link = rollout::kNone;
  added.order = {};
  order_.PushBack(table_, slot);
  slots_[record.rollout] = slot;
  payload_bytes_ += record.payload_bytes;
}

void KeptRollouts::Trim(const codec::KeepRule& rule, Dead* dead) {
  while (!order_.empty() &&
         (payload_bytes_ > rule.bytes_max || order_.size() > kKeptMax || rule.bytes_max == 0)) {
    Drop(order_.head(), dead);
  }
}

void KeptRollouts::Drop(uint32_t slot, Dead* dead) {
  const KeptRecord& record = table_[slot];
  dead->push_back(record.payload);
  payload_bytes_ -= record.payload_bytes;
  slots_.erase(record.rollout);
  order_.Remove(table_, slot);
  table_.Remove(slot);
}

uint64_t KeptRollouts::Drop(const std::vector<PayloadId>& payloads, Dead* dead) {
  uint64_t count = 0;
  for (uint32_t slot = order_.head(); slot != rollout::kNone;) {
    const uint32_t next = Order::Next(table_, slot);
    const KeptRecord& record = std::as_const(table_)[slot];
    if (std::ranges::binary_search(payloads, record.payload)) {
      Drop(slot, dead);
      ++count;
    }
    slot = next;
  }
  return count;
}

uint32_t KeptRollouts::Find(RolloutId rollout) const {
  const auto found = slots_.find(rollout);
  return found == slots_.end() ? rollout::kNone : found->second;
}

uint64_t KeptRollouts::memory_bytes() const {
  return table_.memory_bytes() + slots_.capacity() * (sizeof(RolloutId) + sizeof(uint64_t) + 1);
}

void KeptRollouts::Snapshot(codec::Writer& writer) const {
  table_.Snapshot(writer);
  writer(order_, payload_bytes_);
}

bool KeptRollouts::Restore(codec::Reader& reader) {
  slots_.clear();
  if (!table_.Restore(reader)) return false;
  reader(order_, payload_bytes_);
  if (!reader.ok() || table_.used() > kKeptMax) return false;
  for (uint32_t slot = 0; slot < table_.size(); ++slot) {
    if (!table_.InUse(slot)) continue;
    if (!slots_.emplace(std::as_const(table_)[slot].rollout, slot).second) return false;
  }
  return true;
}

const char* KeptRollouts::Check(ShardId shard) const {
  uint64_t bytes = 0;
  const bool listed = order_.Walk(table_, [&](uint32_t slot) {
    bytes += table_[slot].payload_bytes;
    return ValuesHold(table_[slot], shard) && Find(table_[slot].rollout) == slot;
  });
  if (!listed || order_.size() != table_.used() || slots_.size() != table_.used()) {
    return "the list of kept rollouts is broken";
  }
  if (order_.size() > kKeptMax) return "too many rollouts are kept";
  return bytes == payload_bytes_ ? "" : "bytes of kept rollouts are miscounted";
}

}  // namespace forebay::shard
