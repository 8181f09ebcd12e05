// A step as the ledger holds it: what was reserved, how it is packed, what was written back.
//
// Plain values, replicated state; not thread-safe. Built by State alone, read by everyone.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "batch/pack.h"
#include "codec/source_settings.h"
#include "ledger/messages.h"

namespace forebay::ledger {

enum class StepState : uint8_t {
  kOpen = 1,      // groups are being reserved
  kReserved = 2,  // waits for custom advantages
  kSealed = 3,    // the plan stands
  kCommitted = 4,
  kAborted = 5,  // its number can be opened anew
};

// What losses divide by.
struct Totals {
  uint64_t loss_tokens = 0;
  uint64_t tokens = 0;
  uint64_t sequences = 0;
  uint64_t rollouts = 0;
  uint64_t groups = 0;
  uint32_t dp = 0;
  bool operator==(const Totals&) const = default;
  template <class A>
  void Fields(A& a) {
    a(loss_tokens, tokens, sequences, rollouts, groups, dp);
  }
};

struct HeldSequence {
  uint32_t rollout = 0;  // index into Step::rollouts
  uint32_t tokens = 0;
  uint32_t prompt_tokens = 0;
  uint32_t loss_tokens = 0;  // after masks
  float advantage = 0;       // its own, or its rollout's
  bool own_advantage = false;
  template <class A>
  void Fields(A& a) {
    a(rollout, tokens, prompt_tokens, loss_tokens, advantage, own_advantage);
  }
};

struct HeldRollout {
  RolloutId rollout;
  PayloadId payload;
  uint64_t payload_bytes = 0;
  float reward = 0;
  float advantage = 0;
  uint32_t version = 0;  // by the source's lag_of
  uint32_t lag = 0;
  uint32_t mask_below = 0;      // tokens of versions below leave the loss; 0 none, UINT32_MAX all
  uint32_t group = 0;           // index into Step::groups
  uint32_t first_sequence = 0;  // index into Step::sequences
  uint32_t sequence_count = 0;
  uint32_t loss_tokens = 0;  // of its sequences
  template <class A>
  void Fields(A& a) {
    a(rollout, payload, payload_bytes, reward, advantage, version, lag, mask_below, group,
      first_sequence, sequence_count, loss_tokens);
  }
};

struct HeldGroup {
  GroupId group;
  TaskId task;
  codec::AdvantageKind advantage = codec::AdvantageKind::kGrpo;
  uint32_t oldest_version = 0;  // of its rollouts
  uint32_t first_rollout = 0;   // index into Step::rollouts
  uint32_t rollout_count = 0;
  template <class A>
  void Fields(A& a) {
    a(group, task, advantage, oldest_version, first_rollout, rollout_count);
  }
};

// Groups that a shard was asked for, and has not answered yet.
struct GroupRequest {
  uint64_t number = 0;
  ShardId shard;
  uint32_t groups = 0;
  uint64_t tokens = 0;
  template <class A>
  void Fields(A& a) {
    a(number, shard, groups, tokens);
  }
};

// One optimizer step of the plan; sequences are indexes into Step::sequences.
struct PlannedMiniBatch : batch::MiniBatch {
  Totals totals;
  template <class A>
  void Fields(A& a) {
    a(micro_batches_per_rank, sequences, begin, tokens, padded_tokens, totals);
  }
};

struct Step {
  StepId step;
  StepState state = StepState::kOpen;
  Revision revision;
  Generation generation;  // that opened, replanned or committed it last
  StepSpec spec;
  PolicyVersion train_version;
  PolicyVersion next_version;  // that its commit makes
  std::string failure;         // why it was aborted
  Revision lost;               // the last one that ended because bytes of it were lost; 0: none

  // In the order of arrival while it is open; from then on ordered by (oldest version, task,
  // group).
  std::vector<HeldGroup> groups;
  std::vector<HeldRollout> rollouts;
  std::vector<HeldSequence> sequences;
  std::vector<GroupRequest> requests;
  Totals totals;  // of what is held; final from the seal on

  uint64_t payload_bytes = 0;  // of the rollouts, from the commit on
  bool retained = false;       // committed, with its plan and its payloads still there
  bool served_again = false;   // taken back by a rewind, to be trained on as it was

  // From the seal on. Once it is committed and not retained, only the mini-batches' totals are left
  // of the plan.
  std::vector<PlannedMiniBatch> mini_batches;
  uint64_t filler_micro_batches = 0;
  std::vector<uint64_t> rollouts_by_lag;
  double reward_mean = 0;
  uint64_t plan_hash = 0;  // the same for the same groups, advantages and packing
  std::map<MicroBatchRef, std::vector<WrittenColumn>> written;  // sorted by name

  // Neither committed nor aborted.
  bool live() const { return state <= StepState::kSealed; }
  uint32_t GroupsAsked() const;
  uint64_t TokensAsked() const;
  // What it lacks beyond what was asked for already; one of them is 0, both are if it lacks
  // nothing.
  uint64_t GroupsLacking() const;
  uint64_t TokensLacking() const;
  // A micro-batch of the current plan.
  bool Has(const MicroBatchRef& ref) const;
  // The payloads that ranks will fetch, in the order of the plan if there is one: what all ranks
  // run at once lies together. None of a step that still gathers groups, or has ended.
  std::vector<PayloadId> ToFetch() const;
  // Appends a reported group to what is held.
  void Hold(const codec::GroupReport& report);
  // Puts what is held into an order that does not depend on when it arrived.
  void Order();
  // Of an open step: holds the groups of this shard no more.
  void DropGroupsOf(ShardId shard);
  // Forgets everything that is held, planned and written.
  void Clear(std::vector<PayloadId>* dead_payloads);
  // What is held, and the plan but for its totals.
  void DropPlan();

  // Holds these groups alone, in this order; each is named by its index, once.
  void Hold(const std::vector<uint32_t>& order);
  void AppendToFetch(const MicroBatchRef& ref, std::vector<PayloadId>* payloads) const;

  template <class A>
  void Fields(A& a) {
    a(step, state, revision, generation, spec, train_version, next_version, failure, lost, groups,
      rollouts, sequences, requests, totals, mini_batches, filler_micro_batches, rollouts_by_lag,
      reward_mean, plan_hash, written, payload_bytes, retained, served_again);
  }
};

// One sequence of a micro-batch.
struct Slot {
  PayloadId payload;
  uint64_t payload_bytes = 0;
  RolloutId rollout;
  GroupId group;
  TaskId task;
  uint32_t sequence = 0;        // index within its rollout
  uint32_t sequence_count = 0;  // of its rollout
  uint32_t tokens = 0;
  uint32_t prompt_tokens = 0;
  uint32_t loss_tokens = 0;
  uint32_t rollout_loss_tokens = 0;
  float reward = 0;
  float advantage = 0;
  uint32_t version = 0;
  uint32_t lag = 0;
  uint32_t mask_below = 0;
};

// All that the answer to a fetch needs of the plan.
struct MicroBatchView {
  std::vector<Slot> slots;  // in order; none in a filler micro-batch
  uint64_t tokens = 0;      // without padding
  uint64_t padded_tokens = 0;
  Totals mini_batch;
  absl::Span<const WrittenColumn> written;  // valid until the next Apply
};

}  // namespace forebay::ledger
