#include "curriculum/id_map.h"

#include <utility>

#include "base/prng.h"

namespace forebay::curriculum {
namespace {

constexpr uint32_t kCapacityMin = 16;
constexpr uint32_t kCapacityBeforeSplit = 512;
// Beyond this depth tables grow instead: the directory stays small whatever the ids are.
constexpr uint8_t kDepthMax = 18;
constexpr uint8_t kEmpty = 0;

// The directory takes the leading bits of the hash, the slot the trailing ones, the tag some
// between.
uint8_t Tag(uint64_t hash) {
  const auto tag = static_cast<uint8_t>(hash >> 34);
  return tag == kEmpty ? 1 : tag;
}

}  // namespace

IdMap::IdMap() : directory_{0} { tables_.push_back(MakeTable(kCapacityMin, 0)); }

IdMap::Table IdMap::MakeTable(uint32_t capacity, uint8_t depth) {
  return {capacity, 0, depth, std::make_unique<uint32_t[]>(capacity),
          std::make_unique<uint8_t[]>(capacity)};
}

std::optional<uint32_t> IdMap::Find(const TaskRecords& records, uint64_t external_hash) const {
  const uint64_t hash = Mix64(external_hash);
  const Table& table = tables_[directory_[Slot(hash)]];
  const uint8_t tag = Tag(hash);
  for (uint64_t slot = hash;; ++slot) {
    slot &= table.capacity - 1;
    if (table.tag[slot] == kEmpty) return std::nullopt;
    if (table.tag[slot] != tag) continue;
    const uint32_t index = table.index[slot];
    if (records[index].external_hash == external_hash) return index;
  }
}

void IdMap::Insert(const TaskRecords& records, uint32_t index) {
  const uint64_t hash = Mix64(records[index].external_hash);
  for (;;) {
    const uint32_t number = directory_[Slot(hash)];
    Table& table = tables_[number];
    // Some stay free, so that searches end soon.
    if (table.count < table.capacity / 16 * 13) return Place(table, hash, index);
    if (table.capacity < kCapacityBeforeSplit || table.depth == kDepthMax) {
      Grow(records, number);
    } else {
      Split(records, number, hash);
    }
  }
}

void IdMap::Place(Table& table, uint64_t hash, uint32_t index) {
  uint64_t slot = hash & (table.capacity - 1);
  while (table.tag[slot] != kEmpty) slot = (slot + 1) & (table.capacity - 1);
  table.tag[slot] = Tag(hash);
  table.index[slot] = index;
  ++table.count;
}

void IdMap::Grow(const TaskRecords& records, uint32_t number) {
  Table& old = tables_[number];
  Table grown = MakeTable(old.capacity * 2, old.depth);
  for (uint32_t slot = 0; slot < old.capacity; ++slot) {
    if (old.tag[slot] == kEmpty) continue;
    Place(grown, Mix64(records[old.index[slot]].external_hash), old.index[slot]);
  }
  old = std::move(grown);
}

void IdMap::Split(const TaskRecords& records, uint32_t number, uint64_t hash) {
  const uint8_t depth = tables_[number].depth;
  if (depth == depth_) {
    std::vector<uint32_t> doubled(directory_.size() * 2);
    for (size_t i = 0; i < doubled.size(); ++i) doubled[i] = directory_[i / 2];
    directory_ = std::move(doubled);
    ++depth_;
  }
  const Table old = std::move(tables_[number]);
  Table halves[2] = {MakeTable(old.capacity, depth + 1), MakeTable(old.capacity, depth + 1)};
  for (uint32_t slot = 0; slot < old.capacity; ++slot) {
    if (old.tag[slot] == kEmpty) continue;
    const uint64_t moved = Mix64(records[old.index[slot]].external_hash);
    Place(halves[moved >> (63 - depth) & 1], moved, old.index[slot]);
  }
  // The directory's entries for the table are consecutive; the second half of them names the new
  // one.
  const uint32_t half = 1u << (depth_ - depth - 1);
  const uint32_t first = Slot(hash) & ~(2 * half - 1);
  const auto added = static_cast<uint32_t>(tables_.size());
  for (uint32_t i = 0; i < half; ++i) directory_[first + half + i] = added;
  tables_[number] = std::move(halves[0]);
  tables_.push_back(std::move(halves[1]));
}

size_t IdMap::memory_bytes() const {
  size_t bytes = tables_.capacity() * sizeof(Table) + directory_.capacity() * sizeof(uint32_t);
  for (const Table& table : tables_) bytes += table.capacity * (sizeof(uint32_t) + 1);
  return bytes;
}

}  // namespace forebay::curriculum
