// Ids as clients see them, where a shard's own are not enough.
//
// Pure.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace forebay::server {

// Each shard numbers its tasks from 0; with the shard in the upper byte no two tasks of a run share
// an id. The lower bits are the shard's own: source (16 bits), index (32 bits).
inline uint64_t WireTaskId(ShardId shard, TaskId task) {
  return uint64_t{shard.value} << 56 | task.value;
}

}  // namespace forebay::server
