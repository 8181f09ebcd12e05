// What a shard answers, and what else it wants done, after a command is committed.
//
// Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "codec/peer_channel.h"

namespace forebay::shard {

struct Assignment {
  AttemptId attempt;
  uint32_t token = 0;
  TaskId task;
  GroupId group;
  uint32_t number = 0;  // of the attempt in its group
  uint64_t seed = 0;
  PolicyVersion version;
  PayloadId content;
  PayloadId partial;  // the unfinished attempt to continue, or 0
  uint32_t lease_ms = 0;
  EvalRunId eval_run;
};

struct AssignReply {
  std::vector<Assignment> assignments;
  // Why there are fewer than asked: see AcquireResponse.reason; and "superseded": a newer request
  // of the session came.
  const char* reason = "";
  absl::Status status;  // NotFound: the session is not known here, open it again
};

enum class PushResult : uint8_t {
  kAccepted = 1,
  kDuplicate = 2,
  kLate = 3,
  kLeaseLost = 4,
  kInvalid = 5,
  kStale = 6,
  kUnknown = 7,
};

struct PushOutcome {
  PushResult result = PushResult::kAccepted;
  const char* field = "";  // of kInvalid and kStale; static text
  std::string message;     // empty when accepted
};

struct PutRolloutsReply {
  uint32_t accepted = 0;
  std::vector<PushOutcome> outcomes;  // parallel to the command's rollouts
};

struct AddTasksReply {
  absl::Status status;
  std::optional<uint32_t> refused;  // the task of the command that the status is about
  uint64_t added = 0;
  uint64_t known = 0;
};

struct CountReply {
  absl::Status status;
  uint64_t count = 0;
};

struct SetRewardsReply {
  std::vector<PushResult> results;
};

using Reply =
    std::variant<AssignReply, PutRolloutsReply, AddTasksReply, CountReply, SetRewardsReply>;

// Which call waits for the answer; volatile, chosen by the driver, 0 for none. Not logged.
using Tag = uint64_t;

struct TaggedReply {
  Tag tag = 0;
  Reply reply;
};

// What Apply wants done, all of it only after the command is committed.
struct Effects {
  std::vector<TaggedReply> replies;
  // Payloads that no state names any more; their bytes may be freed.
  std::vector<PayloadId> dead_payloads;
  // Payloads that nobody wants before a rewind: they need no memory.
  std::vector<PayloadId> cold_payloads;
  // Task contents that lost to an earlier add of the same task.
  std::vector<PayloadId> dead_contents;
  // To be sent to the ledger, in order.
  std::vector<codec::NumberedMessage> to_ledger;
  // Acknowledge messages of the ledger up to here; 0: nothing to say.
  uint64_t acknowledge_ledger = 0;
  // Ready groups went to a step or came back from one.
  bool ready_moved = false;
  void Clear() {
    replies.clear();
    dead_payloads.clear();
    cold_payloads.clear();
    dead_contents.clear();
    to_ledger.clear();
    acknowledge_ledger = 0;
    ready_moved = false;
  }
};

}  // namespace forebay::shard
