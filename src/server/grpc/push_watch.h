// Streams in the middle of a large rollout: its memory is reserved, and the rest of its bytes has
// yet to come. Who stalls there can be found and ended, so that the memory serves others.
//
// Thread-safe. A stream that is whole costs nothing here: only frames that leave a rollout
// unfinished are noted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "shard/messages.h"

namespace forebay::server {

class PushWatch {
 public:
  struct Stalled {
    uint64_t id = 0;
    uint64_t frames = 0;
    shard::LeaseRef lease;  // of the rollout that is not whole; zero in a pushed group
    uint64_t idle_ms = 0;
  };
  // Ends the stream if no further frame has come since `frames` of them; from any thread.
  using End = std::function<void(uint64_t frames, const std::string& why)>;

  // Begins to watch a stream. Returns its id; Came follows.
  uint64_t Begin(End end);
  // A frame came, and more of the rollout is still to come.
  void Came(uint64_t id, uint64_t frames, const shard::LeaseRef& lease);
  void Forget(uint64_t id);

  // Streams without a frame for `idle_ms` or longer.
  std::vector<Stalled> Find(uint64_t idle_ms) const;
  // Ends what was found, unless it went on. False if it did.
  bool EndStalled(const Stalled& stalled, const std::string& why);

 private:
  struct Entry {
    shard::LeaseRef lease;
    End end;
    uint64_t frames = 0;
    uint64_t last_ms = 0;
  };

  mutable Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::server
