// An actor: acquires assignments, keeps their leases alive, pushes rollouts.
//
//   auto actor = Actor::Open(client, {.actor = "env-3", .sources = {"math"}, .slots = 256});
//   while (true) {
//     auto assignment = (*actor)->Next();                  // from any number of threads
//     if (!assignment.ok()) break;
//     Rollout rollout = Generate(assignment->info(), &assignment->stop());
//     auto receipt = assignment->Push(rollout);            // destroyed without it: the lease is
//     given back
//   }
//
// Actor is thread-safe. An Assignment belongs to one thread at a time and is destroyed before its
// Actor. Close, or the destructor, gives back what is still held.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "forebay/call.h"
#include "forebay/client.h"
#include "forebay/rollout.h"

namespace forebay::client {

struct LeaseState;
class ActorCore;

// An unfinished attempt that an assignment continues. The columns point into `payload`.
struct Partial {
  Rollout rollout;
  std::string payload;
};

struct AssignmentInfo {
  uint64_t attempt_id = 0;
  uint64_t seed = 0;  // hash(run, task, attempt)
  uint64_t group_id = 0;
  uint32_t attempt = 0;  // within its group, from 0
  std::string source;
  std::string sampling_json;
  bool eval = false;
  uint64_t eval_run = 0;  // 0: none
  PolicyVersion version;  // that the attempt is for
  std::string external_id;
  uint64_t task_id = 0;
  std::string payload;
  std::string attributes;
  std::shared_ptr<const Partial> partial;  // null: a fresh attempt
};

// The numbers of forebay.v1.LeaseAction.
enum class LeaseAction : uint8_t { kContinue = 0, kSavePartial = 1, kAbandon = 2 };

// The numbers of forebay.v1.PushResult.
enum class PushResult : uint8_t {
  kAccepted = 1,
  kDuplicate = 2,  // it was in already
  kLate = 3,       // its group is complete: counted, not trained
  kLeaseLost = 4,  // the attempt was handed out again, or is of another run
  kInvalid = 5,    // of SetRewards alone: a key that the source lacks, or a number that is none
  kStale = 6,      // of an abandoned branch, or over the lag limit
  kUnknown = 7,    // the daemon knows no such attempt
};

struct PushReceipt {
  PushResult result = PushResult::kAccepted;
  std::string message;  // of what was not simply accepted
  bool in() const { return result == PushResult::kAccepted || result == PushResult::kDuplicate; }
};

class Assignment {
 public:
  Assignment(Assignment&&) noexcept;
  Assignment& operator=(Assignment&&) noexcept;
  ~Assignment();

  const AssignmentInfo& info() const { return *info_; }
  // Cancelled when going on is useless, or the attempt should be saved: see action() and reason().
  // Give it to the engine.
  Cancellation& stop() const;
  LeaseAction action() const;
  std::string reason() const;  // "too_stale", "group_done", "lease_lost", ...
  // Tokens generated so far; goes with the next renewal.
  void SetProgress(uint32_t generated_tokens);

  // Waits until the daemon has the rollout. INVALID_ARGUMENT names the field that is wrong; the
  // lease then stays held, and the rollout can be mended and pushed again. The bytes stay valid
  // during the call.
  absl::StatusOr<PushReceipt> Push(const Rollout& rollout, const CallOptions& options = {});
  // Returns at once. `done` runs once, on a thread of the actor, and is short; the bytes stay valid
  // until it runs, and so does a Cancellation in the options. The assignment may be destroyed
  // before.
  using PushDone = std::function<void(absl::StatusOr<PushReceipt>)>;
  void PushAsync(const Rollout& rollout, PushDone done, const CallOptions& options = {});
  // Saves an unfinished attempt: whoever gets it next continues it.
  absl::StatusOr<PushReceipt> SavePartial(const Rollout& rollout, const CallOptions& options = {});
  // Reports that the attempt failed; after the source's max_failures its task is quarantined.
  absl::Status Fail(const std::string& reason, const CallOptions& options = {});
  // Gives the lease back; no failure is counted.
  absl::Status Release(const CallOptions& options = {});

 private:
  friend class Actor;
  Assignment(std::shared_ptr<ActorCore> core, std::shared_ptr<LeaseState> lease,
             std::unique_ptr<const AssignmentInfo> info);
  absl::StatusOr<PushReceipt> PushNow(const Rollout& rollout, bool partial,
                                      const CallOptions& options);

  std::shared_ptr<ActorCore> core_;
  std::shared_ptr<LeaseState> lease_;
  std::unique_ptr<const AssignmentInfo> info_;
};

// A policy version and where its weights are.
struct Announcement {
  PolicyVersion version;
  bool published = false;             // else pending: the weights are coming
  std::optional<PolicyVersion> base;  // of a delta
  std::string where;
  std::string checksum;
  uint64_t step = 0;
  absl::Time arrived;
};

struct ActorOptions {
  std::string actor;   // for people
  std::string engine;  // that it samples from; may be empty
  std::string site;
  std::vector<std::string> sources;  // empty: any
  // Assignments held at once by Next.
  uint32_t slots = 64;
  // The engine can load the version that an evaluation asks for.
  bool loads_any_version = false;
  // Runs on a thread of the actor for each announcement, pending ones first; is short. May be
  // empty.
  std::function<void(const Announcement&)> on_policy;
};

struct AcquireResult {
  std::vector<Assignment> assignments;
  std::string
      reason;  // why there are fewer than asked: "no_tasks", "admission", "memory", "paused", ...
};

// A finished group without assignments.
struct PushedGroup {
  std::string source;
  std::string external_id;
  std::string task_payload;  // if the source does not have the task yet
  uint64_t request_id = 0;   // not 0; the same again is a duplicate
  std::vector<Rollout> rollouts;
};

class Actor {
 public:
  // Opens a session; the client outlives the actor.
  static absl::StatusOr<std::unique_ptr<Actor>> Open(Client* client, const ActorOptions& options,
                                                     const CallOptions& call = {});
  ~Actor();

  // The next assignment. Waits while there is none or all slots are taken; DEADLINE_EXCEEDED says
  // why there was none.
  absl::StatusOr<Assignment> Next(const CallOptions& options = {});
  // Up to `max` at once; waits for the first, and returns none (with the reason) when the time is
  // over.
  absl::StatusOr<AcquireResult> Acquire(uint32_t max, const CallOptions& options = {});

  absl::StatusOr<std::vector<PushReceipt>> PushGroup(const PushedGroup& group,
                                                     const CallOptions& options = {});
  struct LateReward {
    uint64_t attempt_id = 0;
    std::map<std::string, double> rewards;
  };
  // Within the source's reward_timeout_ms. One result a reward.
  absl::StatusOr<std::vector<PushResult>> SetRewards(absl::Span<const LateReward> rewards,
                                                     const CallOptions& options = {});

  // The newest announcements; empty before the first.
  std::optional<Announcement> published() const;
  std::optional<Announcement> pending() const;
  // Waits for a published version of at least this number on the newest branch.
  absl::StatusOr<Announcement> WaitForVersion(uint32_t number, const CallOptions& options = {});
  // The engine holds `version` now; generation stood still for `pause`. Acquire asks for its work
  // from here on.
  absl::Status ReportAdoption(const PolicyVersion& version, absl::Duration pause,
                              const CallOptions& options = {});

  uint64_t session() const;
  uint64_t run() const;  // changes when the daemon starts anew without state
  uint64_t rollout_bytes_max() const;
  size_t leases() const;  // held now

  // No more assignments: Next and Acquire return CANCELLED; what is held is told to stop, with the
  // reason "closing".
  void Close();

 private:
  explicit Actor(std::shared_ptr<ActorCore> core);
  std::shared_ptr<ActorCore> core_;
};

}  // namespace forebay::client
