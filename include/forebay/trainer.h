// A trainer's rank: attaches, opens steps, fetches its micro-batches, commits, publishes.
//
//   auto trainer = Trainer::Attach(client, {.trainer = "rank-0", .mesh = {.dp = 8}, .dp_rank = 0});
//   auto step = (*trainer)->OpenStep((*trainer)->next_step(), {.groups = 64, .token_budget =
//   65536}); auto reader = (*step)->Read({.columns = {"tokens", "loss_mask", "logprobs"}});
//   MicroBatch batch;
//   while (*reader->Next(&batch)) Backward(batch);           // Next gives a status: see below
//   (*step)->Commit();
//   (*trainer)->Publish((*step)->plan().next_version, "/weights/12");
//
// Trainer and Step are thread-safe; a MicroBatchReader belongs to one thread. The client outlives
// the trainer, the trainer its steps, a step its readers. Calls of an older generation fail with
// ABORTED: another process took this rank's place. DATA_LOSS says that bytes of the step could not
// be read back: the daemon plans it without them under the next revision, so open the step again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "forebay/actor.h"
#include "forebay/call.h"
#include "forebay/client.h"
#include "forebay/drift.h"
#include "forebay/micro_batch.h"
#include "forebay/rollout.h"

namespace forebay::client {

class FetchStream;
class Connection;

struct Mesh {
  uint32_t dp = 1;
  uint32_t tp = 1;
  uint32_t pp = 1;
  uint32_t cp = 1;
  uint32_t micro_batches_multiple_of = 1;
};

struct TrainerOptions {
  std::string trainer;  // for people
  Mesh mesh;
  uint32_t dp_rank = 0;
  uint32_t peer = 0;   // which of the rank's tp x pp x cp peers
  std::string policy;  // empty: "main"
  // The trainer's own checkpoint covers all steps before this one.
  std::optional<uint64_t> resume_step;
};

// What a sequence of so many tokens was measured to cost, in any unit.
struct CostPoint {
  uint32_t tokens = 0;
  double cost = 0;
};

struct StepSpec {
  uint32_t groups = 0;  // or 0 and `tokens`
  uint64_t tokens = 0;
  uint64_t token_budget = 0;  // of one micro-batch
  uint32_t mini_batches = 1;
  std::optional<uint32_t> max_lag;
  bool refuse_over_budget = false;
  bool groups_whole = false;
  uint32_t pad_multiple = 1;
  bool custom_advantages = false;
  std::vector<std::string> sources;  // empty: all train sources
  double cost_linear = 0;            // 0 and 0: the daemon's defaults
  double cost_quadratic = 0;
  // By rising tokens, at most 1024; if there are any, instead of the coefficients. Between points
  // the cost is on the line between them.
  std::vector<CostPoint> cost_table;
};

// The numbers of forebay.v1.StepState.
enum class StepState : uint8_t {
  kOpen = 1,
  kReserved = 2,
  kSealed = 3,
  kCommitted = 4,
  kAborted = 5
};

struct MiniBatchPlan {
  uint32_t micro_batches_per_rank = 0;
  Totals totals;  // over all ranks
};

struct StepPlan {
  StepState state = StepState::kOpen;
  uint32_t revision = 0;
  PolicyVersion train_version;
  PolicyVersion next_version;  // that the commit makes
  std::vector<MiniBatchPlan> mini_batches;
  Totals totals;
  uint64_t plan_hash = 0;  // the same for the same inputs
  uint32_t groups_reserved = 0;
  uint64_t waited_ms = 0;
  std::string waiting;
  uint64_t filler_micro_batches = 0;
  std::vector<uint64_t> rollouts_by_lag;
  double reward_mean = 0;
};

struct OpenOptions {
  // Same groups and advantages, packed anew for this trainer's mesh under a new revision.
  bool replan = false;
  // Told now and then why the step is not there yet. May be empty.
  std::function<void(const std::string& waiting)> on_waiting;
};

// All parallel, one entry a rollout.
struct StepScalars {
  uint32_t revision = 0;
  std::vector<uint64_t> rollout_ids;
  std::vector<uint64_t> group_ids;
  std::vector<uint64_t> task_ids;
  std::vector<float> rewards;
  std::vector<uint32_t> tokens;
  std::vector<uint32_t> loss_tokens;
  std::vector<uint32_t> versions;
};

// The rank's micro-batches in order, mini-batch by mini-batch, fetched ahead on a thread of its
// own.
class MicroBatchReader {
 public:
  explicit MicroBatchReader(std::unique_ptr<FetchStream> stream);
  ~MicroBatchReader();
  // False at the end. A lost connection is mended within the deadline; after another failure the
  // reader is spent.
  absl::StatusOr<bool> Next(MicroBatch* batch, const CallOptions& options = {});

 private:
  std::unique_ptr<FetchStream> stream_;
};

class Trainer;

class Step {
 public:
  uint64_t number() const { return number_; }
  // As it was when the step was opened, or after PutAdvantages sealed it.
  const StepPlan& plan() const { return plan_; }

  // All of this rank's micro-batches; again as often as wanted: the same bytes.
  std::unique_ptr<MicroBatchReader> Read(const FetchSpec& spec) const;
  // One micro-batch.
  absl::StatusOr<MicroBatch> Fetch(uint32_t mini_batch, uint32_t micro_batch, const FetchSpec& spec,
                                   const CallOptions& options = {}) const;
  // Per-token results for a micro-batch's tokens without padding, for the life of the plan.
  absl::Status PutColumns(uint32_t mini_batch, uint32_t micro_batch,
                          absl::Span<const Column> columns, const CallOptions& options = {}) const;

  // Before the commit: how far the trainer is from the engines that sampled the micro-batch, and
  // from the reference policy. It must have been fetched with the columns logprobs and loss_mask.
  // False: it was counted before, from this rank or a peer of it.
  absl::StatusOr<bool> ReportDrift(const MicroBatch& batch, const TokenLogprobs& logprobs,
                                   const CallOptions& options = {}) const;
  // As a trainer computed it itself.
  absl::StatusOr<bool> ReportSequences(uint32_t mini_batch, uint32_t micro_batch,
                                       const DriftReport& report,
                                       const CallOptions& options = {}) const;

  // With custom_advantages: the scalars of the reserved step, then one finite advantage a rollout;
  // waits for the seal.
  absl::StatusOr<StepScalars> FetchScalars(const CallOptions& options = {}) const;
  absl::Status PutAdvantages(absl::Span<const float> advantages, const CallOptions& options = {});

  // Consumed exactly once, from any rank; again is harmless. Gives the version that the step made.
  absl::StatusOr<PolicyVersion> Commit(const CallOptions& options = {}) const;
  // Its groups go back.
  absl::Status Abort(const std::string& reason, const CallOptions& options = {}) const;

 private:
  friend class Trainer;
  Step(const Trainer* trainer, uint64_t number, const StepSpec& spec, StepPlan plan)
      : trainer_(trainer), number_(number), spec_(spec), plan_(std::move(plan)) {}
  std::unique_ptr<MicroBatchReader> ReadSome(uint32_t mini_batch, uint32_t micro_batch, bool one,
                                             const FetchSpec& spec) const;

  const Trainer* const trainer_;
  const uint64_t number_;
  const StepSpec spec_;
  StepPlan plan_;
};

class Trainer {
 public:
  static absl::StatusOr<std::unique_ptr<Trainer>> Attach(Client* client,
                                                         const TrainerOptions& options,
                                                         const CallOptions& call = {});

  uint64_t generation() const { return generation_; }
  uint64_t run() const { return run_; }
  // As Attach or Rewind found them.
  uint64_t next_step() const { return next_step_; }
  const PolicyVersion& train_version() const { return train_version_; }
  const std::vector<uint64_t>& open_steps() const { return open_steps_; }

  // Opens the step, or takes part in it; waits until it is sealed (or reserved, with
  // custom_advantages). DEADLINE_EXCEEDED says why it is not. The same spec gives the same plan;
  // another one is refused unless `open.replan`.
  absl::StatusOr<std::unique_ptr<Step>> OpenStep(uint64_t step, const StepSpec& spec,
                                                 const OpenOptions& open = {},
                                                 const CallOptions& call = {}) const;

  // The weights are coming: actors cut what would be too stale.
  absl::Status AnnouncePending(const PolicyVersion& version, const CallOptions& options = {}) const;
  // The weights can be loaded from `where`; `base`: they are a delta to it.
  absl::Status Publish(const PolicyVersion& version, const std::string& where,
                       const std::string& checksum = "",
                       const std::optional<PolicyVersion>& base = std::nullopt,
                       const CallOptions& options = {}) const;

  // The trainer's own checkpoint covers the steps up to this committed one: their rollouts may go,
  // and no rewind goes back before it. Gives the newest step that a checkpoint covers.
  absl::StatusOr<uint64_t> Checkpoint(uint64_t step, const CallOptions& options = {}) const;
  // Takes back the steps after `step` and attaches anew, on the new branch of versions: next_step()
  // and train_version() are those to go on with, and that version is to be published for actors to
  // go on. Call it on every rank: the first one does it, the others join. With `replay` the steps
  // are served again as they were; FAILED_PRECONDITION names the oldest step for that.
  absl::Status Rewind(uint64_t step, bool replay = false, const std::string& reason = "",
                      const CallOptions& options = {});

 private:
  friend class Step;
  Trainer(Connection* connection, const TrainerOptions& options);
  absl::Status AttachAnew(const std::optional<uint64_t>& resume_step, const CallOptions& call);
  absl::Status Announce(const Announcement& announcement, const CallOptions& options) const;
  absl::StatusOr<StepPlan> AwaitPlan(uint64_t step, const StepSpec& spec, const OpenOptions& open,
                                     bool past_reserved, const CallOptions& call) const;

  Connection* const connection_;
  const TrainerOptions options_;
  const uint64_t process_;
  uint64_t generation_ = 0;
  uint64_t next_step_ = 0;
  uint64_t run_ = 0;
  PolicyVersion train_version_;
  std::vector<uint64_t> open_steps_;
};

}  // namespace forebay::client
