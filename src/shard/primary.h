// The volatile half of a shard, on its primary only: refuses bad requests, keeps clocks, renewals
// and waiting actors.
//
// A request goes in with a time and a tag; commands to log and answers that need no log come out in
// `Output`. The driver logs the commands in order, runs State::Apply when they are committed, and
// calls Applied with the effects. Nothing here changes the state, and nothing here is lost that
// matters: a new Primary over the same state starts every lease's clock afresh. Times are
// milliseconds of any clock that does not go back. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "codec/peer_messages.h"
#include "shard/messages.h"
#include "shard/state.h"

namespace forebay::shard {

struct Output {
  // To be logged now, in this order; each with the call that waits for its answer.
  std::vector<std::pair<Tag, Command>> commands;
  // Answers that need no log: refusals, waits that are over.
  std::vector<TaggedReply> replies;
  void Clear() {
    commands.clear();
    replies.clear();
  }
};

enum class LeaseAction : uint8_t { kContinue, kSavePartial, kAbandon };

struct RenewReply {
  // Parallel to the request; empty: all continue. Reasons are static text: "lease_lost",
  // "group_done", "task_removed", "too_stale", "rewound", "draining"; "" with kContinue.
  std::vector<LeaseAction> actions;
  std::vector<const char*> reasons;
  uint32_t lease_ms = 0;  // the shortest of the leases named
};

// What the primary knows of a lease beyond the state.
struct LeaseClock {
  uint64_t age_ms = 0;  // since it was handed out, or this primary began
  uint64_t expires_in_ms = 0;
  uint32_t generated_tokens = 0;
};

struct PrimaryOptions {
  uint32_t waiters_max = 65'536;  // parked Acquires
  uint32_t wait_ms_max = 60'000;
  uint32_t assignments_max = 4'096;  // in one Acquire
};

class Primary {
 public:
  // `state` outlives this. The clocks of leases in it start at `now_ms`.
  Primary(const State& state, uint64_t now_ms, const PrimaryOptions& options = {});
  ~Primary();

  // The session's last request repeated gets its first answer, also one that is on its way.
  // Otherwise logs an Assign if something can be handed out, and if not waits up to `wait_ms`; then
  // answers empty, with the reason.
  void Acquire(uint64_t now_ms, Tag tag, const Assign& request, uint32_t wait_ms, Output* output);
  // Forgets an Acquire that waits (its call was cancelled). False if none of that tag waits.
  bool CancelWait(Tag tag);
  // All other commands. Refuses what is malformed, in the reply's own status or outcomes, with
  // field, value and limit. Those that bring payloads or contents are logged all the same: the
  // state refuses them, and says which bytes are dead.
  void Propose(uint64_t now_ms, Tag tag, Command command, Output* output);
  // After each State::Apply: starts and ends clocks, wakes waiters.
  void Applied(uint64_t now_ms, const Command& command, const Effects& effects, Output* output);

  // Extends leases; not logged. `generated_tokens` may be empty.
  RenewReply Renew(uint64_t now_ms, SessionId session, std::span<const LeaseRef> leases,
                   std::span<const uint32_t> generated_tokens);

  // Ends waits and leases whose time is up. Call at NextTick or later.
  void Tick(uint64_t now_ms, Output* output);
  // When something is due next; UINT64_MAX: never.
  uint64_t NextTick() const;

  // Where the tokens of this run's leases begin.
  void SetFirstToken(uint32_t token);
  // Free payload memory, and what a rollout is expected to take before any is measured. No new
  // groups are begun while the expected bytes of open groups do not fit.
  void SetMemory(uint64_t free_bytes, uint64_t expected_rollout_bytes);
  // Train sources that get nothing until told otherwise: the waiting step does not take them, and
  // what they make would fill the memory that it needs.
  void HoldBack(std::vector<SourceId> sources);
  // While true, Renew asks for partials and Acquire hands out nothing; the next Tick ends all
  // waits.
  void SetDraining(bool draining);

  codec::ReadySummary Summary() const;
  // Why an Acquire for any source would get nothing now: "" if it would get something.
  const char* IdleReason() const;
  // Why nothing is ready and nobody generates: as IdleReason, or "no_actors"; "" if that is not so.
  const char* StandstillReason() const;
  // Whether these sources have nothing to hand out for want of payload memory alone.
  bool ShortOfMemory(const std::vector<SourceId>& sources) const;
  LeaseClock Clock(uint64_t now_ms, AttemptId attempt) const;
  // 0 when the session was never heard by this primary.
  uint64_t LastSeen(SessionId session) const;
  // The session's newest request that got leases here, or that is logged and may get some; 0: none.
  uint64_t NewestRequest(SessionId session) const;
  size_t waiters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace forebay::shard
