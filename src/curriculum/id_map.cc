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
// Records of a table when many are built at once: with the deviations that chance brings, few
// tables have more than fit kCapacityBeforeSplit.
constexpr uint64_t kBuiltCount = 340;

// Some slots stay free, so that searches end soon.
bool Full(uint32_t count, uint32_t capacity) { return count >= capacity / 16 * 13; }

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
    if (!Full(table.count, table.capacity)) return Place(table, hash, index);
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

bool IdMap::PlaceNew(Table& table, uint64_t hash, const TaskRecords& records, uint32_t index) {
  const uint8_t tag = Tag(hash);
  uint64_t slot = hash & (table.capacity - 1);
  for (; table.tag[slot] != kEmpty; slot = (slot + 1) & (table.capacity - 1)) {
    const bool same = table.tag[slot] == tag &&
                      records[table.index[slot]].external_hash == records[index].external_hash;
    if (same) return false;
  }
  table.tag[slot] = tag;
  table.index[slot] = index;
  ++table.count;
  return true;
}

uint32_t IdMap::CapacityFor(uint32_t count) {
  uint32_t capacity = kCapacityMin;
  while (count > 0 && Full(count - 1, capacity)) capacity *= 2;
  return capacity;
}

// The records are first put into the order of their tables, so that each table is filled while it
// is in the cache.
bool IdMap::Build(const TaskRecords& records) {
  const auto count = static_cast<uint32_t>(records.size());
  depth_ = 0;
  while (depth_ < kDepthMax && (count >> depth_) > kBuiltCount) ++depth_;
  std::vector<uint32_t> begins((size_t{1} << depth_) + 1);
  std::vector<uint64_t> hashes(count);
  for (uint32_t i = 0; i < count; ++i) {
    hashes[i] = Mix64(records[i].external_hash);
    ++begins[Slot(hashes[i]) + 1];
  }
  for (size_t t = 1; t < begins.size(); ++t) begins[t] += begins[t - 1];
  std::vector<uint32_t> order(count);
  std::vector<uint32_t> next(begins.begin(), begins.end() - 1);
  for (uint32_t i = 0; i < count; ++i) order[next[Slot(hashes[i])]++] = i;
  tables_.clear();
  directory_.clear();
  for (size_t t = 0; t + 1 < begins.size(); ++t) {
    Table& table = tables_.emplace_back(MakeTable(CapacityFor(begins[t + 1] - begins[t]), depth_));
    directory_.push_back(static_cast<uint32_t>(t));
    for (uint32_t k = begins[t]; k < begins[t + 1]; ++k) {
      if (!PlaceNew(table, hashes[order[k]], records, order[k])) return false;
    }
  }
  return true;
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
