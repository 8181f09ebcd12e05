// Evaluation runs.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "shard/limits.h"
#include "shard/machine.h"
#include "shard/reply.h"

namespace forebay::shard {
namespace {

// A reward from here on is a pass.
constexpr double kPassReward = 0.5;

absl::Status CheckStartEval(const StartEval& c, const curriculum::Source* source,
                            const codec::VersionState& versions) {
  if (c.run == EvalRunId()) return absl::InvalidArgumentError("eval_run: 0; choose another id");
  if (source == nullptr) {
    return absl::NotFoundError(absl::StrCat("source: ", c.source.value, " is not known"));
  }
  if (source->settings().purpose != codec::Purpose::kEval) {
    return absl::InvalidArgumentError(
        absl::StrCat("source: \"", source->settings().name, "\" is not for evaluation"));
  }
  if (c.version.branch != versions.published.branch ||
      c.version.number > versions.published.number) {
    return absl::InvalidArgumentError(absl::StrCat(
        "version: ", c.version.branch, ".", c.version.number, " is not published; the newest is ",
        versions.published.branch, ".", versions.published.number));
  }
  if (c.attempts < 1 || c.attempts > rollout::kAttemptsPerGroupMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("attempts: ", c.attempts, "; 1 to ", rollout::kAttemptsPerGroupMax));
  }
  if (!(c.share > 0 && c.share <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("share: ", c.share, "; above 0, at most 1"));
  }
  return absl::OkStatus();
}

}  // namespace

double PassAt(uint32_t n, uint32_t c, uint32_t k) {
  if (n - c < k) return 1;
  double all_fail = 1;
  for (uint32_t i = n - c + 1; i <= n; ++i) all_fail *= 1 - static_cast<double>(k) / i;
  return 1 - all_fail;
}

void AddTaskResult(const std::vector<double>& rewards, EvalRun* run) {
  ++run->tasks_done;
  if (rewards.empty()) return;  // all attempts were given up: no task solved
  double sum = 0;
  uint32_t passes = 0;
  for (double reward : rewards) {
    sum += reward;
    passes += reward >= kPassReward;
  }
  const double mean = sum / static_cast<double>(rewards.size());
  run->mean_sum += mean;
  run->mean_square_sum += mean * mean;
  const uint32_t n = static_cast<uint32_t>(rewards.size());
  for (size_t i = 0; i < run->pass_sums.size(); ++i) {
    // With attempts given up, the largest k that there are attempts for.
    run->pass_sums[i] += PassAt(n, passes, std::min(1u << i, n));
  }
}

absl::Status Machine::CheckEval(const StartEval& c) const {
  absl::Status status = CheckStartEval(c, curriculum_.source(c.source), versions_);
  if (!status.ok() || FindEval(c.run) != kNone || evals_.size() < kEvalRunsMax) return status;
  for (const EvalRun& run : evals_) {
    if (run.done) return status;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("eval_run: ", kEvalRunsMax, " runs are not done yet"));
}

uint32_t Machine::FindEval(EvalRunId run) const {
  for (uint32_t i = 0; i < evals_.size(); ++i) {
    if (evals_[i].run == run) return i;
  }
  return kNone;
}

void Machine::Run(const StartEval& c, Tag tag, Effects* effects) {
  CountReply reply;
  reply.status = CheckEval(c);
  if (!reply.status.ok() || FindEval(c.run) != kNone)
    return AddReply(std::move(reply), tag, effects);
  EvalRun run;
  run.run = c.run;
  run.source = c.source;
  run.version = c.version;
  run.attempts = c.attempts;
  run.share = std::max<uint64_t>(1, static_cast<uint64_t>(c.share * EvalRun::kSlot));
  run.order = ++sequence_;
  run.end_task = curriculum_.source(c.source)->tasks().size();
  run.tasks = run.end_task;
  for (uint32_t k = 1; k <= c.attempts; k *= 2) run.pass_sums.push_back(0);
  EndEvalIfDone(&run);
  if (evals_.size() < kEvalRunsMax) {
    evals_.push_back(std::move(run));
  } else {
    EvalRun* oldest = nullptr;
    for (EvalRun& old : evals_) {
      if (old.done && (oldest == nullptr || old.order < oldest->order)) oldest = &old;
    }
    *oldest = std::move(run);
  }
  reply.count = 1;
  AddReply(std::move(reply), tag, effects);
}

}  // namespace forebay::shard
