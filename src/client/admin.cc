#include "forebay/admin.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "client/connection.h"
#include "client/messages.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::client {
namespace {

constexpr size_t kBatchTasks = 10'000;
constexpr size_t kBatchBytes = size_t{4} << 20;
constexpr absl::Duration kEvalPoll = absl::Seconds(20);
constexpr absl::Duration kGrace = absl::Milliseconds(500);

template <class Response, class Request>
absl::StatusOr<Response> Ask(Client* client, const char* method, const Request& request,
                             const CallOptions& options) {
  return CallTyped<Response>(client->connection(),
                             std::string("/forebay.v1.AdminService/") + method, request, options);
}

void ToWire(const SourceSettings& s, v1::SourceSettings* out) {
  out->set_name(s.name);
  out->set_purpose(s.eval ? v1::PURPOSE_EVAL : v1::PURPOSE_TRAIN);
  out->set_group_size(s.group_size);
  out->set_attempts_per_task(s.attempts_per_task);
  out->set_sampling_json(s.sampling_json);
  for (const auto& [name, weight] : s.rewards) (*out->mutable_rewards())[name] = weight;
  out->set_reward_timeout_ms(s.reward_timeout_ms);
  out->mutable_completeness()->set_at_least(s.complete_at_least);
  out->mutable_completeness()->set_deadline_ms(s.complete_deadline_ms);
  out->mutable_completeness()->set_minimum(s.complete_minimum);
  out->mutable_filters()->set_keep_equal_rewards(s.keep_equal_rewards);
  out->mutable_filters()->set_max_tokens(s.max_tokens);
  out->mutable_filters()->set_screen_attempts(s.screen_attempts);
  out->set_advantage(static_cast<v1::AdvantageKind>(s.advantage));
  out->set_truncated(static_cast<v1::TruncatedRule>(s.truncated));
  out->set_aborted(static_cast<v1::AbortedRule>(s.aborted));
  out->set_max_lag(s.max_lag);
  out->set_lag_of(static_cast<v1::LagOf>(s.lag_of));
  out->set_late(static_cast<v1::LateRule>(s.late));
  out->mutable_lease()->set_min_ms(s.lease_min_ms);
  out->mutable_lease()->set_max_ms(s.lease_max_ms);
  out->mutable_lease()->set_duration_factor(s.lease_duration_factor);
  out->mutable_lease()->set_max_failures(s.max_failures);
  out->set_weight(s.weight);
  out->set_minimum_share(s.minimum_share);
  out->set_order(static_cast<v1::Order>(s.order));
  out->set_epochs(s.epochs);
  out->set_retest(s.retest);
  out->mutable_required_columns()->Add(s.required_columns.begin(), s.required_columns.end());
  out->set_paused(s.paused);
}

EvalResult FromWire(const v1::EvalResult& r) {
  return {.eval_run = r.eval_run(),
          .source = r.source(),
          .version = client::FromWire(r.version()),
          .attempts = r.attempts(),
          .done = r.done(),
          .tasks = r.tasks(),
          .rollouts = r.rollouts(),
          .failed = r.failed(),
          .mean_reward = r.mean_reward(),
          .standard_error = r.standard_error(),
          .pass_at = {r.pass_at().begin(), r.pass_at().end()},
          .mean_tokens = r.mean_tokens()};
}

absl::StatusOr<uint64_t> ChangeTasks(Client* client, const char* method, const std::string& source,
                                     const std::vector<std::string>& ids, bool all,
                                     const CallOptions& options) {
  v1::TaskNamesRequest request;
  request.set_source(source);
  request.mutable_external_ids()->Add(ids.begin(), ids.end());
  request.set_all_quarantined(all);
  auto response = Ask<v1::TaskNamesResponse>(client, method, request, options);
  if (!response.ok()) return response.status();
  return response->changed();
}

absl::StatusOr<EvalResult> AskEval(Client* client, uint64_t eval_run, absl::Duration wait,
                                   CallOptions options) {
  v1::GetEvalRequest request;
  request.set_eval_run(eval_run);
  request.set_wait_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(wait)));
  if (wait > absl::ZeroDuration()) options.timeout = wait + kGrace;
  auto response = Ask<v1::EvalResult>(client, "GetEval", request, options);
  if (!response.ok()) return response.status();
  return FromWire(*response);
}

}  // namespace

absl::StatusOr<RunStatus> Admin::Status(const CallOptions& options) const {
  auto r = Ask<v1::GetStatusResponse>(client_, "GetStatus", v1::GetStatusRequest(), options);
  if (!r.ok()) return r.status();
  return RunStatus{.verdict = static_cast<Verdict>(r->verdict()),
                   .reasons = {r->reasons().begin(), r->reasons().end()},
                   .version = r->version(),
                   .run = r->run(),
                   .published = client::FromWire(r->published()),
                   .next_step = r->next_step(),
                   .payload_bytes = r->payload_bytes(),
                   .payload_bytes_max = r->payload_bytes_max(),
                   .actors = r->actors(),
                   .leases = r->leases(),
                   .groups_open = r->groups_open(),
                   .groups_ready = r->groups_ready(),
                   .groups_reserved = r->groups_reserved(),
                   .rollouts_held = r->rollouts_held(),
                   .tasks = r->tasks(),
                   .checkpoint = r->checkpoint(),
                   .train_version = client::FromWire(r->train_version()),
                   .retained_bytes = r->retained_bytes(),
                   .retained_bytes_max = r->retained_bytes_max(),
                   .oldest_replay = r->oldest_replay(),
                   .kept_rollouts = r->kept_rollouts(),
                   .kept_bytes = r->kept_bytes(),
                   .kept_bytes_max = r->kept_bytes_max(),
                   .waits = {r->waits().begin(), r->waits().end()}};
}

absl::StatusOr<bool> Admin::PutSource(const SourceSettings& settings,
                                      const CallOptions& options) const {
  v1::PutSourceRequest request;
  ToWire(settings, request.mutable_settings());
  auto response = Ask<v1::PutSourceResponse>(client_, "PutSource", request, options);
  if (!response.ok()) return response.status();
  return response->created();
}

absl::Status Admin::SetPaused(const std::string& source, bool paused,
                              const CallOptions& options) const {
  v1::PutSourceRequest request;
  request.mutable_settings()->set_name(source);
  request.mutable_settings()->set_paused(paused);
  request.add_fields("paused");
  return Ask<v1::PutSourceResponse>(client_, "PutSource", request, options).status();
}

absl::StatusOr<std::vector<SourceState>> Admin::ListSources(const CallOptions& options) const {
  auto response =
      Ask<v1::ListSourcesResponse>(client_, "ListSources", v1::ListSourcesRequest(), options);
  if (!response.ok()) return response.status();
  std::vector<SourceState> sources;
  for (const auto& s : response->sources()) {
    sources.push_back({.name = s.settings().name(),
                       .eval = s.settings().purpose() == v1::PURPOSE_EVAL,
                       .paused = s.settings().paused(),
                       .tasks = s.tasks(),
                       .quarantined = s.quarantined(),
                       .groups_open = s.groups_open(),
                       .groups_ready = s.groups_ready(),
                       .leases = s.leases(),
                       .assignments = s.assignments(),
                       .rollouts = s.rollouts(),
                       .trained = s.trained(),
                       .dropped = {s.dropped().begin(), s.dropped().end()},
                       .mean_reward = s.mean_reward(),
                       .mean_tokens = s.mean_tokens(),
                       .outstanding = s.outstanding(),
                       .outstanding_max = s.outstanding_max()});
  }
  return sources;
}

absl::StatusOr<AddedTasks> Admin::AddTasks(const std::string& source,
                                           absl::Span<const TaskSpec> tasks,
                                           const CallOptions& options) const {
  v1::AddTasksRequest request;
  request.set_source(source);
  for (const TaskSpec& task : tasks) {
    auto* t = request.add_tasks();
    t->set_external_id(task.external_id);
    t->set_payload(task.payload);
    t->set_attributes(task.attributes);
    t->set_weight(task.weight);
  }
  auto response = Ask<v1::AddTasksResponse>(client_, "AddTasks", request, options);
  if (!response.ok()) return response.status();
  return AddedTasks{response->added(), response->known()};
}

absl::StatusOr<AddedTasks> Admin::LoadTasks(const std::string& source,
                                            const std::function<bool(TaskSpec*)>& next,
                                            const CallOptions& options) const {
  AddedTasks sum;
  for (bool more = true; more;) {
    std::vector<TaskSpec> batch;
    size_t bytes = 0;
    while (batch.size() < kBatchTasks && bytes < kBatchBytes) {
      TaskSpec task;
      if (!(more = next(&task))) break;
      bytes += task.external_id.size() + task.payload.size() + task.attributes.size();
      batch.push_back(std::move(task));
    }
    if (batch.empty()) break;
    auto added = AddTasks(source, batch, options);
    if (!added.ok()) return added.status();
    sum.added += added->added;
    sum.known += added->known;
  }
  return sum;
}

absl::StatusOr<uint64_t> Admin::Quarantine(const std::string& source,
                                           const std::vector<std::string>& ids,
                                           const CallOptions& options) const {
  return ChangeTasks(client_, "QuarantineTasks", source, ids, false, options);
}

absl::StatusOr<uint64_t> Admin::Requeue(const std::string& source,
                                        const std::vector<std::string>& ids,
                                        const CallOptions& options) const {
  return ChangeTasks(client_, "RequeueTasks", source, ids, ids.empty(), options);
}

absl::StatusOr<std::map<std::string, std::string>> Admin::GetConfig(
    const CallOptions& options) const {
  auto response = Ask<v1::GetConfigResponse>(client_, "GetConfig", v1::GetConfigRequest(), options);
  if (!response.ok()) return response.status();
  std::map<std::string, std::string> values;
  for (const auto& entry : response->entries()) values[entry.name()] = entry.value();
  return values;
}

absl::StatusOr<std::vector<ConfigChange>> Admin::SetConfig(
    const std::map<std::string, std::string>& values, const std::string& why, bool dry_run,
    const CallOptions& options) const {
  v1::SetConfigRequest request;
  for (const auto& [name, value] : values) (*request.mutable_values())[name] = value;
  request.set_who("forebay-cpp");
  request.set_why(why);
  request.set_dry_run(dry_run);
  auto response = Ask<v1::SetConfigResponse>(client_, "SetConfig", request, options);
  if (!response.ok()) return response.status();
  std::vector<ConfigChange> changes;
  for (const auto& c : response->changes()) changes.push_back({c.name(), c.before(), c.after()});
  return changes;
}

absl::StatusOr<RewindResult> Admin::Rewind(const RewindSpec& spec,
                                           const CallOptions& options) const {
  v1::RewindRequest request;
  uint64_t id = spec.request_id;
  std::random_device random;
  while (id == 0) id = uint64_t{random()} << 32 | random();
  request.set_request_id(id);
  request.set_step(spec.step);
  request.set_mode(spec.replay ? v1::REWIND_MODE_REPLAY : v1::REWIND_MODE_FRESH);
  request.set_reason(spec.reason);
  auto response = Ask<v1::RewindResponse>(client_, "Rewind", request, options);
  if (!response.ok()) return response.status();
  return RewindResult{.next_step = response->next_step(),
                      .train_version = client::FromWire(response->train_version()),
                      .taken_back = response->taken_back(),
                      .served_again = response->served_again()};
}

absl::StatusOr<std::vector<MachineSnapshot>> Admin::Snapshot(const std::string& why,
                                                             const CallOptions& options) const {
  v1::SnapshotRequest request;
  request.set_who("forebay-cpp");
  request.set_why(why);
  auto response = Ask<v1::SnapshotResponse>(client_, "Snapshot", request, options);
  if (!response.ok()) return response.status();
  std::vector<MachineSnapshot> machines;
  for (const auto& m : response->machines()) {
    machines.push_back({m.machine(), m.position(), m.bytes(), m.file()});
  }
  return machines;
}

absl::StatusOr<uint64_t> Admin::StartEval(const EvalSpec& spec, const CallOptions& options) const {
  v1::StartEvalRequest request;
  uint64_t id = spec.eval_run;
  std::random_device random;
  while (id == 0) id = uint64_t{random()} << 32 | random();
  request.set_eval_run(id);
  request.set_source(spec.source);
  if (spec.version.has_value()) client::ToWire(*spec.version, request.mutable_version());
  request.set_attempts(spec.attempts);
  request.set_share(spec.share);
  auto response = Ask<v1::StartEvalResponse>(client_, "StartEval", request, options);
  if (!response.ok()) return response.status();
  return response->eval_run();
}

absl::StatusOr<EvalResult> Admin::GetEval(uint64_t eval_run, const CallOptions& options) const {
  return AskEval(client_, eval_run, absl::ZeroDuration(), options);
}

absl::StatusOr<EvalResult> Admin::AwaitEval(uint64_t eval_run, const CallOptions& options) const {
  const absl::Time deadline = absl::Now() + client_->connection()->LongTimeout(options);
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    auto result =
        AskEval(client_, eval_run, std::clamp(left, absl::Milliseconds(1), kEvalPoll), options);
    if (!result.ok() || result->done || absl::Now() >= deadline) return result;
  }
}

}  // namespace forebay::client
