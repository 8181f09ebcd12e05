// The replicated half of a shard: tasks, attempts under leases, groups, rollouts, reservations,
// evaluations.
//
// Apply runs committed commands, one after another; the same commands in the same order give the
// same state (Hash) and the same effects on every replica. It never refuses by crashing: whatever a
// command holds, the state stays consistent, and a refused command changes nothing. Not
// thread-safe; one thread drives a shard. The queries are cheap unless they say otherwise, and what
// they return by pointer or view lives until the next Apply.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/ids.h"
#include "base/mutations.h"
#include "codec/archive.h"
#include "codec/peer_messages.h"
#include "rollout/records.h"
#include "shard/counters.h"
#include "shard/limits.h"
#include "shard/messages.h"

namespace forebay::curriculum {
class Curriculum;
}

namespace forebay::shard {

class Machine;

struct Options {
  ShardId shard;
  uint64_t run_seed = 0;
  // Closed groups that are remembered for late and repeated pushes.
  uint32_t closed_groups_max = kClosedGroupsMax;
  Mutations mutations = {};
};

// What lists and status show of a source.
struct SourceView {
  SourceId source;
  const codec::SourceSettings* settings = nullptr;
  const SourceCounters* counters = nullptr;
  uint64_t tasks = 0;
  uint64_t quarantined = 0;
  uint64_t epoch = 0;
  uint64_t groups_open = 0;  // incomplete
  uint64_t groups_ready = 0;
  uint64_t groups_reserved = 0;
  uint64_t ready_tokens = 0;
  uint64_t in_flight = 0;    // attempts leased
  uint64_t outstanding = 0;  // rollouts that admission counts
  uint64_t outstanding_max = 0;
  double survival = 1;
  double mean_reward = 0;
  double mean_tokens = 0;
  double mean_duration_ms = 0;
  double mean_tokens_dispatched = 0;  // of all rollouts that came in ...
  double mean_tokens_trained = 0;     // ... and of those that were trained
};

struct SessionView {
  SessionId session;
  const std::string* actor = nullptr;
  const std::string* engine = nullptr;
  const std::string* site = nullptr;
  const std::string* client = nullptr;
  uint64_t leases = 0;
  uint64_t pushed = 0;
  uint64_t failed = 0;    // failed, aborted or expired
  PolicyVersion version;  // that it said it holds, at its last Acquire
};

struct LeaseView {
  AttemptId attempt;
  uint32_t token = 0;
  SessionId session;
  TaskId task;
  GroupId group;
  uint32_t number = 0;
  PolicyVersion version;
};

using rollout::GroupState;

struct RolloutView {
  RolloutId rollout;
  GroupId group;
  TaskId task;
  AttemptId attempt;
  GroupState state = GroupState::kOpen;
  bool kept = false;  // for people to look at: of a step whose payloads went
  RolloutStatus status = RolloutStatus::kFinished;
  bool rewarded = false;
  double reward = 0;
  float advantage = 0;
  uint32_t tokens = 0;
  uint32_t loss_tokens = 0;
  PolicyVersion version;  // the oldest
  PayloadId payload;
  uint64_t payload_bytes = 0;
  StepId step;  // when reserved or trained
};

struct TaskView {
  TaskId task;
  PayloadId content;
  uint64_t rollouts = 0;  // of finished groups
  uint64_t groups = 0;
  double pass_a = 1;  // Beta(a, b) of the pass rate, prior included
  double pass_b = 1;
  uint32_t failures = 0;
  bool quarantined = false;
  float weight = 1;
  float mean_tokens = 0;
  uint32_t last_version = 0;
};

struct EvalView {
  EvalRunId run;
  SourceId source;
  PolicyVersion version;
  uint32_t attempts = 0;
  bool done = false;
  uint64_t tasks = 0;  // of the source when the run began
  uint64_t tasks_done = 0;
  uint64_t rollouts = 0;
  uint64_t failed = 0;  // attempts given up
  // Over tasks that are done: sums of the task's mean reward, of its square, and of pass@(2^i).
  // With several shards the reader adds the sums up before it divides.
  double mean_sum = 0;
  double mean_square_sum = 0;
  std::vector<double> pass_sums;
  uint64_t tokens_sum = 0;
};

class State {
 public:
  explicit State(const Options& options);
  ~State();
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;

  // Runs a committed command. `tag` names the call that waits for the answer, 0 for none. Appends
  // to `effects`.
  void Apply(const Command& command, Tag tag, Effects* effects);

  void Snapshot(codec::Writer& writer) const;
  // Replaces this state. False, and an unspecified but valid state, when the bytes are not a
  // snapshot of this shard.
  bool Restore(codec::Reader& reader);
  // Of the snapshot; costs as much as one.
  uint64_t Hash() const;

  ShardId shard() const;
  const curriculum::Curriculum& curriculum() const;
  // What the ledger said last: versions, branch, measured rollouts per version.
  const codec::VersionState& versions() const;
  // Messages for the ledger that it has not acknowledged, oldest first.
  const codec::PeerOutbox& to_ledger() const;
  // The number up to which the ledger's messages are applied.
  uint64_t from_ledger() const;

  std::vector<SourceView> Sources() const;
  std::vector<SessionView> Sessions() const;
  std::optional<SessionView> Session(SessionId session) const;
  // Up to `limit` entries from `*cursor` (0 at first) on; moves it, and sets it to UINT64_MAX at
  // the end.
  std::vector<LeaseView> Leases(uint64_t* cursor, size_t limit) const;
  std::vector<RolloutView> Rollouts(uint64_t* cursor, size_t limit) const;
  // Likewise those of committed steps that stay for people to look at, which are in no other list.
  std::vector<RolloutView> Kept(uint64_t* cursor, size_t limit) const;
  std::optional<RolloutView> FindKept(RolloutId rollout) const;
  // Of one source, in the order of adding.
  std::vector<TaskView> Tasks(SourceId source, uint64_t* cursor, size_t limit) const;
  // Whether the source has a task of this external id. Tasks never go.
  bool KnowsTask(SourceId source, uint64_t external_hash) const;
  // Where the task's content lies; 0 if there is no such task.
  PayloadId ContentOf(TaskId task) const;
  // Each payload and each task content that the state names. Walks everything.
  void ForEachPayload(absl::FunctionRef<void(PayloadId)> payload,
                      absl::FunctionRef<void(PayloadId)> content) const;
  // Of these payloads those that the state names, with their attempts. Walks everything.
  std::vector<DamagedPayload> FindPayloads(const std::vector<PayloadId>& payloads) const;
  // Of a rollout that is held or reserved.
  std::optional<AttemptId> AttemptOf(RolloutId rollout) const;
  // The age of the attempt's group: the lower, the older. nullopt unless the group is incomplete.
  std::optional<uint64_t> OpenOrderOf(AttemptId attempt) const;
  std::vector<EvalView> Evals() const;
  std::optional<EvalView> Eval(EvalRunId run) const;
  // The lease is live: its token is the last one and its attempt has not come in or gone back.
  bool LeaseHeld(const LeaseRef& lease) const;
  // What an attempt belongs to; nullopt when it is not known (any more). What decoding a push
  // needs.
  std::optional<TaskId> TaskOf(AttemptId attempt) const;
  // Of rollouts that are held or reserved, partial attempts not counted; of those of committed
  // steps that stay for a rewind; and of those that stay for people.
  uint64_t payload_bytes() const;
  uint64_t retained_bytes() const;
  uint64_t kept_bytes() const;
  uint64_t kept_rollouts() const;
  // Memory of all tables, task contents and payloads excluded; and what one rollout costs in them
  // at a group of `group_size`.
  uint64_t memory_bytes() const;
  static double BytesPerRollout(uint32_t group_size);

  // "" when all invariants of the state hold, else the first that is broken. Walks everything.
  std::string CheckInvariants() const;

  // For the primary half, which lives in this folder.
  const Machine& machine() const { return *machine_; }

 private:
  std::unique_ptr<Machine> machine_;
};

}  // namespace forebay::shard
