#include "replication/entry_log.h"

#include <utility>

#include "base/check.h"
#include "replication/options.h"

namespace forebay::replication {

EntryLog::EntryLog(LogPlace base, std::vector<Entry> entries) : base_(base) {
  for (Entry& entry : entries) Append(std::move(entry));
}

LogPlace EntryLog::last() const {
  if (entries_.empty()) return base_;
  return {entries_.back().entry.epoch, LogPosition(base_.position.value + entries_.size())};
}

const EntryLog::Kept& EntryLog::KeptAt(LogPosition position) const {
  FOREBAY_CHECK(position > base_.position && position <= last().position);
  return entries_[position.value - base_.position.value - 1];
}

Epoch EntryLog::EpochAt(LogPosition position) const {
  return position == base_.position ? base_.epoch : KeptAt(position).entry.epoch;
}

bool EntryLog::Has(LogPlace place) const {
  return place.position >= base_.position && place.position <= last().position &&
         EpochAt(place.position) == place.epoch;
}

const Entry& EntryLog::At(LogPosition position) const { return KeptAt(position).entry; }

uint64_t EntryLog::EndBytes(LogPosition position) const {
  return position == base_.position ? base_bytes_ : KeptAt(position).end_bytes;
}

uint64_t EntryLog::BytesBetween(LogPosition from, LogPosition to) const {
  return from >= to ? 0 : EndBytes(to) - EndBytes(from);
}

void EntryLog::Append(Entry entry) {
  FOREBAY_CHECK(entry.epoch >= last().epoch);
  const uint64_t bytes = entry.command.size() + kEntryOverheadBytes;
  const uint64_t before = EndBytes(last().position);
  entries_.push_back({std::move(entry), before + bytes});
}

void EntryLog::TruncateFrom(LogPosition from) {
  FOREBAY_CHECK(from > base_.position);
  while (last().position >= from && !entries_.empty()) entries_.pop_back();
}

void EntryLog::TrimTo(LogPosition place) {
  FOREBAY_CHECK(place >= base_.position && place <= last().position);
  while (base_.position < place) {
    base_ = {entries_.front().entry.epoch, LogPosition(base_.position.value + 1)};
    base_bytes_ = entries_.front().end_bytes;
    entries_.pop_front();
  }
}

void EntryLog::Restart(LogPlace base) {
  if (Has(base)) return TrimTo(base.position);
  entries_.clear();
  base_ = base;
  base_bytes_ = 0;
}

}  // namespace forebay::replication
