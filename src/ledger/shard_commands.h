// What the ledger is told of its shards; commands.h has all else.
//
// Plain values; not thread-safe.
#pragma once

#include "base/ids.h"

namespace forebay::ledger {

// The shard has not answered for too long: steps are planned without it. Or it answers again, and
// is taken back. Proposed by the primary, from what its driver sees.
struct MarkShard {
  ShardId shard;
  bool absent = false;
  template <class A>
  void Fields(A& a) {
    a(shard, absent);
  }
};

}  // namespace forebay::ledger
