// The tasks of one source: records by dense index, in the order in which they were added, and the
// map from external ids.
//
// Tasks are added and changed, never removed, so an index stays valid. No call is slow because the
// table is big: nothing is rehashed or moved as it grows. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "codec/archive.h"
#include "curriculum/id_map.h"
#include "curriculum/task_record.h"

namespace forebay::curriculum {

// InvalidArgument if it is no number from 0 to kTaskWeightMax.
absl::Status CheckWeight(float weight);

class TaskTable {
 public:
  uint32_t size() const { return static_cast<uint32_t>(records_.size()); }
  // index < size().
  const TaskRecord& operator[](uint32_t index) const { return records_[index]; }
  TaskRecord& operator[](uint32_t index) { return records_[index]; }
  std::optional<uint32_t> Find(uint64_t external_hash) const {
    return ids_.Find(records_, external_hash);
  }

  // Which of `tasks` are not in the table yet, by position; of tasks that are in `tasks` twice the
  // first. Changes nothing. InvalidArgument: a weight is no number from 0 to kTaskWeightMax.
  // AlreadyExists: the same external hash with other content, in the table or in `tasks`.
  // ResourceExhausted: more than kTasksPerSourceMax. `refused`: the position in `tasks` that an
  // error is about, if it is about one.
  absl::StatusOr<std::vector<uint32_t>> CheckNew(absl::Span<const NewTask> tasks,
                                                 std::optional<uint32_t>* refused = nullptr) const;

  // Adds a task that is not in the table.
  uint32_t Append(const NewTask& task);
  // The records as they are, in order.
  void Snapshot(codec::Writer& writer) const;
  // Of an empty table: takes so many records; false if a value is out of range, two have the same
  // external hash, or they are not all there.
  bool Restore(codec::Reader& reader, uint32_t count);
  size_t memory_bytes() const { return records_.memory_bytes() + ids_.memory_bytes(); }

 private:
  TaskRecords records_;
  IdMap ids_;
};

}  // namespace forebay::curriculum
