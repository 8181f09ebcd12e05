#include "server/eval_results.h"

#include <algorithm>
#include <cmath>

#include "server/policy_messages.h"

namespace forebay::server {

void EvalSum::Add(const shard::EvalView& part) {
  if (shards++ == 0) {
    view = part;
    return;
  }
  view.done = view.done && part.done;
  view.tasks += part.tasks;
  view.tasks_done += part.tasks_done;
  view.rollouts += part.rollouts;
  view.failed += part.failed;
  view.mean_sum += part.mean_sum;
  view.mean_square_sum += part.mean_square_sum;
  view.tokens_sum += part.tokens_sum;
  const size_t common = std::min(view.pass_sums.size(), part.pass_sums.size());
  for (size_t i = 0; i < common; ++i) view.pass_sums[i] += part.pass_sums[i];
}

void EvalSums::Add(const shard::EvalView& part) {
  const auto found =
      std::ranges::find_if(sums_, [&](const EvalSum& sum) { return sum.view.run == part.run; });
  (found == sums_.end() ? sums_.emplace_back() : *found).Add(part);
}

const EvalSum* EvalSums::Find(EvalRunId run) const {
  const auto found =
      std::ranges::find_if(sums_, [&](const EvalSum& sum) { return sum.view.run == run; });
  return found == sums_.end() ? nullptr : &*found;
}

void ToWire(const EvalSum& sum, uint32_t shards, v1::EvalResult* out) {
  const auto& view = sum.view;
  out->set_eval_run(view.run.value);
  ToWire(view.version, out->mutable_version());
  out->set_attempts(view.attempts);
  out->set_done(view.done && sum.shards == shards);
  out->set_tasks(view.tasks);
  out->set_rollouts(view.rollouts);
  out->set_failed(view.failed);
  if (view.rollouts > 0) {
    out->set_mean_tokens(static_cast<double>(view.tokens_sum) / static_cast<double>(view.rollouts));
  }
  if (view.tasks_done == 0) return;
  const auto n = static_cast<double>(view.tasks_done);
  const double mean = view.mean_sum / n;
  out->set_mean_reward(mean);
  if (view.tasks_done > 1) {
    const double variance = std::max(0.0, (view.mean_square_sum / n - mean * mean) * n / (n - 1));
    out->set_standard_error(std::sqrt(variance / n));
  }
  for (const double passes : view.pass_sums) out->add_pass_at(passes / n);
}

}  // namespace forebay::server
