// From the hash of an external id to a task's dense index: 4 bytes and a tag of 1 byte a slot; the
// key is read from the record.
//
// Many small open-addressing tables under a directory (extendible hashing), so that an insert never
// rehashes more than one small table. Not thread-safe. Callers insert a key once, after its record
// is in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "codec/copy_on_write_array.h"
#include "curriculum/task_record.h"

namespace forebay::curriculum {

using TaskRecords = codec::CopyOnWriteArray<TaskRecord, 256>;

class IdMap {
 public:
  IdMap();
  std::optional<uint32_t> Find(const TaskRecords& records, uint64_t external_hash) const;
  // Adds records[index], whose external hash is not in the map.
  void Insert(const TaskRecords& records, uint32_t index);
  // Of an empty map: adds all records; false if two have the same external hash. Much cheaper than
  // to insert them one by one.
  bool Build(const TaskRecords& records);
  size_t memory_bytes() const;

 private:
  struct Table {
    uint32_t capacity = 0;  // a power of two
    uint32_t count = 0;
    uint8_t depth = 0;  // leading bits of the hash that all its keys share
    std::unique_ptr<uint32_t[]> index;
    std::unique_ptr<uint8_t[]> tag;
  };
  static Table MakeTable(uint32_t capacity, uint8_t depth);
  static void Place(Table& table, uint64_t hash, uint32_t index);
  // False, and nothing is placed, if the external hash of records[index] is in the table.
  static bool PlaceNew(Table& table, uint64_t hash, const TaskRecords& records, uint32_t index);
  static uint32_t CapacityFor(uint32_t count);
  uint32_t Slot(uint64_t hash) const { return depth_ == 0 ? 0 : hash >> (64 - depth_); }
  void Grow(const TaskRecords& records, uint32_t table);
  void Split(const TaskRecords& records, uint32_t table, uint64_t hash);

  std::vector<Table> tables_;
  std::vector<uint32_t> directory_;  // 2^depth_ numbers of tables, by the leading bits of the hash
  uint8_t depth_ = 0;
};

}  // namespace forebay::curriculum
