// What a shard could hand out, and why not more.
//
// Plain values.
#pragma once

#include <cstdint>

#include "codec/peer_messages.h"

namespace forebay::shard {

// What could be handed out of one train source now.
struct SourceSupply {
  uint64_t attempts = 0;
  uint64_t new_groups = 0;                               // among them, not begun yet
  codec::IdleReason idle = codec::IdleReason::kNoTasks;  // if no group can be begun
};

// What an Assign could hand out now.
struct Available {
  uint64_t attempts = 0;
  const char* reason = "";  // if there are none
};

}  // namespace forebay::shard
