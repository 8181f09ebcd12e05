// What the ledger answers, and what Apply wants done; commands.h has what it is asked.
//
// Plain values; not thread-safe.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "codec/peer_channel.h"
#include "ledger/commands.h"

namespace forebay::ledger {

struct StatusReply {
  absl::Status status;
};

struct PutSourceReply {
  absl::Status status;
  SourceId source;
  bool created = false;
};

struct AttachReply {
  absl::Status status;
  Generation generation;
  StepId next_step;
  PolicyVersion train_version;
  std::vector<StepId> open_steps;
};

struct CommitReply {
  absl::Status status;
  bool already_committed = false;
  PolicyVersion next_version;
};

struct CheckpointReply {
  absl::Status status;
  StepId checkpoint;  // the newest; a later one may cover the step already
};

struct RewindReply {
  absl::Status status;
  StepId next_step;
  PolicyVersion train_version;  // that the new branch begins with
  uint64_t taken_back = 0;      // committed steps
  uint64_t served_again = 0;    // of those, and of those that an earlier rewind was serving again
  template <class A>
  void Fields(A& a) {
    a(next_step, train_version, taken_back, served_again);
  }
};

struct ReportReply {
  absl::Status status;
  bool already_counted = false;
};

struct LiftReply {
  absl::Status status;
  bool lifted = false;
};

// Answers OpenStep, PutColumns and the rest. A step that is not sealed yet is no answer to
// OpenStep: the driver looks at the step again when `steps_changed` names it, or its wait is over.
using Reply = std::variant<StatusReply, PutSourceReply, AttachReply, CommitReply, CheckpointReply,
                           RewindReply, ReportReply, LiftReply>;

using Tag = uint64_t;

struct TaggedReply {
  Tag tag = 0;
  Reply reply;
};

struct Effects {
  std::vector<TaggedReply> replies;
  // To be sent to the shards, in order.
  std::vector<std::pair<ShardId, codec::NumberedMessage>> to_shards;
  // (shard, number): acknowledge the shard's messages up to there.
  std::vector<std::pair<ShardId, uint64_t>> acknowledge_shards;
  // Steps whose state changed: wake those who wait for them.
  std::vector<StepId> steps_changed;
  // For WatchPolicy streams; the shards' messages go first.
  std::vector<Announcement> announcements;
  // Written columns that no state names any more.
  std::vector<PayloadId> dead_payloads;
  void Clear() {
    replies.clear();
    to_shards.clear();
    acknowledge_shards.clear();
    steps_changed.clear();
    announcements.clear();
    dead_payloads.clear();
  }
};

}  // namespace forebay::ledger
