#include "bench/replay/command.h"

#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "bench/replay/run.h"

ABSL_FLAG(std::string, policy, "survival", "replay: plain or survival, of admission");
ABSL_FLAG(uint32_t, replay_rollouts, 256, "replay: of a step");
ABSL_FLAG(uint32_t, replay_max_lag, 1, "replay: of the source");
ABSL_FLAG(uint64_t, replay_steps, 60, "replay: to run");
ABSL_FLAG(uint64_t, replay_warm_up, 10, "replay: steps that the means leave out");
ABSL_FLAG(double, replay_growth, 1, "replay: factor by which the mean length grows ...");
ABSL_FLAG(uint32_t, replay_growth_steps, 50, "replay: ... over so many steps");
ABSL_FLAG(bool, replay_filter, false, "replay: leave out groups whose rewards are all equal");
ABSL_FLAG(uint64_t, replay_seed, 1, "replay: of lengths and rewards");
ABSL_FLAG(double, replay_tokens_per_s, forebay::bench::Workload().tokens_per_s,
          "replay: of an attempt that is alone on its engine");
ABSL_FLAG(double, replay_half_at, forebay::bench::Workload().half_at,
          "replay: attempts on an engine that halve the speed of each");

namespace forebay::bench {
namespace {

Workload FromFlags() {
  Workload workload;
  workload.rollouts = absl::GetFlag(FLAGS_replay_rollouts);
  workload.max_lag = absl::GetFlag(FLAGS_replay_max_lag);
  workload.growth = absl::GetFlag(FLAGS_replay_growth);
  workload.growth_steps = absl::GetFlag(FLAGS_replay_growth_steps);
  workload.filter = absl::GetFlag(FLAGS_replay_filter);
  workload.seed = absl::GetFlag(FLAGS_replay_seed);
  workload.tokens_per_s = absl::GetFlag(FLAGS_replay_tokens_per_s);
  workload.half_at = absl::GetFlag(FLAGS_replay_half_at);
  return workload;
}

std::string ToJson(const Workload& workload, Policy policy, const RunResult& result) {
  const double kept = 1 - result.filtered - result.discarded;
  std::string rows, reasons;
  for (const auto& [reason, rollouts] : result.not_trained) {
    absl::StrAppend(&reasons, reasons.empty() ? "" : ", ", "\"", reason, "\": ", rollouts);
  }
  for (const StepRow& row : result.rows) {
    absl::StrAppend(&rows, rows.empty() ? "" : ", ", "{\"step\": ", row.step,
                    ", \"begin_s\": ", row.begin_s, ", \"waiting_s\": ", row.waiting_s,
                    ", \"training_s\": ", row.training_s, ", \"sync_s\": ", row.sync_s,
                    ", \"mean_tokens\": ", row.mean_tokens, ", \"mean_lag\": ", row.mean_lag,
                    ", \"engines_idle\": ", row.engines_idle, ", \"in_flight\": ", row.in_flight,
                    ", \"came_in\": ", row.came_in, ", \"filtered\": ", row.filtered,
                    ", \"discarded\": ", row.discarded, "}");
  }
  return absl::StrCat("{\"policy\": \"", Name(policy), "\", \"rollouts\": ", workload.rollouts,
                      ", \"max_lag\": ", workload.max_lag, ", \"growth\": ", workload.growth,
                      ", \"filter\": ", workload.filter ? "true" : "false",
                      ", \"waiting_share\": ", result.waiting_share,
                      ", \"waiting_bound\": ", WaitingBound(workload, kept),
                      ", \"step_s\": ", result.step_s, ", \"engines_idle\": ", result.engines_idle,
                      ", \"mean_lag\": ", result.mean_lag, ", \"filtered\": ", result.filtered,
                      ", \"discarded\": ", result.discarded, ", \"survival\": ", result.survival,
                      ", \"mean_tokens_dispatched\": ", result.mean_tokens_dispatched,
                      ", \"mean_tokens_trained\": ", result.mean_tokens_trained,
                      ", \"not_trained\": {", reasons, "}, \"steps\": [", rows, "]}");
}

}  // namespace

absl::Status RunReplay() {
  const std::string name = absl::GetFlag(FLAGS_policy);
  for (const Policy policy : {Policy::kPlain, Policy::kSurvival}) {
    if (name != Name(policy)) continue;
    const Workload workload = FromFlags();
    const auto result = Replay(workload, policy, absl::GetFlag(FLAGS_replay_steps),
                               absl::GetFlag(FLAGS_replay_warm_up));
    if (!result.ok()) return result.status();
    std::puts(ToJson(workload, policy, *result).c_str());
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--policy: \"", name, "\" is none of plain, survival"));
}

}  // namespace forebay::bench
