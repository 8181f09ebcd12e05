// What people call tasks, and what was last said of their failures.
//
// ExternalId: pure but for the store. FailureNotes: thread-safe, volatile and bounded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/ids.h"
#include "base/sync.h"
#include "codec/actor_messages.h"
#include "storage/content_store.h"

namespace forebay::server {

// "" when the content is gone.
inline std::string ExternalId(const storage::ContentStore* contents, PayloadId id) {
  if (id == PayloadId()) return "";
  const auto bytes = contents->Read(id);
  codec::TaskContent content;
  if (!bytes.ok() || !codec::DecodeTaskContent(*bytes, &content)) return "";
  return std::string(content.external_id);
}

class FailureNotes {
 public:
  static constexpr size_t kNotesMax = 10'000;

  void Put(ShardId shard, TaskId task, const std::string& reason) {
    MutexLock lock(&mutex_);
    // Full: any one makes room; quarantined tasks are few.
    if (notes_.size() >= kNotesMax) notes_.erase(notes_.begin());
    notes_[{shard.value, task.value}] = reason;
  }
  std::string Get(ShardId shard, TaskId task) const {
    MutexLock lock(&mutex_);
    const auto found = notes_.find({shard.value, task.value});
    return found == notes_.end() ? "" : found->second;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::pair<uint8_t, uint64_t>, std::string> notes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::server
