// The volatile half of the ledger, on the primary alone: refuses what is malformed, asks shards for
// groups, keeps clocks.
//
// Not thread-safe: the loop that drives the State drives this. It never changes the State; what it
// wants done comes out as commands, to be logged in order and, once committed, given to
// State::Apply and then to Applied. Requirements: now_ms never goes back. A new Primary over an
// existing State starts every clock afresh.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "codec/peer_messages.h"
#include "drift/rules.h"
#include "ledger/limits.h"
#include "ledger/messages.h"
#include "ledger/state.h"

namespace forebay::ledger {

struct Output {
  std::vector<std::pair<Tag, Command>> commands;  // to log now, in order
  std::vector<TaggedReply> replies;               // that need no log: refusals
  void Clear() {
    commands.clear();
    replies.clear();
  }
};

class Primary {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;

  // `state` outlives this.
  explicit Primary(const State& state);

  // Refuses, with a status that names field, value and limit, or passes the command on to the log.
  void Propose(uint64_t now_ms, Tag tag, Command command, Output* output);
  // The shard's newest; may ask for groups.
  void SetSummary(uint64_t now_ms, codec::ReadySummary summary, Output* output);
  // After each State::Apply.
  void Applied(uint64_t now_ms, const Command& command, const Effects& effects, Output* output);
  void Tick(uint64_t now_ms, Output* output);
  // Whether the shard answers; all do until something else is said. One that does not is asked for
  // nothing, and after SetAbsentAfterMs it is taken for absent, until it answers again.
  void SetAnswering(uint64_t now_ms, ShardId shard, bool answering);
  void SetAbsentAfterMs(uint64_t ms) { absent_after_ms_ = ms; }
  // Answers, and is not taken for absent.
  bool Present(ShardId shard) const;
  // When Tick has something to do; kNever if nothing is due.
  uint64_t NextTick() const;

  // The oldest step that takes more groups; null if there is none. No younger one is given any.
  const Step* Hungry() const;
  // Whether the step takes groups of this source.
  bool Eligible(const Step& step, SourceId source) const;
  // Where the generations of this run begin.
  void SetFirstGeneration(uint64_t generation) { first_generation_ = generation; }
  // Payloads of committed steps that stay for a rewind; 0: they go with the commit.
  void SetRetentionBytesMax(uint64_t bytes) { retention_bytes_max_ = bytes; }
  // Whether the store has no room for more payloads: while that lasts, committed steps let theirs
  // go, the older half of the bytes at a time.
  void SetStoreFull(uint64_t now_ms, bool full);
  // Those that stay for people to look at, over all shards; and of how many bytes there are some
  // now. A full store lets the older half of these go too, and takes no more.
  void SetKeep(const codec::KeepRule& keep, uint64_t kept_bytes) {
    keep_ = keep;
    kept_bytes_ = kept_bytes;
  }
  void SetDriftRules(const drift::Rules& rules) { drift_rules_ = rules; }
  // Memory for the payloads of rollouts; 0: no limit is known.
  void SetPayloadBytesMax(uint64_t bytes) { payload_bytes_max_ = bytes; }
  // Groups that the step waits for; when it counts tokens, by the size of those that it has.
  uint64_t GroupsLacking(const Step& step) const;
  // What the payloads of the whole step will take, by what is reserved, else by what its sources'
  // groups were measured to take; 0: not known yet.
  uint64_t PayloadBytesOf(const Step& step) const;
  // Whether the step waits for groups and cannot fit into the memory for payloads.
  bool TooLarge(const Step& step) const;
  // The train sources that the waiting step does not take, while over half of the payload memory is
  // taken; they should make no more before it has what it lacks.
  std::vector<SourceId> HeldBack(uint64_t free_payload_bytes) const;
  // What has to be published for admission to go on; "" if it is not the trainer's turn.
  std::string Unpublished() const;

  // Why the step is not sealed, in one line; empty if it is.
  std::string Waiting(StepId step, uint64_t now_ms) const;
  // From the first time this half saw the step open to its seal, or to now.
  uint64_t WaitedMs(StepId step, uint64_t now_ms) const;

 private:
  struct Shard {
    codec::ReadySummary summary;
    uint64_t asked_groups = 0;  // since the summary came
    uint64_t asked_tokens = 0;
    // Gave nothing for this step since; 0 if it did not.
    StepId dry_for;
  };
  // Not reset by a summary.
  struct Presence {
    uint64_t silent_since_ms = kNever;  // kNever: it answers
    bool marking = false;               // a MarkShard was put out and is not applied yet
  };
  struct Clock {
    uint64_t opened_ms = 0;
    uint64_t sealed_ms = kNever;
  };
  struct Ready {
    uint64_t groups = 0;
    uint64_t tokens = 0;
    uint64_t open_groups = 0;
    uint64_t in_flight = 0;
    uint64_t waited_for = 0;
  };

  void UpdateClocks(uint64_t now_ms);
  // Learns from a command what its shards were asked and have answered.
  void Account(const Command& command, const Effects& effects);
  void TrimRetained(uint64_t now_ms, Output* output);
  // When the shard is to be marked as absent, or as present again; kNever: it is as it should be.
  uint64_t MarkDue(size_t shard) const;
  void MarkShards(uint64_t now_ms, Output* output);
  codec::KeepRule KeepNow() const;
  // Asks for what the oldest hungry step lacks, as far as it is ready.
  void AskForGroups(uint64_t now_ms, Output* output);
  Ready ReadyFor(const Step& step, const Shard& shard) const;
  Ready ReadyFor(const Step& step) const;
  uint64_t Available(const Step& step, size_t shard) const;
  // The time until which the step waits for stale attempts; 0 if it does not.
  uint64_t LateWaitEnd(const Step& step) const;
  std::string WaitingForGroups(const Step& step, uint64_t now_ms) const;
  // The reason of the shard that asks most of people; kNone if anything of the source moves.
  codec::IdleReason IdleOf(const Source& source) const;
  std::string WhyIdle(const Step& step) const;
  std::string WhyUnanswered(const Step& step) const;
  std::string WhoIsAbsent() const;

  const State& state_;
  std::vector<Shard> shards_;
  std::vector<Presence> presence_;  // by shard
  uint64_t absent_after_ms_ = kAbsentAfterMs;
  std::map<StepId, Clock> clocks_;
  uint64_t last_now_ms_ = 0;
  uint64_t payload_bytes_max_ = 0;
  uint64_t first_generation_ = 1;
  uint64_t retention_bytes_max_ = 0;
  bool store_full_ = false;
  uint64_t trim_due_ms_ = 0;  // while it is full
  // A TrimRetained was put out and is not applied yet.
  bool trimming_ = false;
  codec::KeepRule keep_;
  drift::Rules drift_rules_;
  uint64_t kept_bytes_ = 0;
  uint64_t keep_due_ms_ = 0;  // of the next trim for what is kept
  // A RequestGroups was put out and is not applied yet.
  bool asking_ = false;
};

}  // namespace forebay::ledger
