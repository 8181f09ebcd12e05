#include "server/verdict.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/units.h"

namespace forebay::server {
namespace {

std::string Seconds(uint64_t ms) { return absl::StrCat(ms / 1000, " s"); }

void AddStorage(const Observation& seen, std::vector<std::string>* reasons) {
  const storage::StoreTrouble& trouble = seen.storage.trouble;
  if (trouble.kind.empty()) return;
  std::string reason = absl::StrCat("the store of rollouts is ", trouble.kind, " since ",
                                    Seconds(seen.storage.trouble_ms), ": ", trouble.what);
  if (!trouble.path.empty()) absl::StrAppend(&reason, " (", trouble.path, ")");
  if (trouble.waiting_bytes > 0) {
    absl::StrAppend(&reason, "; ", BytesText(trouble.waiting_bytes), " wait to be written");
  }
  reasons->push_back(std::move(reason));
}

// That of a daemon alone comes back with a start.
void AddAbsent(const Observation& seen, std::vector<std::string>* reasons) {
  for (const AbsentShard& absent : seen.absent) {
    std::string reason = absl::StrCat(
        absent.why, "; steps ", absent.planned_without ? "are" : "will soon be",
        " planned without it, its tasks (about 1 in ", seen.shards, ") are not handed out, ");
    if (absent.planned_rollouts > 0) {
      absl::StrAppend(&reason, absent.planned_rollouts,
                      " rollouts of it in plans are served from the store, ");
    }
    absl::StrAppend(
        &reason, "and no file of the store is removed meanwhile: ",
        seen.cluster.node == 0
            ? "bring its folder in storage.directory back from a copy, as it was last, and start "
              "the daemon again"
            : "it is taken back when nodes that hold it whole are up (buffer-ctl shards)");
    reasons->push_back(std::move(reason));
  }
}

void AddLogs(const Observation& seen, std::vector<std::string>* reasons) {
  for (const LogFacts& log : seen.logs) {
    if (!log.queue.full()) continue;
    reasons->push_back(absl::StrCat("the log of ", log.machine,
                                    " is full: ", BytesText(log.queue.bytes),
                                    " wait for the disk, at most ", BytesText(log.queue.bytes_max),
                                    " (storage.log_pending_bytes_max)"));
  }
}

void AddMemory(const Observation& seen, std::vector<std::string>* reasons) {
  const auto& budget = seen.payloads.budget;
  if (budget.waiters == 0) return;
  reasons->push_back(absl::StrCat("payload memory is full: ", BytesText(budget.used_bytes), " of ",
                                  BytesText(budget.bytes_max), " used, ", budget.waiters,
                                  " pushes wait (memory.payload_bytes_max)"));
}

// Nothing goes on by itself: memory is spent, and the step that would free it needs more than there
// is.
bool Hopeless(const Observation& seen, const StepFacts& step) {
  return step.too_large && seen.payloads.budget.waiters > 0;
}

void AddSteps(const Observation& seen, const VerdictLimits& limits,
              std::vector<std::string>* reasons) {
  for (const StepFacts& step : seen.steps) {
    if (step.waiting.empty()) continue;
    if (step.waited_ms < limits.trainer_wait_ms && !Hopeless(seen, step)) continue;
    reasons->push_back(absl::StrCat("step ", step.step, " has waited ", Seconds(step.waited_ms),
                                    ": ", step.waiting));
    return;  // the later ones wait for the same
  }
}

// Somebody should fetch work, and nobody does.
void AddActors(const Observation& seen, const VerdictLimits& limits,
               std::vector<std::string>* reasons) {
  if (seen.actors_live > 0 || seen.acquires_waiting > 0) return;
  bool wanted = false;
  for (const StepFacts& step : seen.steps) wanted |= step.lacks_groups;
  uint64_t tasks = 0;
  for (const SourceFacts& source : seen.sources) {
    if (!source.eval && !source.paused) tasks += source.tasks - source.quarantined;
  }
  if (!wanted || tasks == 0) return;
  reasons->push_back(
      absl::StrCat("a step lacks groups and there are tasks, but no actor was heard for ",
                   Seconds(limits.silent_ms)));
}

void AddTasks(const Observation& seen, std::vector<std::string>* reasons) {
  for (const SourceFacts& source : seen.sources) {
    if (source.quarantined == 0) continue;
    reasons->push_back(absl::StrCat(source.quarantined, " of ", source.tasks, " tasks of source '",
                                    source.name, "' are quarantined"));
  }
}

void AddEngines(const Observation& seen, const VerdictLimits& limits,
                std::vector<std::string>* reasons) {
  uint64_t behind = 0;
  const EngineFacts* worst = nullptr;
  for (const EngineFacts& engine : seen.engines) {
    if (engine.behind < limits.engine_behind) continue;
    ++behind;
    if (worst == nullptr || engine.behind > worst->behind) worst = &engine;
  }
  if (behind == 0) return;
  reasons->push_back(absl::StrCat(behind, behind == 1 ? " engine is" : " engines are", " behind; '",
                                  worst->name, "' by ", worst->behind, " published versions"));
}

void AddDrift(const Observation& seen, std::vector<std::string>* reasons) {
  if (!seen.drift.hold.empty()) reasons->push_back(seen.drift.hold);
  if (seen.drift.outliers.empty()) return;
  const drift::Outlier& worst = seen.drift.outliers.front();
  const size_t count = seen.drift.outliers.size();
  const std::string name =
      worst.engine.empty() ? "without a name" : absl::StrCat("'", worst.engine, "'");
  const char* const what =
      worst.unusable ? "share of tokens without a usable log-probability" : "mean k3";
  reasons->push_back(absl::StrCat(count, count == 1 ? " engine is" : " engines are",
                                  " further from the trainer than the others; ", name, " has a ",
                                  what, " of ", absl::SixDigits(worst.value), " at lag ",
                                  drift::LagClassName(worst.lag_class), ", the median is ",
                                  absl::SixDigits(worst.median), " (buffer-ctl kl)"));
}

std::vector<std::string> Waits(const Observation& seen) {
  std::vector<std::string> waits;
  for (const StepFacts& step : seen.steps) {
    if (step.waiting.empty()) continue;
    waits.push_back(absl::StrCat("OpenStep ", step.step, ": ", step.waiting, ", for ",
                                 Seconds(step.waited_ms)));
  }
  if (seen.acquires_waiting > 0) {
    std::string why = seen.idle_reason.empty() ? "nothing for them" : seen.idle_reason;
    if (why == "admission" && !seen.unpublished.empty()) {
      absl::StrAppend(&why, " (max_lag: ", seen.unpublished, ")");
    }
    waits.push_back(absl::StrCat(seen.acquires_waiting, " actors in Acquire: ", why));
  }
  if (seen.payloads.budget.waiters > 0) {
    waits.push_back(absl::StrCat(seen.payloads.budget.waiters, " pushes: memory"));
  }
  if (seen.pushes_held > 0) waits.push_back(absl::StrCat(seen.pushes_held, " pushes: log"));
  return waits;
}

}  // namespace

VerdictLimits LimitsOf(const node::Config& config) {
  return {.trainer_wait_ms = config.status_trainer_wait_ms,
          .engine_behind = config.status_engine_behind,
          .silent_ms = config.clients_silent_ms};
}

std::vector<std::string> StorageWaits(const Observation& seen) {
  std::vector<std::string> waits;
  AddStorage(seen, &waits);
  AddLogs(seen, &waits);
  AddMemory(seen, &waits);
  const auto& budget = seen.payloads.budget;
  if (budget.read_waiters > 0) {
    waits.push_back(absl::StrCat(budget.read_waiters, " reads of payloads wait for ",
                                 BytesText(budget.read_waiting_bytes), " of memory"));
  }
  if (seen.pushes_held > 0) {
    waits.push_back(absl::StrCat(seen.pushes_held, " pushes wait for a log"));
  }
  if (!seen.absent.empty() && seen.storage.durable) {
    waits.push_back(absl::StrCat(seen.storage.use.segments_dead,
                                 " files in which nothing is alive stay until no shard is absent"));
  }
  return waits;
}

Judgement Judge(const Observation& seen, const VerdictLimits& limits) {
  Judgement out;
  if (seen.draining) out.reasons.push_back("the daemon is draining: it hands out nothing more");
  AddAbsent(seen, &out.reasons);
  AddStorage(seen, &out.reasons);
  AddLogs(seen, &out.reasons);
  ClusterFacts cluster = seen.cluster;
  // Said above: the others go on.
  if (!seen.absent.empty() && cluster.tolerated < 0) cluster.tolerated = cluster.tolerable;
  AddClusterReasons(cluster, &out.reasons);
  AddMemory(seen, &out.reasons);
  AddSteps(seen, limits, &out.reasons);
  AddActors(seen, limits, &out.reasons);
  AddTasks(seen, &out.reasons);
  AddEngines(seen, limits, &out.reasons);
  AddDrift(seen, &out.reasons);
  out.waits = Waits(seen);
  const bool hopeless = std::ranges::any_of(
      seen.steps, [&seen](const StepFacts& step) { return Hopeless(seen, step); });
  if (seen.draining || hopeless) {
    out.verdict = VerdictKind::kUnavailable;
  } else if (!out.reasons.empty()) {
    out.verdict = VerdictKind::kDegraded;
  }
  return out;
}

}  // namespace forebay::server
