#include "forebay/trainer.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/crc32c.h"
#include "client/connection.h"
#include "client/drift_report.h"
#include "client/messages.h"
#include "client/totals.h"
#include "forebay/v1/trainer.pb.h"

namespace forebay::client {
namespace {

// Short enough that on_waiting hears how it goes.
constexpr absl::Duration kPoll = absl::Seconds(5);
constexpr absl::Duration kGrace = absl::Milliseconds(500);
constexpr absl::Duration kLookAgain = absl::Milliseconds(20);

uint64_t RandomId() {
  std::random_device random;
  uint64_t id = 0;
  while (id == 0) id = uint64_t{random()} << 32 | random();
  return id;
}

void ToWire(const Mesh& mesh, v1::Mesh* out) {
  out->set_dp(mesh.dp);
  out->set_tp(mesh.tp);
  out->set_pp(mesh.pp);
  out->set_cp(mesh.cp);
  out->set_micro_batches_multiple_of(mesh.micro_batches_multiple_of);
}

void ToWire(const StepSpec& spec, const Mesh& mesh, v1::StepSpec* out) {
  out->set_groups(spec.groups);
  out->set_tokens(spec.tokens);
  ToWire(mesh, out->mutable_mesh());
  out->set_token_budget(spec.token_budget);
  out->set_mini_batches(spec.mini_batches);
  if (spec.max_lag.has_value()) out->set_max_lag(*spec.max_lag);
  out->set_refuse_over_budget(spec.refuse_over_budget);
  out->set_groups_whole(spec.groups_whole);
  out->set_pad_multiple(spec.pad_multiple);
  out->set_custom_advantages(spec.custom_advantages);
  out->mutable_sources()->Add(spec.sources.begin(), spec.sources.end());
  out->set_cost_linear(spec.cost_linear);
  out->set_cost_quadratic(spec.cost_quadratic);
  for (const CostPoint& point : spec.cost_table) {
    v1::CostPoint* added = out->add_cost_table();
    added->set_tokens(point.tokens);
    added->set_cost(point.cost);
  }
}

StepPlan FromWire(const v1::OpenStepResponse& r) {
  StepPlan plan{.state = static_cast<StepState>(r.state()),
                .revision = r.revision(),
                .train_version = client::FromWire(r.train_version()),
                .next_version = client::FromWire(r.next_version()),
                .totals = client::FromWire(r.totals()),
                .plan_hash = r.plan_hash(),
                .groups_reserved = r.groups_reserved(),
                .waited_ms = r.waited_ms(),
                .waiting = r.waiting(),
                .filler_micro_batches = r.filler_micro_batches(),
                .rollouts_by_lag = {r.rollouts_by_lag().begin(), r.rollouts_by_lag().end()},
                .reward_mean = r.reward_mean()};
  for (const auto& m : r.mini_batches()) {
    plan.mini_batches.push_back({m.micro_batches_per_rank(), client::FromWire(m.totals())});
  }
  return plan;
}

}  // namespace

Trainer::Trainer(Connection* connection, const TrainerOptions& options)
    : connection_(connection), options_(options), process_(RandomId()) {}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Attach(Client* client,
                                                         const TrainerOptions& options,
                                                         const CallOptions& call) {
  std::unique_ptr<Trainer> trainer(new Trainer(client->connection(), options));
  if (auto status = trainer->AttachAnew(options.resume_step, call); !status.ok()) return status;
  return trainer;
}

absl::Status Trainer::AttachAnew(const std::optional<uint64_t>& resume_step,
                                 const CallOptions& call) {
  v1::AttachTrainerRequest request;
  request.set_trainer(options_.trainer);
  request.set_process(process_);
  ToWire(options_.mesh, request.mutable_mesh());
  request.set_dp_rank(options_.dp_rank);
  request.set_peer(options_.peer);
  request.set_policy(options_.policy);
  if (resume_step.has_value()) request.set_resume_step(*resume_step);
  auto response = CallTyped<v1::AttachTrainerResponse>(
      connection_, "/forebay.v1.TrainerService/AttachTrainer", request, call);
  if (!response.ok()) return response.status();
  generation_ = response->generation();
  next_step_ = response->next_step();
  run_ = response->run();
  train_version_ = client::FromWire(response->train_version());
  open_steps_ = {response->open_steps().begin(), response->open_steps().end()};
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Trainer::Checkpoint(uint64_t step, const CallOptions& options) const {
  v1::CheckpointStepRequest request;
  request.set_generation(generation_);
  request.set_step(step);
  auto response = CallTyped<v1::CheckpointStepResponse>(
      connection_, "/forebay.v1.TrainerService/CheckpointStep", request, options);
  if (!response.ok()) return response.status();
  return response->checkpoint();
}

absl::Status Trainer::Rewind(uint64_t step, bool replay, const std::string& reason,
                             const CallOptions& options) {
  v1::RewindRequest request;
  request.set_request_id(RandomId());
  request.set_generation(generation_);
  request.set_step(step);
  request.set_mode(replay ? v1::REWIND_MODE_REPLAY : v1::REWIND_MODE_FRESH);
  request.set_reason(reason);
  const absl::Status rewound =
      CallTyped<v1::RewindResponse>(connection_, "/forebay.v1.TrainerService/Rewind", request,
                                    options)
          .status();
  // Another rank may have done it, which ended the generation.
  if (!rewound.ok() && !absl::IsAborted(rewound)) return rewound;
  const PolicyVersion before = train_version_;
  if (auto status = AttachAnew(std::nullopt, options); !status.ok()) return status;
  if (rewound.ok() || (train_version_.branch > before.branch && next_step_ == step + 1)) {
    return absl::OkStatus();
  }
  return absl::Status(rewound.code(),
                      absl::StrCat(rewound.message(), ", and the next step is ", next_step_));
}

absl::StatusOr<StepPlan> Trainer::AwaitPlan(uint64_t step, const StepSpec& spec,
                                            const OpenOptions& open, bool past_reserved,
                                            const CallOptions& call) const {
  const absl::Time deadline = absl::Now() + connection_->LongTimeout(call);
  v1::OpenStepRequest request;
  request.set_generation(generation_);
  request.set_step(step);
  ToWire(spec, options_.mesh, request.mutable_spec());
  request.set_replan(open.replan);
  while (true) {
    const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
    request.set_wait_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(std::min(left, kPoll))));
    auto response = CallTyped<v1::OpenStepResponse>(
        connection_, "/forebay.v1.TrainerService/OpenStep", request,
        {.timeout = left + kGrace, .cancellation = call.cancellation, .retry = call.retry});
    if (!response.ok()) return response.status();
    StepPlan plan = FromWire(*response);
    const bool reserved = plan.state == StepState::kReserved;
    if (plan.state != StepState::kOpen && !(reserved && past_reserved)) return plan;
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("step ", step, " is not ready: ", plan.waiting));
    }
    if (open.on_waiting) open.on_waiting(plan.waiting);
    // A reserved step is answered at once, sealed or not.
    if (reserved && !Pause(kLookAgain, call.cancellation)) {
      return absl::CancelledError("cancelled by the caller");
    }
  }
}

absl::StatusOr<std::unique_ptr<Step>> Trainer::OpenStep(uint64_t step, const StepSpec& spec,
                                                        const OpenOptions& open,
                                                        const CallOptions& call) const {
  auto plan = AwaitPlan(step, spec, open, !spec.custom_advantages, call);
  if (!plan.ok()) return plan.status();
  return std::unique_ptr<Step>(new Step(this, step, spec, *std::move(plan)));
}

absl::Status Trainer::Announce(const Announcement& announcement, const CallOptions& options) const {
  v1::PublishVersionRequest request;
  request.set_generation(generation_);
  client::ToWire(announcement, request.mutable_announcement());
  return CallTyped<v1::PublishVersionResponse>(
             connection_, "/forebay.v1.TrainerService/PublishVersion", request, options)
      .status();
}

absl::Status Trainer::AnnouncePending(const PolicyVersion& version,
                                      const CallOptions& options) const {
  return Announce({.version = version, .published = false}, options);
}

absl::Status Trainer::Publish(const PolicyVersion& version, const std::string& where,
                              const std::string& checksum, const std::optional<PolicyVersion>& base,
                              const CallOptions& options) const {
  return Announce(
      {.version = version, .published = true, .base = base, .where = where, .checksum = checksum},
      options);
}

absl::Status Step::PutColumns(uint32_t mini_batch, uint32_t micro_batch,
                              absl::Span<const Column> columns, const CallOptions& options) const {
  v1::PutColumnsRequest request;
  request.set_generation(trainer_->generation_);
  request.set_step(number_);
  request.set_revision(plan_.revision);
  request.set_dp_rank(trainer_->options_.dp_rank);
  request.set_mini_batch(mini_batch);
  request.set_micro_batch(micro_batch);
  Rollout shape{.columns = {columns.begin(), columns.end()}};
  v1::RolloutHeader header;
  client::ToWire(shape, &header);
  request.mutable_columns()->Swap(header.mutable_columns());
  size_t bytes = 0;
  for (const Column& column : columns) bytes += column.bytes.size();
  request.mutable_data()->reserve(bytes);
  for (const Column& column : columns) request.mutable_data()->append(column.bytes);
  return CallTyped<v1::PutColumnsResponse>(
             trainer_->connection_, "/forebay.v1.TrainerService/PutColumns", request, options)
      .status();
}

absl::StatusOr<bool> Step::ReportDrift(const MicroBatch& batch, const TokenLogprobs& logprobs,
                                       const CallOptions& options) const {
  auto report = MakeDriftReport(batch, logprobs, plan_.train_version.number);
  if (!report.ok()) return report.status();
  if (report->engine.empty() && report->reference.empty()) return true;  // no loss tokens
  return ReportSequences(batch.mini_batch, batch.micro_batch, *report, options);
}

absl::StatusOr<bool> Step::ReportSequences(uint32_t mini_batch, uint32_t micro_batch,
                                           const DriftReport& report,
                                           const CallOptions& options) const {
  v1::ReportSequencesRequest request;
  request.set_generation(trainer_->generation_);
  request.set_step(number_);
  request.set_revision(plan_.revision);
  request.set_dp_rank(trainer_->options_.dp_rank);
  request.set_mini_batch(mini_batch);
  request.set_micro_batch(micro_batch);
  client::ToWire(report, &request);
  auto response = CallTyped<v1::ReportSequencesResponse>(
      trainer_->connection_, "/forebay.v1.TrainerService/ReportSequences", request, options);
  if (!response.ok()) return response.status();
  return !response->already_counted();
}

absl::StatusOr<StepScalars> Step::FetchScalars(const CallOptions& options) const {
  v1::FetchScalarsRequest request;
  request.set_generation(trainer_->generation_);
  request.set_step(number_);
  const absl::Duration wait = trainer_->connection_->CallTimeout(options) - kGrace;
  request.set_wait_ms(static_cast<uint32_t>(
      absl::ToInt64Milliseconds(std::clamp(wait, absl::ZeroDuration(), absl::Seconds(60)))));
  auto r = CallTyped<v1::FetchScalarsResponse>(
      trainer_->connection_, "/forebay.v1.TrainerService/FetchScalars", request, options);
  if (!r.ok()) return r.status();
  return StepScalars{.revision = r->revision(),
                     .rollout_ids = {r->rollout_ids().begin(), r->rollout_ids().end()},
                     .group_ids = {r->group_ids().begin(), r->group_ids().end()},
                     .task_ids = {r->task_ids().begin(), r->task_ids().end()},
                     .rewards = {r->rewards().begin(), r->rewards().end()},
                     .tokens = {r->tokens().begin(), r->tokens().end()},
                     .loss_tokens = {r->loss_tokens().begin(), r->loss_tokens().end()},
                     .versions = {r->versions().begin(), r->versions().end()}};
}

absl::Status Step::PutAdvantages(absl::Span<const float> advantages, const CallOptions& options) {
  v1::PutAdvantagesRequest request;
  request.set_generation(trainer_->generation_);
  request.set_step(number_);
  request.set_revision(plan_.revision);
  request.mutable_advantages()->Add(advantages.begin(), advantages.end());
  auto response = CallTyped<v1::PutAdvantagesResponse>(
      trainer_->connection_, "/forebay.v1.TrainerService/PutAdvantages", request, options);
  if (!response.ok()) return response.status();
  auto plan = trainer_->AwaitPlan(number_, spec_, {}, true,
                                  {.timeout = trainer_->connection_->CallTimeout(options),
                                   .cancellation = options.cancellation});
  if (!plan.ok()) return plan.status();
  plan_ = *std::move(plan);
  return absl::OkStatus();
}

absl::StatusOr<PolicyVersion> Step::Commit(const CallOptions& options) const {
  v1::CommitStepRequest request;
  request.set_generation(trainer_->generation_);
  request.set_step(number_);
  request.set_revision(plan_.revision);
  auto response = CallTyped<v1::CommitStepResponse>(
      trainer_->connection_, "/forebay.v1.TrainerService/CommitStep", request, options);
  if (!response.ok()) return response.status();
  return client::FromWire(response->next_version());
}

absl::Status Step::Abort(const std::string& reason, const CallOptions& options) const {
  v1::AbortStepRequest request;
  request.set_generation(trainer_->generation_);
  request.set_step(number_);
  request.set_reason(reason);
  return CallTyped<v1::AbortStepResponse>(trainer_->connection_,
                                          "/forebay.v1.TrainerService/AbortStep", request, options)
      .status();
}

}  // namespace forebay::client
