// What a shard is asked and what it logs; what it answers is in answers.h.
//
// A request goes to Primary::Propose, which refuses it or passes a Command to the log; State::Apply
// runs a command once it is committed and emits Effects. Commands have a byte encoding
// (codec/archive.h); requests that need no more than that are commands themselves. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "codec/peer_messages.h"
#include "curriculum/task_record.h"
#include "rollout/sequence.h"
#include "shard/answers.h"
#include "shard/drop_commands.h"

namespace forebay::shard {

// A lease as its holder names it. `token` rises whenever the attempt is handed out; an old token
// changes nothing.
struct LeaseRef {
  AttemptId attempt;
  uint32_t token = 0;
  template <class A>
  void Fields(A& a) {
    a(attempt, token);
  }
};

struct OpenSession {
  SessionId session;
  std::string actor, engine, site, client;
  template <class A>
  void Fields(A& a) {
    a(session, actor, engine, site, client);
  }
};

using curriculum::NewTask;

struct AddTasks {
  SourceId source;
  std::vector<NewTask> tasks;
  template <class A>
  void Fields(A& a) {
    a(source, tasks);
  }
};

struct Assign {
  SessionId session;
  uint64_t request_id = 0;
  uint32_t max = 0;
  std::vector<SourceId> sources;  // empty: any
  PolicyVersion version;          // that the engine holds
  bool loads_any_version = false;
  // Groups that may be begun now; Propose lowers it when payload memory is short.
  uint32_t new_groups_max = UINT32_MAX;
  // Token of an attempt's first hand-out; Propose sets that of the run, so that what an actor holds
  // from another run is nobody's here.
  uint32_t first_token = 1;
  template <class A>
  void Fields(A& a) {
    a(session, request_id, max, sources, version, loads_any_version, new_groups_max, first_token);
  }
};

using rollout::RolloutStatus;
using rollout::SequenceMeta;
using rollout::VersionRun;

// What the shard keeps of a pushed rollout. The first sequence stands inline: most rollouts have
// one.
struct RolloutMeta {
  LeaseRef lease;
  RolloutStatus status = RolloutStatus::kFinished;
  bool partial = false;
  PayloadId payload;
  uint64_t payload_bytes = 0;
  uint64_t duration_ms = 0;
  // Which of the source's weighted rewards came (bit i: settings.rewards[i]), and their weighted
  // sum.
  uint8_t rewards_present = 0;
  double reward = 0;
  SequenceMeta first;
  std::vector<SequenceMeta> more;
  template <class A>
  void Fields(A& a) {
    a(lease, status, partial, payload, payload_bytes, duration_ms, rewards_present, reward, first,
      more);
  }
};

struct PutRollouts {
  SessionId session;
  std::vector<RolloutMeta> rollouts;
  template <class A>
  void Fields(A& a) {
    a(session, rollouts);
  }
};

struct PutGroup {
  uint64_t request_id = 0;
  SourceId source;
  NewTask task;                       // its content is used if the source does not have the task
  std::vector<RolloutMeta> rollouts;  // leases unset
  template <class A>
  void Fields(A& a) {
    a(request_id, source, task, rollouts);
  }
};

struct Release {
  SessionId session;
  std::vector<LeaseRef> leases;
  template <class A>
  void Fields(A& a) {
    a(session, leases);
  }
};

struct Fail {
  SessionId session;
  std::vector<LeaseRef> leases;
  std::string reason;
  template <class A>
  void Fields(A& a) {
    a(session, leases, reason);
  }
};

// Leases whose time is up, by the primary's clock.
struct Expire {
  std::vector<LeaseRef> leases;
  template <class A>
  void Fields(A& a) {
    a(leases);
  }
};

// Groups whose completion deadline is up, and attempts whose rollouts still lack a reward after the
// source's reward timeout, by the primary's clock.
struct GroupsTimedOut {
  std::vector<GroupId> groups;
  std::vector<AttemptId> unrewarded;
  template <class A>
  void Fields(A& a) {
    a(groups, unrewarded);
  }
};

struct LateReward {
  AttemptId attempt;
  uint8_t rewards_present = 0;
  double reward = 0;  // weighted sum of those present
  template <class A>
  void Fields(A& a) {
    a(attempt, rewards_present, reward);
  }
};

struct SetRewards {
  std::vector<LateReward> rewards;
  template <class A>
  void Fields(A& a) {
    a(rewards);
  }
};

// quarantine: out of circulation; else back into it, with failures forgotten.
struct SetQuarantine {
  SourceId source;
  bool quarantine = true;
  std::vector<uint64_t> external_hashes;
  bool all_quarantined = false;
  template <class A>
  void Fields(A& a) {
    a(source, quarantine, external_hashes, all_quarantined);
  }
};

struct StartEval {
  EvalRunId run;
  SourceId source;
  PolicyVersion version;
  uint32_t attempts = 1;
  double share = 1;
  template <class A>
  void Fields(A& a) {
    a(run, source, version, attempts, share);
  }
};

struct FromLedger {
  uint64_t number = 0;
  codec::ToShard message;
  template <class A>
  void Fields(A& a) {
    a(number, message);
  }
};

struct LedgerAcknowledged {
  uint64_t number = 0;
  template <class A>
  void Fields(A& a) {
    a(number);
  }
};

using Command =
    std::variant<OpenSession, AddTasks, Assign, PutRollouts, PutGroup, Release, Fail, Expire,
                 GroupsTimedOut, SetRewards, SetQuarantine, StartEval, DropForBudget, FromLedger,
                 LedgerAcknowledged, DropDamaged, DropByOperator>;

}  // namespace forebay::shard
