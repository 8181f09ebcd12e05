// What the ledger and the shards say to each other.
//
// Each direction between the ledger and one shard is a numbered channel that lives in the state of
// both ends (PeerOutbox, PeerInbox): a message is sent again until it is acknowledged, and applied
// once, in order. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "codec/keep_rule.h"
#include "codec/source_settings.h"

namespace forebay::codec {

// A rewind goes back by so many committed steps at most, or to the last checkpoint.
inline constexpr size_t kRewindStepsMax = 64;

// ---- ledger to shard

struct SourceChanged {
  SourceId source;
  SourceSettings settings;
  template <class A>
  void Fields(A& a) {
    a(source, settings);
  }
};

// A version was announced or published, a step was planned or committed: what admission and the
// push checks need.
struct VersionState {
  uint32_t branch = 0;
  PolicyVersion
      announced;  // newest that exists, pending or published; later ones are "from the future"
  // Newest that actors can load. After a rewind it is of the old branch, as is `announced`, until
  // the trainer publishes on the new one.
  PolicyVersion published;
  // The oldest version that a step can still reserve for: that of the oldest step that lacks
  // groups, else of the next step to be opened. It goes back when a step is aborted.
  PolicyVersion next_train;
  uint64_t rollouts_per_version = 0;  // measured, over all shards; 0: not known yet
  // Optimizer steps between two published versions: lag counts those, admission counts published
  // versions.
  uint32_t numbers_per_version = 1;
  uint32_t shards = 1;
  // What the oldest step that lacks groups takes from, else the newest step; empty: all sources.
  std::vector<SourceId> wanted_sources;
  template <class A>
  void Fields(A& a) {
    a(branch, announced, published, next_train, rollouts_per_version, numbers_per_version, shards,
      wanted_sources);
  }
};

// Reserve up to so many ready groups, oldest version first. Answered by one Reserved with the same
// `request`.
struct Reserve {
  StepId step;
  Revision revision;
  uint64_t request = 0;
  uint32_t groups = 0;  // up to so many groups ...
  uint64_t tokens = 0;  // ... and, if not 0, until they hold so many tokens
  PolicyVersion train_version;
  std::optional<uint32_t> max_lag;  // tighter than the sources' own
  std::vector<SourceId> sources;    // empty: all train sources
  template <class A>
  void Fields(A& a) {
    a(step, revision, request, groups, tokens, train_version, max_lag, sources);
  }
};

// The step gives groups back: the named ones, or all it holds here.
struct Unreserve {
  StepId step;
  std::vector<GroupId> groups;  // empty: all
  template <class A>
  void Fields(A& a) {
    a(step, groups);
  }
};

// The step is committed: its groups are consumed. `next` is the version it made. Every shard is
// told, with or without groups of it: a rewind goes back to how things were at this moment.
struct StepCommitted {
  StepId step;
  Revision revision;
  PolicyVersion next;
  bool retain = false;  // its payloads stay until StepsReleased or StepsCovered
  KeepRule keep;        // of those that do not, the shard's part
  template <class A>
  void Fields(A& a) {
    a(step, revision, next, retain, keep);
  }
};

// The payloads of committed steps up to this one may go: there is no more room for them.
struct StepsReleased {
  StepId step;
  KeepRule keep;
  template <class A>
  void Fields(A& a) {
    a(step, keep);
  }
};

// The trainer's own checkpoint covers the steps up to this one: their payloads may go, and no
// rewind goes back before it.
struct StepsCovered {
  StepId step;
  KeepRule keep;
  template <class A>
  void Fields(A& a) {
    a(step, keep);
  }
};

// The steps after `step` are taken back, and a new branch of versions begins. Those up to
// `served_again` are held by their steps as they were; what all others held or trained is dropped,
// with all else of the old branch.
struct Rewound {
  StepId step;
  StepId served_again;    // `step`: none
  PolicyVersion version;  // that the branch begins with
  VersionState versions;
  template <class A>
  void Fields(A& a) {
    a(step, served_again, version, versions);
  }
};

// Every reservation of the step now belongs to this revision.
struct StepReplanned {
  StepId step;
  Revision revision;
  template <class A>
  void Fields(A& a) {
    a(step, revision);
  }
};

using ToShard = std::variant<SourceChanged, VersionState, Reserve, Unreserve, StepCommitted,
                             StepReplanned, StepsReleased, StepsCovered, Rewound>;

// ---- shard to ledger

struct SequenceReport {
  uint32_t tokens = 0;
  uint32_t prompt_tokens = 0;
  uint32_t loss_tokens = 0;  // after masks
  std::optional<float> advantage;
  template <class A>
  void Fields(A& a) {
    a(tokens, prompt_tokens, loss_tokens, advantage);
  }
};

struct RolloutReport {
  RolloutId rollout;
  PayloadId payload;
  uint64_t payload_bytes = 0;
  float reward = 0;
  float advantage = 0;
  uint32_t version = 0;  // by the source's lag_of, on the current branch
  uint32_t lag = 0;
  // Tokens of versions below this number leave the loss; 0 none, UINT32_MAX all.
  uint32_t mask_below = 0;
  std::vector<SequenceReport> sequences;
  template <class A>
  void Fields(A& a) {
    a(rollout, payload, payload_bytes, reward, advantage, version, lag, mask_below, sequences);
  }
};

struct GroupReport {
  GroupId group;
  TaskId task;
  AdvantageKind advantage = AdvantageKind::kGrpo;
  std::vector<RolloutReport> rollouts;
  template <class A>
  void Fields(A& a) {
    a(group, task, advantage, rollouts);
  }
};

struct Reserved {
  StepId step;
  Revision revision;
  uint64_t request = 0;
  std::vector<GroupReport> groups;
  template <class A>
  void Fields(A& a) {
    a(step, revision, request, groups);
  }
};

// Rollouts that the step holds are lost: it is to give their groups back.
struct RolloutsLost {
  StepId step;
  std::vector<RolloutId> rollouts;
  template <class A>
  void Fields(A& a) {
    a(step, rollouts);
  }
};

using ToLedger = std::variant<Reserved, RolloutsLost>;

// Why nothing of a source moves in a shard: nothing is ready, nobody generates. The more it asks of
// people, the later it stands.
enum class IdleReason : uint8_t {
  kNone,  // something moves
  kNoTasks,
  kNoActors,
  kAdmission,
  kMemory,
  kPaused,
};

// Not numbered, not logged: the newest one counts. What the ledger's proposals go by.
struct ReadySummary {
  struct Source {
    SourceId source;
    uint32_t ready_groups = 0;
    uint64_t ready_tokens = 0;
    uint32_t open_groups = 0;  // incomplete
    uint32_t in_flight = 0;    // attempts leased
    uint32_t waited_for = 0;   // attempts out that the rule `wait` waits for
    IdleReason idle = IdleReason::kNone;
    uint64_t group_bytes = 0;  // payload of a complete group, as measured; 0: not measured
    bool operator==(const Source&) const = default;
  };
  ShardId shard;
  std::vector<Source> sources;
};

}  // namespace forebay::codec
