#include "server/observation.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "server/admin.h"
#include "server/live_config.h"

namespace forebay::server {
namespace {

void Add(const shard::SourceCounters& from, shard::SourceCounters* to) {
  to->assignments += from.assignments;
  to->expired += from.expired;
  to->released += from.released;
  to->failed += from.failed;
  to->partials += from.partials;
  to->late += from.late;
  to->stale += from.stale;
  to->accepted += from.accepted;
  to->held += from.held;
  to->reserved += from.reserved;
  to->trained += from.trained;
  to->evaluated += from.evaluated;
  for (size_t i = 0; i < shard::kDropReasons; ++i) to->dropped[i] += from.dropped[i];
  to->baseline_only += from.baseline_only;
  to->masked += from.masked;
  to->groups_begun += from.groups_begun;
  to->groups_complete += from.groups_complete;
  to->groups_filtered += from.groups_filtered;
  to->groups_screened_out += from.groups_screened_out;
  to->groups_dropped += from.groups_dropped;
  to->groups_trained += from.groups_trained;
  to->tasks_quarantined += from.tasks_quarantined;
  to->groups_taken_back += from.groups_taken_back;
  to->taken_back += from.taken_back;
  to->tokens_taken_back += from.tokens_taken_back;
  to->tokens_accepted += from.tokens_accepted;
  to->tokens_trained += from.tokens_trained;
  to->reward_sum += from.reward_sum;
  to->rewarded += from.rewarded;
}

void Add(const ClientUsage& from, ClientUsage* to) {
  to->cpu_ms += from.cpu_ms;
  to->library_cpu_ms += from.library_cpu_ms;
  to->resident_bytes += from.resident_bytes;
  to->pushed_bytes += from.pushed_bytes;
  to->fetched_bytes += from.fetched_bytes;
}

// When each session was last heard; every shard knows every session, and hears it at times of its
// own.
using LastSeen = std::map<uint64_t, uint64_t>;

void LookAtShard(node::ShardLoop& loop, LastSeen* last_seen, Observation* out) {
  for (const auto& view : loop.state().Sources()) {
    if (view.source.value >= out->sources.size()) out->sources.resize(view.source.value + 1u);
    out->sources[view.source.value].Add(view);
  }
  out->acquires_waiting += loop.primary().waiters();
  if (out->idle_reason.empty()) out->idle_reason = loop.primary().IdleReason();
  for (const auto& view : loop.state().Sessions()) {
    uint64_t& seen = (*last_seen)[view.session.value];
    seen = std::max(seen, loop.primary().LastSeen(view.session));
  }
  out->table_bytes += loop.state().memory_bytes();
  out->kept_rollouts += loop.state().kept_rollouts();
  out->kept_bytes += loop.state().kept_bytes();
  out->logs.push_back({absl::StrCat("shard-", loop.state().shard().value), loop.log_queue()});
}

void CountActors(ServiceContext* context, const LastSeen& last_seen, Observation* out) {
  const uint64_t now_ms = node::Engine::NowMs();
  const uint64_t silent_ms = context->config->Get().clients_silent_ms;
  out->sessions = last_seen.size();
  for (const auto& [session, heard_ms] : last_seen) {
    uint64_t seen = heard_ms;
    const auto client = context->clients->Find(ClientTable::SessionKey(SessionId(session)));
    if (client) seen = std::max(seen, client->last_seen_ms);
    if (seen == 0 || now_ms - std::min(now_ms, seen) > silent_ms) continue;
    ++out->actors_live;
    if (client && client->usage) Add(*client->usage, &out->actor_usage);
  }
}

void LookAtSteps(node::LedgerLoop& loop, uint64_t now_ms, Observation* out) {
  bool committed = false;
  for (const auto* step : loop.state().StepsNewestFirst()) {
    if (step->state == ledger::StepState::kCommitted && !committed) {
      committed = true;
      out->last_reward_mean = step->reward_mean;
      out->last_step_waited_ms = loop.primary().WaitedMs(step->step, now_ms);
    }
    if (!step->live()) continue;
    const bool open = step->state == ledger::StepState::kOpen;
    out->steps.push_back(
        {.step = step->step.value,
         .state = NameOf(step->state),
         .waiting = loop.primary().Waiting(step->step, now_ms),
         .waited_ms = loop.primary().WaitedMs(step->step, now_ms),
         .groups = step->totals.groups,
         .groups_wanted = step->spec.groups,
         .too_large = loop.primary().TooLarge(*step),
         .lacks_groups = open && (step->GroupsLacking() > 0 || step->TokensLacking() > 0)});
  }
  std::ranges::reverse(out->steps);
}

void LookAtDrift(const ledger::State& state, DriftFacts* out) {
  out->table = state.drift().reports.Sum();
  out->outliers = drift::FindOutliers(out->table);
  out->reports = state.drift().reports.reports();
  out->repeated = state.drift().reports.repeated();
  if (const auto& hold = state.drift().hold) {
    out->hold = absl::StrCat(
        "no step is sealed since step ", hold->step.value, ": the mean k3 of its tokens was ",
        absl::SixDigits(hold->k3), ", over drift.hold_k3 (", absl::SixDigits(hold->limit),
        "); go back with buffer-ctl rewind, or go on with buffer-ctl kl --lift");
  }
}

void LookAtAbsent(const ledger::State& state, AbsentShard* out) {
  out->planned_without = state.absent(out->shard);
  for (const ledger::Step* step : state.StepsNewestFirst()) {
    if (!step->live() || step->state == ledger::StepState::kOpen) continue;
    out->planned_rollouts += std::ranges::count_if(
        step->rollouts, [out](const auto& held) { return held.rollout.shard() == out->shard; });
  }
}

void LookAtLedger(node::LedgerLoop& loop, uint64_t now_ms, Observation* out) {
  const auto& state = loop.state();
  LookAtSteps(loop, now_ms, out);
  out->logs.push_back({"ledger", loop.log_queue()});
  out->next_step = state.next_step().value;
  out->checkpoint = state.checkpoint().step.value;
  out->oldest_replay = state.oldest_replay().value;
  out->retained_bytes = state.retained_bytes();
  out->retained_steps = state.retained_steps();
  out->train_version = state.committed_version();
  out->unpublished = loop.primary().Unpublished();
  out->published = state.published().version;
  out->has_pending = state.pending().has_value();
  if (out->has_pending) out->pending = state.pending()->version;
  out->generation = state.generation().value;
  out->trainers = state.places().size();
  for (const auto& [name, adoption] : state.adoptions()) {
    out->engines.push_back({name, adoption.version, VersionsBehind(state, adoption.version),
                            adoption.pending_to_loaded_ms, adoption.pause_ms});
  }
  out->ledger = state.counters();
  LookAtDrift(state, &out->drift);
  for (AbsentShard& absent : out->absent) LookAtAbsent(state, &absent);
}

}  // namespace

void SourceFacts::Add(const shard::SourceView& view) {
  SourceFacts part;
  part.eval = view.settings->purpose == codec::Purpose::kEval;
  part.paused = view.settings->paused;
  part.attempts_per_task = view.settings->attempts_per_task;
  part.tasks = view.tasks;
  part.quarantined = view.quarantined;
  part.epoch = view.epoch;
  part.groups_open = view.groups_open;
  part.groups_ready = view.groups_ready;
  part.groups_reserved = view.groups_reserved;
  part.ready_tokens = view.ready_tokens;
  part.in_flight = view.in_flight;
  part.outstanding = view.outstanding;
  part.outstanding_max = view.outstanding_max;
  part.survival = view.survival;
  part.mean_tokens = view.mean_tokens;
  part.mean_duration_ms = view.mean_duration_ms;
  part.counters = *view.counters;
  if (name.empty()) {  // the first shard's
    eval = part.eval;
    paused = part.paused;
    name = view.settings->name;
  }
  Merge(part);
}

void SourceFacts::Merge(const SourceFacts& other) {
  eval = eval && other.eval;
  paused = paused && other.paused;
  attempts_per_task = std::max(attempts_per_task, other.attempts_per_task);
  tasks += other.tasks;
  quarantined += other.quarantined;
  epoch = std::max(epoch, other.epoch);
  groups_open += other.groups_open;
  groups_ready += other.groups_ready;
  groups_reserved += other.groups_reserved;
  ready_tokens += other.ready_tokens;
  in_flight += other.in_flight;
  outstanding += other.outstanding;
  outstanding_max += other.outstanding_max;
  const auto before = static_cast<double>(counters.accepted);
  const auto now = static_cast<double>(other.counters.accepted);
  const double share = before + now > 0 ? now / (before + now) : 1;
  const auto mix = [share](double* mean, double value) { *mean += share * (value - *mean); };
  mix(&survival, other.survival);
  mix(&mean_tokens, other.mean_tokens);
  mix(&mean_duration_ms, other.mean_duration_ms);
  server::Add(other.counters, &counters);
  const auto ratio = [](double sum, uint64_t count) {
    return count == 0 ? 0 : sum / static_cast<double>(count);
  };
  mean_reward = ratio(counters.reward_sum, counters.rewarded);
  mean_tokens_dispatched = ratio(static_cast<double>(counters.tokens_accepted), counters.accepted);
  mean_tokens_trained = ratio(static_cast<double>(counters.tokens_trained), counters.trained);
}

std::string ReasonOf(const SourceFacts& source, const std::string& idle_reason) {
  if (source.paused) return "paused";
  if (source.tasks == source.quarantined) return "no_tasks";
  if (idle_reason == "memory" || idle_reason == "draining") return idle_reason;
  const bool full = source.outstanding + source.attempts_per_task > source.outstanding_max;
  return !source.eval && full ? "admission" : "";
}

const char* NameOf(ledger::StepState state) {
  switch (state) {
    case ledger::StepState::kOpen:
      return "open";
    case ledger::StepState::kReserved:
      return "reserved";
    case ledger::StepState::kSealed:
      return "sealed";
    case ledger::StepState::kCommitted:
      return "committed";
    case ledger::StepState::kAborted:
      return "aborted";
  }
  return "";
}

uint32_t VersionsBehind(const ledger::State& state, PolicyVersion version) {
  uint32_t behind = 0;
  for (const auto& announcement : state.announcements()) {
    if (announcement.phase == ledger::VersionPhase::kPublished && version < announcement.version) {
      ++behind;
    }
  }
  return behind;
}

ProcessFacts ReadProcess() {
  ProcessFacts facts;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  facts.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  uint64_t pages = 0, resident = 0;
  if (std::ifstream statm("/proc/self/statm"); statm >> pages >> resident) {
    facts.resident_bytes = resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Threads:", 0) == 0) std::istringstream(line.substr(8)) >> facts.threads;
  }
  if (DIR* folder = opendir("/proc/self/fd"); folder != nullptr) {
    while (const dirent* entry = readdir(folder)) facts.open_files += entry->d_name[0] != '.';
    closedir(folder);
  }
  return facts;
}

void Observe(ServiceContext* context, std::function<void(std::shared_ptr<Observation>)> done) {
  auto out = std::make_shared<Observation>();
  out->draining = context->draining;
  out->shards = context->engine->shards();
  for (uint32_t i = 0; i < out->shards; ++i) {
    const ShardId shard(static_cast<uint8_t>(i));
    const absl::Status& presence = context->engine->Presence(shard);
    if (!presence.ok()) out->absent.push_back({shard, std::string(presence.message())});
  }
  out->payloads = context->payloads->use();
  if (const auto* segments = context->storage->segments()) {
    out->storage = {.durable = true,
                    .use = segments->store_use(),
                    .trouble = segments->trouble(),
                    .snapshots = context->storage->snapshots()};
    const uint64_t now_ms = node::Engine::NowMs(), since_ms = out->storage.trouble.since_ms;
    if (!out->storage.trouble.kind.empty() && now_ms > since_ms) {
      out->storage.trouble_ms = now_ms - since_ms;
    }
  }
  out->retained_bytes_max = context->storage->RetentionBytesMax();
  out->kept_bytes_max = context->storage->KeptBytesMax();
  out->pushes_held = context->engine->pushes_held();
  out->contents = context->contents->use();
  out->process = ReadProcess();
  if (context->cluster) out->cluster = context->cluster();
  out->uptime_ms = node::Engine::NowMs() - context->started_ms;
  auto last_seen = std::make_shared<LastSeen>();
  ForEachShard(
      context->engine,
      [context, last_seen, out](node::ShardLoop& loop, uint64_t) {
        if (!context->engine->Presence(loop.state().shard()).ok()) return;
        LookAtShard(loop, last_seen.get(), out.get());
      },
      [context, last_seen, out, done = std::move(done)] {
        CountActors(context, *last_seen, out.get());
        context->engine->OnLedger([out, done](node::LedgerLoop& loop, uint64_t now_ms) {
          LookAtLedger(loop, now_ms, out.get());
          done(out);
        });
      });
}

}  // namespace forebay::server
