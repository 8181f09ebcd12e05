#include "node/memory_relief.h"

#include <algorithm>
#include <functional>

#include "codec/source_settings.h"
#include "shard/state.h"

namespace forebay::node {

void ReliefLook::AtLedger(const ledger::State& state, const ledger::Primary& primary) {
  const ledger::Step* step = primary.Hungry();
  step_lacks_groups = step != nullptr;
  if (step == nullptr) return;
  too_large = primary.TooLarge(*step);
  lacking = primary.GroupsLacking(*step);
  for (const ledger::Source& source : state.sources()) {
    if (primary.Eligible(*step, source.id)) wanted.push_back(source.id);
  }
}

void ReliefLook::AtShard(const shard::State& state, const shard::Primary& primary) {
  const auto is_wanted = [this](SourceId source) {
    return std::ranges::binary_search(wanted, source);
  };
  FilledShard filled{.shard = state.shard()};
  for (const auto& source : state.Sources()) {
    moved += source.counters->accepted + source.counters->groups_dropped;
    filled.open += source.groups_open;
    if (is_wanted(source.source)) {
      ready += source.groups_ready;
      in_flight += source.in_flight;
      open += source.groups_open;
    } else if (source.settings->purpose == codec::Purpose::kTrain) {
      filled.others += source.groups_open + source.groups_ready;
    }
  }
  shards.push_back(filled);
  starved += primary.waiters() > 0 && primary.ShortOfMemory(wanted);
  for (WaitingPush& push : waiting) {
    if (push.attempt == AttemptId() || push.attempt.shard() != state.shard()) continue;
    const auto task = state.TaskOf(push.attempt);
    const auto order = state.OpenOrderOf(push.attempt);
    push.settled = !order;
    if (order && is_wanted(task->source())) push.order = order;
  }
}

ReliefFacts FactsOf(const ReliefLook& look) {
  ReliefFacts facts{.waiters = look.waiting.size(),
                    .step_lacks_groups = look.step_lacks_groups,
                    .groups_ready = look.ready,
                    .progress = look.used_bytes + look.moved};
  // What is being generated will be pushed, and then it is seen whether that waits; unless it
  // cannot fill the step, and there is something else to drop: one slow attempt must not hold up
  // all others.
  const bool others =
      std::ranges::any_of(look.shards, [](const FilledShard& shard) { return shard.others > 0; });
  if (look.in_flight == 0 || (others && look.open < look.lacking)) facts.waiters += look.starved;
  return facts;
}

bool ReliefClock::Stuck(uint64_t now_ms, uint64_t after_ms, const ReliefFacts& facts) {
  const bool still = facts.waiters > 0 && facts.step_lacks_groups && facts.groups_ready == 0 &&
                     facts.progress == progress_;
  progress_ = facts.progress;
  if (!still) {
    since_ms_.reset();
    return false;
  }
  if (!since_ms_) since_ms_ = now_ms;
  if (now_ms - *since_ms_ < after_ms) return false;
  since_ms_.reset();
  return true;
}

ReliefPlan PlanRelief(const ReliefLook& look) {
  // Groups of a step that does not fit would only be followed by others: their pushes wait until
  // there is more memory or the step is opened anew, and nothing is lost.
  ReliefPlan plan;
  plan.admit = ChooseWaiters(look.waiting, &plan.completing);
  plan.drops = ChooseDrops(look.shards, !look.waiting.empty() && !look.too_large);
  return plan;
}

std::vector<uint64_t> ChooseWaiters(const std::vector<WaitingPush>& waiting, size_t* completing) {
  std::optional<uint64_t> oldest;
  for (const auto& push : waiting) {
    if (push.order && (!oldest || *push.order < *oldest)) oldest = push.order;
  }
  std::vector<uint64_t> chosen;
  for (const auto& push : waiting) {
    if (push.order && push.order == oldest) chosen.push_back(push.id);
  }
  if (completing != nullptr) *completing = chosen.size();
  // Their actors wait as well, and could do something of use.
  for (const auto& push : waiting) {
    if (push.settled) chosen.push_back(push.id);
  }
  return chosen;
}

std::vector<DropTarget> ChooseDrops(std::vector<FilledShard> shards, bool own_too) {
  std::vector<DropTarget> targets;
  std::ranges::stable_sort(shards, std::ranges::greater(), &FilledShard::others);
  for (const FilledShard& shard : shards) {
    if (shard.others > 0) targets.push_back({.shard = shard.shard, .only_others = true});
  }
  std::ranges::stable_sort(shards, std::ranges::greater(), &FilledShard::open);
  for (const FilledShard& shard : shards) {
    if (own_too && shard.open > 0) targets.push_back({.shard = shard.shard, .only_others = false});
  }
  return targets;
}

}  // namespace forebay::node
