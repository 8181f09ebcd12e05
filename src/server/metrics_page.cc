#include "server/metrics_page.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/metric_families.h"
#include "server/version.h"

namespace forebay::server {
namespace {

// So many sources and engines have series of their own; the others are shown as one, so that the
// page, and what a Prometheus server keeps of it, stay bounded.
constexpr size_t kShownMax = 64;
constexpr char kOthers[] = "(other)";

double D(uint64_t value) { return static_cast<double>(value); }
double Seconds(uint64_t ms) { return static_cast<double>(ms) / 1000; }

// The busiest since the start, in the order in which they were made, then the others as one.
std::vector<SourceFacts> Shown(const std::vector<SourceFacts>& all) {
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&all](size_t a, size_t b) {
    return all[a].counters.assignments > all[b].counters.assignments;
  });
  if (order.size() > kShownMax) std::sort(order.begin(), order.begin() + kShownMax);
  std::vector<SourceFacts> shown;
  std::optional<SourceFacts> others;
  for (size_t i = 0; i < order.size(); ++i) {
    const SourceFacts& source = all[order[i]];
    if (i < kShownMax && source.name != kOthers) {
      shown.push_back(source);
      continue;
    }
    if (others) {
      others->Merge(source);
    } else {
      others = source;
      others->name = kOthers;
    }
  }
  if (others) shown.push_back(*others);
  return shown;
}

// Those furthest behind, then the others as one: the oldest version and the longest times of them.
std::vector<EngineFacts> Shown(std::vector<EngineFacts> engines) {
  std::ranges::stable_sort(engines, std::greater(), &EngineFacts::behind);
  std::vector<EngineFacts> shown;
  std::optional<EngineFacts> others;
  for (EngineFacts& engine : engines) {
    if (shown.size() < kShownMax && engine.name != kOthers) {
      shown.push_back(std::move(engine));
      continue;
    }
    if (!others) {
      others = std::move(engine);
      others->name = kOthers;
      continue;
    }
    others->version = std::min(others->version, engine.version);
    others->behind = std::max(others->behind, engine.behind);
    others->pending_to_loaded_ms =
        std::max(others->pending_to_loaded_ms, engine.pending_to_loaded_ms);
    others->pause_ms = std::max(others->pause_ms, engine.pause_ms);
  }
  if (others) shown.push_back(*std::move(others));
  return shown;
}

void AddSourceTotals(const SourceFacts& source, MetricFamilies* out) {
  const auto& c = source.counters;
  const auto& name = source.name;
  out->Counter("forebay_assignments_total", "Attempts handed out.", D(c.assignments),
               {{"source", name}});
  const std::pair<const char*, uint64_t> ends[] = {{"expired", c.expired},
                                                   {"released", c.released},
                                                   {"failed", c.failed},
                                                   {"partial", c.partials}};
  for (const auto& [how, count] : ends) {
    out->Counter("forebay_leases_ended_total", "Leases that ended without a rollout, by how.",
                 D(count), {{"source", name}, {"how", how}});
  }
  const std::pair<const char*, uint64_t> fates[] = {{"accepted", c.accepted},
                                                    {"trained", c.trained + c.taken_back},
                                                    {"evaluated", c.evaluated},
                                                    {"masked", c.masked},
                                                    {"late", c.late},
                                                    {"stale", c.stale},
                                                    {"taken_back", c.taken_back}};
  for (const auto& [fate, count] : fates) {
    out->Counter("forebay_rollouts_total",
                 "Rollouts by fate; late and stale ones were refused, masked ones are trained in "
                 "part; those "
                 "that a rewind took back had been trained.",
                 D(count), {{"source", name}, {"fate", fate}});
  }
  for (size_t i = 0; i < shard::kDropReasons; ++i) {
    out->Counter("forebay_rollouts_dropped_total",
                 "Accepted rollouts that were not trained, by reason.", D(c.dropped[i]),
                 {{"source", name}, {"reason", shard::Name(static_cast<shard::DropReason>(i))}});
  }
  const std::pair<const char*, uint64_t> groups[] = {
      {"begun", c.groups_begun},       {"complete", c.groups_complete},
      {"filtered", c.groups_filtered}, {"screened_out", c.groups_screened_out},
      {"dropped", c.groups_dropped},   {"trained", c.groups_trained + c.groups_taken_back}};
  for (const auto& [event, count] : groups) {
    out->Counter("forebay_groups_total", "Groups by event.", D(count),
                 {{"source", name}, {"event", event}});
  }
  out->Counter("forebay_tokens_total", "Tokens of rollouts that came in, and of those trained.",
               D(c.tokens_accepted), {{"source", name}, {"stage", "accepted"}});
  out->Counter("forebay_tokens_total", "Tokens of rollouts that came in, and of those trained.",
               D(c.tokens_trained + c.tokens_taken_back), {{"source", name}, {"stage", "trained"}});
  out->Gauge("forebay_reward_sum", "Sum of the training rewards of all rewarded rollouts.",
             c.reward_sum, {{"source", name}});
  out->Counter("forebay_rewarded_total", "Rollouts with their reward.", D(c.rewarded),
               {{"source", name}});
}

void AddSourceState(const SourceFacts& source, const std::string& idle_reason,
                    MetricFamilies* out) {
  const auto& name = source.name;
  const auto gauge = [&](const char* metric, const char* help, double value) {
    out->Gauge(metric, help, value, {{"source", name}});
  };
  const std::pair<const char*, uint64_t> groups[] = {{"open", source.groups_open},
                                                     {"ready", source.groups_ready},
                                                     {"reserved", source.groups_reserved}};
  for (const auto& [state, count] : groups) {
    out->Gauge("forebay_groups", "Groups by state; open ones are incomplete.", D(count),
               {{"source", name}, {"state", state}});
  }
  gauge("forebay_leases", "Attempts under way.", D(source.in_flight));
  gauge("forebay_outstanding", "Rollouts that admission counts.", D(source.outstanding));
  gauge("forebay_outstanding_limit", "Limit of admission.", D(source.outstanding_max));
  gauge("forebay_tasks", "Tasks.", D(source.tasks));
  gauge("forebay_tasks_quarantined", "Tasks out of circulation.", D(source.quarantined));
  gauge("forebay_epoch", "Passes through the tasks begun.", D(source.epoch));
  gauge("forebay_survival", "Share of rollouts neither filtered, failed nor late; decayed.",
        source.survival);
  gauge("forebay_reward_mean", "Mean training reward since the start.", source.mean_reward);
  gauge("forebay_duration_mean_seconds", "Mean duration of an attempt; decayed.",
        source.mean_duration_ms / 1000);
  gauge("forebay_tokens_mean", "Mean tokens of a rollout; decayed.", source.mean_tokens);
  out->Gauge("forebay_rollout_tokens_mean",
             "Mean tokens since the start, of those that came in and those trained.",
             source.mean_tokens_dispatched, {{"source", name}, {"stage", "accepted"}});
  out->Gauge("forebay_rollout_tokens_mean",
             "Mean tokens since the start, of those that came in and those trained.",
             source.mean_tokens_trained, {{"source", name}, {"stage", "trained"}});
  const std::string reason(ReasonWord(ReasonOf(source, idle_reason)));
  out->Gauge("forebay_source_idle",
             "1 when nothing of the source can be handed out, with the reason.",
             reason.empty() ? 0 : 1, {{"source", name}, {"reason", reason}});
}

void AddMemory(const Observation& seen, MetricFamilies* out) {
  const auto& budget = seen.payloads.budget;
  out->Gauge("forebay_payload_bytes", "Payload memory in use or reserved.", D(budget.used_bytes));
  out->Gauge("forebay_payload_bytes_limit", "memory.payload_bytes_max.", D(budget.bytes_max));
  out->Gauge("forebay_payload_reserve_bytes", "Kept back for groups about to complete.",
             D(budget.completion_reserve_bytes));
  out->Gauge("forebay_payload_waiting_bytes", "Bytes of pushes that wait for memory.",
             D(budget.waiting_bytes));
  out->Gauge("forebay_payload_waiters", "Pushes that wait for memory.", D(budget.waiters));
  out->Gauge("forebay_payloads", "Payloads stored.", D(seen.payloads.payloads));
  out->Gauge("forebay_task_bytes", "Memory of tasks' payloads.", D(seen.contents.arena_bytes));
  out->Gauge("forebay_table_bytes", "Memory of the shards' tables.", D(seen.table_bytes));
}

void AddStorage(const StorageFacts& storage, MetricFamilies* out) {
  if (!storage.durable) return;
  const storage::StoreUse& use = storage.use;
  const std::pair<const char*, uint64_t> segments[] = {{"open", use.segments_open},
                                                       {"sealed", use.segments_sealed},
                                                       {"dead", use.segments_dead},
                                                       {"gone", use.segments_gone}};
  for (const auto& [state, count] : segments) {
    out->Gauge("forebay_store_segments", "Files of rollouts.", D(count), {{"state", state}});
  }
  const std::pair<const char*, uint64_t> bytes[] = {
      {"file", use.file_bytes},           {"live", use.live_bytes},
      {"pinned", use.pinned_bytes},       {"resident", use.resident_bytes},
      {"wanted", use.wanted_bytes},       {"waiting", use.waiting_bytes},
      {"cold_live", use.cold_live_bytes}, {"cold_resident", use.cold_resident_bytes}};
  for (const auto& [kind, count] : bytes) {
    out->Gauge("forebay_store_bytes", "Bytes of the store of rollouts.", D(count),
               {{"kind", kind}});
  }
  const std::pair<const char*, uint64_t> moved[] = {{"written", use.written_bytes},
                                                    {"evicted", use.evicted_bytes},
                                                    {"read_back", use.read_back_bytes}};
  for (const auto& [kind, count] : moved) {
    out->Counter("forebay_store_moved_bytes_total", "Bytes to and from the store.", D(count),
                 {{"kind", kind}});
  }
  out->Counter("forebay_store_syncs_total",
               "Batches that were synced, by their write or by fdatasync.", D(use.syncs));
  out->Counter("forebay_store_failed_writes_total", "Writes that ended with an error.",
               D(use.failed_writes));
  out->Counter("forebay_store_damaged_total", "Payloads whose bytes were wrong twice.",
               D(use.damaged));
  out->Gauge("forebay_store_trouble", "1 while the store has trouble, with its kind.",
             storage.trouble.kind.empty() ? 0 : 1, {{"kind", storage.trouble.kind}});
}

void AddLogs(const Observation& seen, MetricFamilies* out) {
  for (const LogFacts& log : seen.logs) {
    out->Gauge("forebay_log_pending_bytes", "Bytes of a log that wait to be synced.",
               D(log.queue.bytes), {{"log", log.machine}});
  }
  out->Gauge("forebay_log_waiting_pushes", "Pushes that wait while a log is full.",
             D(seen.pushes_held));
}

void AddSnapshots(const Observation& seen, MetricFamilies* out) {
  for (const auto& [machine, use] : seen.storage.snapshots) {
    out->Counter("forebay_snapshots_total", "Snapshots of a machine's state.", D(use.taken),
                 {{"log", machine}});
    out->Counter("forebay_snapshots_failed_total", "Snapshots that could not be written.",
                 D(use.failed), {{"log", machine}});
    out->Counter("forebay_snapshot_pause_seconds_total",
                 "Time that a machine stood still for snapshots.", use.pause_seconds_sum,
                 {{"log", machine}});
    out->Gauge("forebay_snapshot_pause_seconds_max",
               "Longest time that a machine stood still for one.", use.pause_seconds_max,
               {{"log", machine}});
    out->Gauge("forebay_snapshot_seconds", "From the beginning of the last snapshot to its end.",
               use.last.seconds, {{"log", machine}});
    out->Gauge("forebay_snapshot_bytes", "Size of the last snapshot.", D(use.last.bytes),
               {{"log", machine}});
    out->Gauge("forebay_snapshot_copied_bytes",
               "State copied because it changed while the last snapshot was written.",
               D(use.last.copied_bytes), {{"log", machine}});
  }
}

void AddSteps(const Observation& seen, MetricFamilies* out) {
  const auto& c = seen.ledger;
  const std::pair<const char*, uint64_t> events[] = {
      {"opened", c.steps_opened},         {"sealed", c.steps_sealed},
      {"replanned", c.steps_replanned},   {"committed", c.steps_committed},
      {"aborted", c.steps_aborted},       {"unpackable", c.steps_unpackable},
      {"damaged", c.steps_damaged},       {"released", c.steps_released},
      {"taken_back", c.steps_taken_back}, {"served_again", c.steps_served_again}};
  for (const auto& [event, count] : events) {
    out->Counter("forebay_steps_total", "Steps by event.", D(count), {{"event", event}});
  }
  out->Gauge("forebay_next_step", "The next step to commit.", D(seen.next_step));
  out->Gauge("forebay_checkpoint", "The newest step that the trainer's checkpoint covers.",
             D(seen.checkpoint));
  out->Gauge("forebay_retained_bytes", "Payloads of committed steps that stay for a rewind.",
             D(seen.retained_bytes));
  out->Gauge("forebay_retained_bytes_limit", "storage.retention_bytes_max.",
             D(seen.retained_bytes_max));
  out->Gauge("forebay_kept_rollouts", "Rollouts of committed steps that stay for people.",
             D(seen.kept_rollouts));
  out->Gauge("forebay_kept_bytes", "Their payloads.", D(seen.kept_bytes));
  out->Gauge("forebay_kept_bytes_limit", "retain.bytes_max.", D(seen.kept_bytes_max));
  out->Gauge("forebay_retained_steps", "Committed steps that can be served again.",
             D(seen.retained_steps));
  out->Counter("forebay_rewinds_total", "Rewinds.", D(c.rewinds));
  out->Gauge("forebay_branch", "Branch of versions; a rewind begins one.",
             seen.train_version.branch);
  uint64_t waited_ms = 0;
  for (const auto& step : seen.steps) {
    if (!step.waiting.empty()) waited_ms = std::max(waited_ms, step.waited_ms);
  }
  out->Gauge("forebay_step_waiting_seconds", "How long the oldest unsealed step has waited.",
             Seconds(waited_ms));
  out->Gauge("forebay_step_waited_seconds",
             "How long the last committed step had waited until its seal.",
             Seconds(seen.last_step_waited_ms));
  out->Gauge("forebay_step_reward_mean", "Mean reward of the last committed step.",
             seen.last_reward_mean);
  out->Counter("forebay_committed_tokens_total", "Tokens of committed steps.",
               D(c.tokens_committed));
  out->Counter("forebay_committed_rollouts_total", "Rollouts of committed steps.",
               D(c.rollouts_committed));
  out->Counter("forebay_filler_micro_batches_total", "Micro-batches without a sequence.",
               D(c.filler_micro_batches));
  out->Gauge("forebay_generation", "Trainer generation.", D(seen.generation));
  out->Gauge("forebay_trainers", "Ranks attached.", D(seen.trainers));
  out->Gauge("forebay_version_published", "Number of the newest published version.",
             seen.published.number);
  out->Gauge("forebay_version_pending", "Number of the pending version; 0 when there is none.",
             seen.has_pending ? seen.pending.number : 0);
  out->Counter("forebay_versions_published_total", "Versions published.", D(c.versions_published));
}

void AddAbsent(const Observation& seen, MetricFamilies* out) {
  out->Gauge("forebay_shards_absent", "Shards that do not serve.", D(seen.absent.size()));
  for (uint32_t i = 0; i < seen.shards; ++i) {
    const bool absent = std::ranges::any_of(
        seen.absent, [i](const AbsentShard& of) { return of.shard.value == i; });
    out->Gauge("forebay_shard_absent", "Whether this shard does not serve.", absent ? 1 : 0,
               {{"shard", absl::StrCat(i)}});
  }
  out->Counter("forebay_shard_absences_total", "Times that steps began to be planned without one.",
               D(seen.ledger.shard_absences));
  out->Counter("forebay_absent_groups_total", "Groups that open steps gave up for that.",
               D(seen.ledger.groups_of_absent));
}

void AddClients(const Observation& seen, MetricFamilies* out) {
  out->Gauge("forebay_actors", "Actors heard within clients.silent_ms.", D(seen.actors_live));
  out->Gauge("forebay_sessions", "Sessions remembered.", D(seen.sessions));
  out->Gauge("forebay_acquires_waiting", "Acquire calls that wait for work.",
             D(seen.acquires_waiting));
  const auto& usage = seen.actor_usage;
  out->Gauge("forebay_actor_cpu_seconds", "CPU that live actors report, since their start.",
             Seconds(usage.cpu_ms));
  out->Gauge("forebay_actor_library_cpu_seconds",
             "CPU inside the client library, as they report it.", Seconds(usage.library_cpu_ms));
  out->Gauge("forebay_actor_resident_bytes", "Resident memory that live actors report.",
             D(usage.resident_bytes));
  out->Gauge("forebay_engines", "Engines that reported a version.", D(seen.engines.size()));
  for (const auto& engine : Shown(seen.engines)) {
    out->Gauge("forebay_engine_version", "Version that the engine loaded.", engine.version.number,
               {{"engine", engine.name}});
    out->Gauge("forebay_engine_behind", "Published versions that it has not loaded.", engine.behind,
               {{"engine", engine.name}});
    out->Gauge("forebay_engine_adoption_seconds",
               "From the pending announcement to the end of loading.",
               Seconds(engine.pending_to_loaded_ms), {{"engine", engine.name}});
    out->Gauge("forebay_engine_pause_seconds", "How long generation stood still for it.",
               Seconds(engine.pause_ms), {{"engine", engine.name}});
  }
}

void AddDriftOf(const drift::Sums& sums, const char* of, MetricFamilies* out) {
  const std::pair<const char*, double> means[] = {
      {"k1", sums.k1}, {"k2", sums.k2}, {"k3", sums.k3}};
  for (const auto& [estimate, sum] : means) {
    out->Gauge("forebay_drift", "Mean over loss tokens, faded step by step.", sums.Mean(sum),
               {{"of", of}, {"estimate", estimate}});
  }
  out->Gauge("forebay_drift_tokens", "Tokens that it is the mean of.", sums.tokens, {{"of", of}});
  out->Gauge("forebay_drift_max", "Largest |d| of the latest steps.", sums.MaxAbs(), {{"of", of}});
  out->Gauge("forebay_drift_non_finite", "Tokens besides, without a finite log-probability.",
             sums.non_finite, {{"of", of}});
  out->Gauge("forebay_drift_clamped", "Tokens with |d| above 20.", sums.clamped, {{"of", of}});
}

void AddDrift(const DriftFacts& drift, MetricFamilies* out) {
  out->Counter("forebay_drift_reports_total", "Reports of micro-batches that were counted.",
               D(drift.reports));
  out->Counter("forebay_drift_repeated_total", "Reports that came again.", D(drift.repeated));
  out->Gauge("forebay_drift_outliers", "Engines further from the trainer than the others.",
             D(drift.outliers.size()));
  out->Gauge("forebay_drift_held", "1 while drift.hold_k3 keeps steps from being sealed.",
             drift.hold.empty() ? 0 : 1);
  const auto same = drift.table.lags.find(0);
  AddDriftOf(drift.table.All(), "engine", out);
  AddDriftOf(same == drift.table.lags.end() ? drift::Sums() : same->second, "mismatch", out);
  AddDriftOf(drift.table.reference, "reference", out);
  for (const auto& [lag, sums] : drift.table.lags) {
    out->Gauge("forebay_drift_lag_k3",
               "Mean k3 of trainer against engines; lag 16 is all above too.", sums.Mean(sums.k3),
               {{"lag", absl::StrCat(lag)}});
  }
}

void AddRun(const RunMetrics& run, MetricFamilies* out) {
  static constexpr std::array<const char*, RunMetrics::kPushResults> kResults = {
      "", "accepted", "duplicate", "late", "lease_lost", "invalid", "stale", "unknown"};
  for (size_t i = 1; i < kResults.size(); ++i) {
    out->Counter("forebay_pushes_total", "Pushed rollouts by result.", D(run.pushes(i)),
                 {{"result", kResults[i]}});
  }
  for (const auto& [key, ms] : run.waited_ms()) {
    out->Counter("forebay_waited_seconds_total",
                 "Time waited, by who and for what; added up over those who wait.", Seconds(ms),
                 {{"who", key.first}, {"reason", key.second}});
  }
  out->Counter("forebay_trainer_seconds_total", "Time with a trainer attached.",
               Seconds(run.trainer_ms()));
  out->Counter("forebay_trainer_waiting_seconds_total",
               "Of it, time with a step open and not sealed.", Seconds(run.trainer_waiting_ms()));
  const LagCounts lags = run.lags();
  auto& histogram = out->Histogram("forebay_trained_lag", "Lag of trained rollouts, in versions.");
  static constexpr std::array<size_t, 10> kBounds = {0, 1, 2, 3, 4, 6, 8, 16, 32, 64};
  uint64_t count = 0;
  size_t lag = 0;
  for (const size_t bound : kBounds) {
    for (; lag <= bound && lag < lags.rollouts.size(); ++lag) count += lags.rollouts[lag];
    histogram.bucket.push_back({count, D(bound)});
  }
  for (; lag < lags.rollouts.size(); ++lag) count += lags.rollouts[lag];
  histogram.bucket.push_back({count, std::numeric_limits<double>::infinity()});
  histogram.sample_count = count;
  histogram.sample_sum = D(lags.lag_sum);
  out->Counter("forebay_relief_pushes_total", "Pushes let in from the reserve to end a standstill.",
               D(run.relief_admitted));
  out->Counter("forebay_relief_groups_dropped_total", "Groups dropped to end a standstill.",
               D(run.relief_dropped));
  for (const auto& [reason, count] :
       {std::pair<const char*, uint64_t>{"memory", run.pushes_stalled_memory},
        {"lease_over", run.pushes_stalled_lease}}) {
    out->Counter("forebay_pushes_stalled_total",
                 "Push streams ended half-way through a rollout, for no bytes came, by reason.",
                 D(count), {{"reason", reason}});
  }
}

// Buckets of a power of four, from 64 us to about 67 s, out of those of a power of two that are
// kept.
void AddLatency(const Method& method, MetricFamilies* out) {
  const auto& stats = method.stats;
  auto& histogram = out->Histogram("forebay_rpc_seconds", "Time from a unary call to its answer.",
                                   {{"method", method.name}});
  uint64_t count = 0;
  for (size_t i = 0; i < MethodStats::kLatencyBuckets; ++i) {
    count += stats.latency[i];
    const bool shown = i >= 6 && i <= 26 && i % 2 == 0;
    if (shown) histogram.bucket.push_back({count, D(uint64_t{1} << i) * 1e-6});
  }
  histogram.bucket.push_back({count, std::numeric_limits<double>::infinity()});
  histogram.sample_count = count;
  histogram.sample_sum = D(stats.latency_sum_us) * 1e-6;
}

void AddCalls(const MethodTable& methods, MetricFamilies* out) {
  for (const Method& method : methods.methods()) {
    const auto& stats = method.stats;
    for (size_t code = 0; code < MethodStats::kCodes; ++code) {
      const uint64_t count = stats.ended[code];
      if (count == 0) continue;
      out->Counter("forebay_rpc_ended_total", "Calls ended, by method and gRPC status code.",
                   D(count), {{"method", method.name}, {"code", absl::StrCat(code)}});
    }
    out->Gauge("forebay_rpc_running", "Calls running.", D(stats.running),
               {{"method", method.name}});
    out->Counter("forebay_rpc_messages_total", "Messages.", D(stats.received_messages),
                 {{"method", method.name}, {"direction", "received"}});
    out->Counter("forebay_rpc_messages_total", "Messages.", D(stats.sent_messages),
                 {{"method", method.name}, {"direction", "sent"}});
    if (method.unary) AddLatency(method, out);
  }
}

void AddProcess(const Observation& seen, MetricFamilies* out) {
  out->Gauge("forebay_build_info", "1, with the version.", 1, {{"version", kVersion}});
  out->Gauge("forebay_uptime_seconds", "Since the daemon began.", Seconds(seen.uptime_ms));
  out->Gauge("forebay_draining", "1 while the daemon comes to its end.", seen.draining ? 1 : 0);
  out->Counter("process_cpu_seconds_total", "User and system CPU time.", seen.process.cpu_seconds);
  out->Gauge("process_resident_memory_bytes", "Resident memory.", D(seen.process.resident_bytes));
  out->Gauge("process_threads", "Threads.", D(seen.process.threads));
  out->Gauge("process_open_fds", "Open file descriptors.", D(seen.process.open_files));
}

}  // namespace

std::string FollowerMetricsPage(const ClusterPage& cluster, const MethodTable& methods,
                                uint64_t uptime_ms) {
  MetricFamilies out;
  AddClusterMetrics(cluster, &out);
  AddCalls(methods, &out);
  Observation seen;
  seen.process = ReadProcess();
  seen.uptime_ms = uptime_ms;
  AddProcess(seen, &out);
  return prometheus::TextSerializer().Serialize(out.families());
}

std::string MetricsPage(const Observation& seen, const RunMetrics& run, const MethodTable& methods,
                        const ClusterPage& cluster) {
  MetricFamilies out;
  AddClusterMetrics(cluster, &out);
  out.Gauge("forebay_sources", "Sources.", D(seen.sources.size()));
  for (const auto& source : Shown(seen.sources)) {
    AddSourceTotals(source, &out);
    AddSourceState(source, seen.idle_reason, &out);
  }
  AddMemory(seen, &out);
  AddStorage(seen.storage, &out);
  if (seen.storage.durable) {
    AddLogs(seen, &out);
    AddSnapshots(seen, &out);
  }
  AddSteps(seen, &out);
  AddAbsent(seen, &out);
  AddClients(seen, &out);
  AddDrift(seen.drift, &out);
  AddRun(run, &out);
  AddCalls(methods, &out);
  AddProcess(seen, &out);
  return prometheus::TextSerializer().Serialize(out.families());
}

}  // namespace forebay::server
