// What loaders and operators call: sources, tasks, status, settings, evaluations.
//
// Admin is thread-safe and holds nothing but the client, which outlives it. The structs are plain
// values. What is not here is reached with Client::Call.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "forebay/call.h"
#include "forebay/client.h"
#include "forebay/rollout.h"

namespace forebay::client {

enum class Order : uint8_t { kStatic = 1, kShuffled = 2, kWeighted = 3, kLearnable = 4 };
enum class AdvantageKind : uint8_t {
  kGrpo = 1,
  kDrGrpo = 2,
  kRloo = 3,
  kReinforcePp = 4,
  kNone = 5
};
enum class LagOf : uint8_t { kOldest = 1, kStart = 2, kMeanToken = 3, kNewest = 4 };
enum class LateRule : uint8_t {
  kDrop = 1,
  kBaselineOnly = 2,
  kMaskOldTokens = 3,
  kTrain = 4,
  kWait = 5
};
enum class TruncatedRule : uint8_t { kTrain = 1, kMask = 2, kDrop = 3 };
enum class AbortedRule : uint8_t { kRetry = 1, kDrop = 2 };

// Defaults are the daemon's; see SourceSettings in the contract for what each does.
struct SourceSettings {
  std::string name;
  bool eval = false;
  uint32_t group_size = 16;
  uint32_t attempts_per_task = 0;  // 0: group_size
  std::string sampling_json;
  std::map<std::string, double> rewards;  // empty: {"reward": 1}
  uint64_t reward_timeout_ms = 0;
  uint32_t complete_at_least = 0;  // 0: group_size
  uint64_t complete_deadline_ms = 0;
  uint32_t complete_minimum = 0;
  bool keep_equal_rewards = false;
  uint32_t max_tokens = 0;
  uint32_t screen_attempts = 0;
  AdvantageKind advantage = AdvantageKind::kGrpo;
  TruncatedRule truncated = TruncatedRule::kTrain;
  AbortedRule aborted = AbortedRule::kRetry;
  uint32_t max_lag = 1;
  LagOf lag_of = LagOf::kOldest;
  LateRule late = LateRule::kDrop;
  uint64_t lease_min_ms = 0;  // 0: 10 s
  uint64_t lease_max_ms = 0;  // 0: 600 s
  double lease_duration_factor = 0;
  uint32_t max_failures = 0;  // 0: 3
  double weight = 1;
  double minimum_share = 0;
  Order order = Order::kShuffled;
  uint32_t epochs = 0;
  double retest = 0.05;
  std::vector<std::string> required_columns;  // empty: tokens and loss_mask
  bool paused = false;
};

struct TaskSpec {
  std::string external_id;
  std::string payload;
  std::string attributes;
  double weight = 1;
};

struct AddedTasks {
  uint64_t added = 0;
  uint64_t known = 0;
};

enum class Verdict : uint8_t { kOk = 1, kDegraded = 2, kUnavailable = 3 };

struct RunStatus {
  Verdict verdict = Verdict::kOk;
  std::vector<std::string> reasons;
  std::string version;
  uint64_t run = 0;
  PolicyVersion published;
  uint64_t next_step = 0;
  uint64_t payload_bytes = 0;
  uint64_t payload_bytes_max = 0;
  uint64_t actors = 0;
  uint64_t leases = 0;
  uint64_t groups_open = 0;
  uint64_t groups_ready = 0;
  uint64_t groups_reserved = 0;
  uint64_t rollouts_held = 0;
  uint64_t tasks = 0;
  uint64_t checkpoint = 0;  // the newest step that the trainer's checkpoint covers
  PolicyVersion train_version;
  uint64_t retained_bytes = 0;  // of committed steps that stay for a rewind
  uint64_t retained_bytes_max = 0;
  uint64_t oldest_replay = 0;  // the oldest step to go back to with replay
  uint64_t kept_rollouts = 0;  // of committed steps, that stay for people
  uint64_t kept_bytes = 0;
  uint64_t kept_bytes_max = 0;
  std::vector<std::string> waits;
};

struct SourceState {
  std::string name;
  bool eval = false;
  bool paused = false;
  uint64_t tasks = 0;
  uint64_t quarantined = 0;
  uint64_t groups_open = 0;
  uint64_t groups_ready = 0;
  uint64_t leases = 0;
  uint64_t assignments = 0;
  uint64_t rollouts = 0;
  uint64_t trained = 0;
  std::map<std::string, uint64_t> dropped;  // by reason
  double mean_reward = 0;
  double mean_tokens = 0;
  uint64_t outstanding = 0;
  uint64_t outstanding_max = 0;
};

struct ConfigChange {
  std::string name, before, after;
};

struct RewindSpec {
  uint64_t step = 0;    // the last that stays
  bool replay = false;  // serve those after it again as they were
  std::string reason;
  uint64_t request_id = 0;  // 0: a random one; the same again changes nothing
};

struct RewindResult {
  uint64_t next_step = 0;
  PolicyVersion train_version;  // that the new branch begins with
  uint64_t taken_back = 0;
  uint64_t served_again = 0;
};

struct MachineSnapshot {
  std::string machine;
  uint64_t position = 0;  // of the last command in it
  uint64_t bytes = 0;
  std::string file;  // on the daemon's host
};

struct EvalSpec {
  uint64_t eval_run = 0;  // 0: a random one; the same again starts nothing
  std::string source;
  std::optional<PolicyVersion> version;  // nothing: the newest published one
  uint32_t attempts = 1;
  double share = 1;
};

struct EvalResult {
  uint64_t eval_run = 0;
  std::string source;
  PolicyVersion version;
  uint32_t attempts = 0;
  bool done = false;
  uint64_t tasks = 0;
  uint64_t rollouts = 0;
  uint64_t failed = 0;
  double mean_reward = 0;
  double standard_error = 0;
  std::vector<double> pass_at;  // entry i: pass@2^i
  double mean_tokens = 0;
};

class Admin {
 public:
  explicit Admin(Client* client) : client_(client) {}

  absl::StatusOr<RunStatus> Status(const CallOptions& options = {}) const;

  // Creates the source or sets all its settings; true if it is new.
  absl::StatusOr<bool> PutSource(const SourceSettings& settings,
                                 const CallOptions& options = {}) const;
  // No new groups while paused.
  absl::Status SetPaused(const std::string& source, bool paused,
                         const CallOptions& options = {}) const;
  absl::StatusOr<std::vector<SourceState>> ListSources(const CallOptions& options = {}) const;

  // All of them or none; idempotent by external id. At most 65,536.
  absl::StatusOr<AddedTasks> AddTasks(const std::string& source, absl::Span<const TaskSpec> tasks,
                                      const CallOptions& options = {}) const;
  // Any number, in batches: `next` fills in a task, or returns false at the end. Each batch has the
  // call's timeout.
  absl::StatusOr<AddedTasks> LoadTasks(const std::string& source,
                                       const std::function<bool(TaskSpec*)>& next,
                                       const CallOptions& options = {}) const;
  // The number of tasks that changed.
  absl::StatusOr<uint64_t> Quarantine(const std::string& source,
                                      const std::vector<std::string>& ids,
                                      const CallOptions& options = {}) const;
  // Without ids: all that are quarantined.
  absl::StatusOr<uint64_t> Requeue(const std::string& source, const std::vector<std::string>& ids,
                                   const CallOptions& options = {}) const;

  absl::StatusOr<std::map<std::string, std::string>> GetConfig(
      const CallOptions& options = {}) const;
  // All or none; what differs.
  absl::StatusOr<std::vector<ConfigChange>> SetConfig(
      const std::map<std::string, std::string>& values, const std::string& why,
      bool dry_run = false, const CallOptions& options = {}) const;

  // As Trainer::Rewind, by an operator: the trainer has to attach again.
  absl::StatusOr<RewindResult> Rewind(const RewindSpec& spec,
                                      const CallOptions& options = {}) const;
  // Every machine's state, to disk now: the ledger's, then the shards'.
  absl::StatusOr<std::vector<MachineSnapshot>> Snapshot(const std::string& why,
                                                        const CallOptions& options = {}) const;

  // The id of the run.
  absl::StatusOr<uint64_t> StartEval(const EvalSpec& spec, const CallOptions& options = {}) const;
  // Waits for its end within the timeout; then gives what there is.
  absl::StatusOr<EvalResult> AwaitEval(uint64_t eval_run, const CallOptions& options = {}) const;
  absl::StatusOr<EvalResult> GetEval(uint64_t eval_run, const CallOptions& options = {}) const;

 private:
  Client* const client_;
};

}  // namespace forebay::client
