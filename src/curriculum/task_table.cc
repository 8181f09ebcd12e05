#include "curriculum/task_table.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::curriculum {
namespace {

bool Valid(const TaskRecord& record) {
  return Valid(TaskStatistics{.pass_a = record.pass_a,
                              .pass_b = record.pass_b,
                              .mean_tokens = record.mean_tokens,
                              .mean_duration_ms = record.mean_duration_ms}) &&
         CheckWeight(record.weight).ok();
}

void Name(size_t position, std::optional<uint32_t>* refused) {
  if (refused != nullptr) *refused = static_cast<uint32_t>(position);
}

absl::Status OtherContent(size_t position, const NewTask& task, uint64_t content_hash,
                          std::optional<uint32_t>* refused) {
  Name(position, refused);
  return absl::AlreadyExistsError(
      absl::StrCat("tasks[", position, "]: external id with hash ", absl::Hex(task.external_hash),
                   " exists with other content (hash ", absl::Hex(content_hash), ", not ",
                   absl::Hex(task.content_hash), ")"));
}

// Drops from `fresh` the positions that repeat an earlier one.
absl::Status DropRepeated(absl::Span<const NewTask> tasks, std::vector<uint32_t>* fresh,
                          std::optional<uint32_t>* refused) {
  std::vector<std::pair<uint64_t, uint32_t>> by_hash;
  by_hash.reserve(fresh->size());
  for (const uint32_t i : *fresh) by_hash.emplace_back(tasks[i].external_hash, i);
  std::sort(by_hash.begin(), by_hash.end());
  std::vector<uint32_t> repeated;
  for (size_t k = 1; k < by_hash.size(); ++k) {
    if (by_hash[k].first != by_hash[k - 1].first) continue;
    const NewTask& task = tasks[by_hash[k].second];
    const NewTask& earlier = tasks[by_hash[k - 1].second];
    if (task.content_hash != earlier.content_hash) {
      return OtherContent(by_hash[k].second, task, earlier.content_hash, refused);
    }
    repeated.push_back(by_hash[k].second);
  }
  if (repeated.empty()) return absl::OkStatus();
  std::sort(repeated.begin(), repeated.end());
  std::vector<uint32_t> kept;
  std::set_difference(fresh->begin(), fresh->end(), repeated.begin(), repeated.end(),
                      std::back_inserter(kept));
  *fresh = std::move(kept);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> TaskTable::CheckNew(absl::Span<const NewTask> tasks,
                                                          std::optional<uint32_t>* refused) const {
  std::vector<uint32_t> fresh;
  if (tasks.size() > kTasksPerSourceMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(tasks.size(), " tasks in one call; at most ", kTasksPerSourceMax));
  }
  fresh.reserve(tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (absl::Status valid = CheckWeight(tasks[i].weight); !valid.ok()) {
      Name(i, refused);
      return absl::InvalidArgumentError(absl::StrCat("tasks[", i, "].", valid.message()));
    }
    const auto known = Find(tasks[i].external_hash);
    if (!known) {
      fresh.push_back(static_cast<uint32_t>(i));
    } else if (records_[*known].content_hash != tasks[i].content_hash) {
      return OtherContent(i, tasks[i], records_[*known].content_hash, refused);
    }
  }
  FOREBAY_RETURN_IF_ERROR(DropRepeated(tasks, &fresh, refused));
  if (fresh.size() > kTasksPerSourceMax - size()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the source has ", size(), " tasks, ", fresh.size(), " more exceed ", kTasksPerSourceMax));
  }
  return fresh;
}

uint32_t TaskTable::Append(const NewTask& task) {
  TaskRecord record;
  record.external_hash = task.external_hash;
  record.content_hash = task.content_hash;
  record.content = task.content;
  record.weight = task.weight;
  const uint32_t index = size();
  records_.Append() = record;
  ids_.Insert(records_, index);
  return index;
}

bool TaskTable::Restore(codec::Reader& reader, uint32_t count) {
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    TaskRecord& record = records_.Append();
    reader.Bytes(&record, sizeof(record));
    if (!Valid(record)) return false;
  }
  return reader.ok() && ids_.Build(records_);
}

void TaskTable::Snapshot(codec::Writer& writer) const {
  records_.Snapshot(writer, [](codec::Writer& to, std::span<const TaskRecord> records) {
    to.Bytes(records.data(), records.size_bytes());
  });
}

absl::Status CheckWeight(float weight) {
  if (weight >= 0 && weight <= kTaskWeightMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("weight is ", weight, "; must be from 0 to ", kTaskWeightMax));
}

}  // namespace forebay::curriculum
