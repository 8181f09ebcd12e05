// The records of attempts, groups and rollouts. A slot number stands for a record within its table;
// kNone for none.
//
// Plain values, kept small: at a group of 16 one rollout costs less than 192 bytes with its attempt
// and its share of the group.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "codec/source_settings.h"
#include "rollout/link_list.h"
#include "rollout/sequence.h"
#include "rollout/slot_table.h"

namespace forebay::rollout {

enum class AttemptState : uint8_t {
  kPending,  // to be handed out, again or for the first time
  kLeased,
  kDone,    // its rollout came in, and counts
  kClosed,  // its group needs it no more
};

// An attempt, and its lease while it has one.
struct AttemptRecord {
  // Bits of `flags`.
  static constexpr uint8_t kReported =
      1;  // the holder of the last token said how it ended; saying so again changes nothing
  static constexpr uint8_t kTaken = 2;  // the last token's rollout was accepted, and dropped since
  static constexpr uint8_t kCounted = 4;  // counted as late or stale
  static constexpr uint8_t kStale = 8;    // ... as stale

  uint32_t slot_state = 0;
  uint32_t link = kNone;  // next pending attempt of the group
  uint32_t group = kNone;
  uint32_t next = kNone;  // next attempt of the group, by number
  uint32_t token = 0;     // rises with each hand-out; 0 before the first
  uint32_t rollout = kNone;
  uint32_t session = kNone;      // slot of the holder's session
  uint32_t version = 0;          // its number, at hand-out
  PayloadId partial;             // the unfinished attempt that the next holder continues
  uint32_t partial_version = 0;  // the oldest version in it
  uint16_t number = 0;
  AttemptState state = AttemptState::kPending;
  uint8_t failures = 0;
  uint8_t flags = 0;

  template <class A>
  void Fields(A& a) {
    a(slot_state, link, group, next, token, rollout, session, version, partial, partial_version,
      number, state, failures, flags);
  }
};
static_assert(sizeof(AttemptRecord) <= 56, "the memory of a rollout is promised to users");

// kTrained: its step is committed, and its payloads stay for a rewind.
enum class GroupState : uint8_t { kOpen, kReady, kReserved, kClosed, kTrained };

// Why a group is closed, for those who still work on it.
enum class CloseReason : uint8_t { kNone, kComplete, kTaskRemoved, kRewound, kBudget, kOperator };

struct GroupRecord {
  // Bits of `flags`.
  static constexpr uint8_t kPastDeadline = 1;  // `complete_minimum` rollouts suffice
  static constexpr uint8_t kRetry = 2;   // in the list of groups with attempts to hand out again
  static constexpr uint8_t kFresh = 4;   // in the list of groups with attempts never handed out
  static constexpr uint8_t kPushed = 8;  // by PutGroup, without assignments

  uint32_t slot_state = 0;
  uint32_t link = kNone;
  Link order;    // in the list of its state
  Link waiting;  // in the list of groups with pending attempts
  uint32_t first_attempt = kNone;
  uint32_t pending_head = kNone;
  uint32_t credits = 0;  // rollouts that admission counts for it
  TaskId task;
  uint64_t sequence = 0;  // order of beginning, then of completion
  StepId step;
  uint32_t version = 0;   // of a ready group: the oldest of its rollouts, by lag_of
  uint32_t eval = kNone;  // slot of the evaluation run
  uint32_t tokens = 0;    // of a ready group; stays at the maximum once it got there
  uint16_t attempts = 0;
  uint16_t pending = 0;
  uint16_t leased = 0;
  uint16_t rewarded = 0;       // rollouts held here with their reward ...
  uint16_t unrewarded = 0;     // ... and without
  uint16_t screening = 0;      // attempts whose rewards decide whether the others are made; 0: none
  uint8_t failure_rounds = 0;  // largest count of failures of one attempt
  uint8_t flags = 0;
  GroupState state = GroupState::kOpen;
  CloseReason close_reason = CloseReason::kNone;
  codec::AdvantageKind advantage = codec::AdvantageKind::kGrpo;

  uint32_t held() const { return uint32_t{rewarded} + unrewarded; }
  // Pending attempts that nobody gets before the group was screened; as long as that is so, a
  // constant.
  uint32_t held_back() const { return screening == 0 ? 0u : uint32_t{attempts} - screening; }
  uint32_t to_hand_out() const { return pending - held_back(); }

  template <class A>
  void Fields(A& a) {
    a(slot_state, link, order, waiting, first_attempt, pending_head, credits, task, sequence, step,
      version, eval, tokens, attempts, pending, leased, rewarded, unrewarded, screening,
      failure_rounds, flags, state, close_reason, advantage);
  }
};
static_assert(sizeof(GroupRecord) <= 96, "the memory of a rollout is promised to users");

// Where the payload lies is the payload store's to know; with more to keep here the record may grow
// to 128 bytes. Of several sequences or version runs Tables::Sequences has the rest.
struct RolloutRecord {
  // Bits of `flags`.
  static constexpr uint8_t kRewarded = 1;
  static constexpr uint8_t kMasked =
      2;  // truncated, by a source that masks those: baseline, no loss
  static constexpr uint8_t kDamaged =
      4;  // its payload is lost: it goes when its step gives it back

  uint32_t slot_state = 0;
  uint32_t link = kNone;
  uint32_t attempt = kNone;
  PayloadId payload;
  uint64_t payload_bytes = 0;
  double reward = 0;
  float advantage = 0;
  uint32_t tokens = 0;  // of all sequences
  uint32_t prompt_tokens = 0;
  uint32_t loss_tokens = 0;
  PolicyVersion version;  // the oldest
  uint32_t duration_ms = 0;
  RolloutStatus status = RolloutStatus::kFinished;
  uint8_t rewards_present = 0;
  uint8_t flags = 0;

  template <class A>
  void Fields(A& a) {
    a(slot_state, link, attempt, payload, payload_bytes, reward, advantage, tokens, prompt_tokens,
      loss_tokens, version, duration_ms, status, rewards_present, flags);
  }
};
static_assert(sizeof(RolloutRecord) <= 128, "the memory of a rollout is promised to users");

}  // namespace forebay::rollout
