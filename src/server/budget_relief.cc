#include "server/budget_relief.h"

#include <algorithm>
#include <utility>

#include "server/admin.h"
#include "server/log.h"

namespace forebay::server {

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

std::vector<storage::WaiterId> ChooseWaiters(const std::vector<WaitingPush>& waiting) {
  std::optional<uint64_t> oldest;
  for (const auto& push : waiting) {
    if (push.order && (!oldest || *push.order < *oldest)) oldest = push.order;
  }
  std::vector<storage::WaiterId> chosen;
  for (const auto& push : waiting) {
    if (push.order && push.order == oldest) chosen.push_back(push.id);
  }
  // Their actors wait as well, and could do something of use.
  for (const auto& push : waiting) {
    if (push.settled) chosen.push_back(push.id);
  }
  return chosen;
}

struct BudgetRelief::Look {
  uint64_t now_ms = 0;
  // The train sources that the oldest step that lacks groups takes from; by id.
  std::vector<SourceId> wanted;
  std::vector<storage::BudgetWaiter> waiters;
  std::vector<WaitingPush> waiting;  // parallel to `waiters`
  bool too_large = false;            // the step
  uint64_t lacking = 0;              // groups that it waits for
  uint64_t starved = 0;              // shards whose actors wait for memory
  uint64_t in_flight = 0;            // attempts of the wanted sources
  uint64_t open = 0;                 // incomplete groups of theirs
  ReliefFacts facts;
  std::vector<FilledShard> shards;
};

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

void BudgetRelief::Tick(uint64_t now_ms) {
  auto& budget = context_->payloads->budget();
  const auto use = budget.use();
  // With half of the memory free nobody waits for memory; a cache of the disk is always full.
  const bool cache = context_->storage->segments() != nullptr;
  if (use.waiters == 0 && (cache || use.used_bytes < use.bytes_max / 2)) return;
  if (busy_.exchange(true)) return;
  auto look = std::make_shared<Look>();
  look->now_ms = now_ms;
  look->waiters = budget.Waiters();
  look->facts.waiters = look->waiters.size();
  for (const auto& waiter : look->waiters) look->waiting.push_back({waiter.id, std::nullopt});
  look->facts.progress = use.used_bytes + use.waiting_bytes;
  context_->engine->OnLedger([this, look](node::LedgerLoop& loop, uint64_t) {
    const ledger::Step* step = loop.primary().Hungry();
    look->facts.step_lacks_groups = step != nullptr;
    look->too_large = step != nullptr && loop.primary().TooLarge(*step);
    look->lacking = step != nullptr ? loop.primary().GroupsLacking(*step) : 0;
    for (const ledger::Source& source : loop.state().sources()) {
      if (step == nullptr || source.settings.purpose != codec::Purpose::kTrain) continue;
      if (loop.primary().Eligible(*step, source.id)) look->wanted.push_back(source.id);
    }
    ForEachShard(
        context_->engine,
        [look](node::ShardLoop& shard, uint64_t) { LookAtShard(shard, look.get()); },
        [this, look] {
          context_->engine->OnLedger([this, look](node::LedgerLoop&, uint64_t) {
            look->facts.waiters += StarvedShards(*look);
            Decide(*look);
            busy_ = false;
          });
        });
  });
}

// What is being generated will be pushed, and then it is seen whether that waits; unless it cannot
// fill the step, and there is something else to drop: one slow attempt must not hold up all others.
uint64_t BudgetRelief::StarvedShards(const Look& look) {
  if (look.in_flight == 0) return look.starved;
  const bool others =
      std::ranges::any_of(look.shards, [](const FilledShard& shard) { return shard.others > 0; });
  return others && look.open < look.lacking ? look.starved : 0;
}

void BudgetRelief::LookAtShard(node::ShardLoop& loop, Look* look) {
  const auto wanted = [look](SourceId source) {
    return std::ranges::binary_search(look->wanted, source);
  };
  FilledShard filled{.shard = loop.state().shard()};
  for (const auto& source : loop.state().Sources()) {
    look->facts.progress += source.counters->accepted + source.counters->groups_dropped;
    filled.open += source.groups_open;
    if (wanted(source.source)) {
      look->facts.groups_ready += source.groups_ready;
      look->in_flight += source.in_flight;
      look->open += source.groups_open;
    } else if (source.settings->purpose == codec::Purpose::kTrain) {
      filled.others += source.groups_open + source.groups_ready;
    }
  }
  look->shards.push_back(filled);
  look->starved += loop.primary().waiters() > 0 && loop.primary().ShortOfMemory(look->wanted);
  for (size_t i = 0; i < look->waiters.size(); ++i) {
    const AttemptId attempt(look->waiters[i].tag);
    if (attempt == AttemptId() || attempt.shard() != loop.state().shard()) continue;
    const auto task = loop.state().TaskOf(attempt);
    const auto order = loop.state().OpenOrderOf(attempt);
    look->waiting[i].settled = !order;
    if (order && wanted(task->source())) look->waiting[i].order = order;
  }
}

void BudgetRelief::Decide(const Look& look) {
  const uint64_t after_ms = context_->config->Get().memory_relief_after_ms;
  if (!clock_.Stuck(look.now_ms, after_ms, look.facts)) return;
  auto& budget = context_->payloads->budget();
  uint64_t admitted = 0;
  for (const storage::WaiterId id : ChooseWaiters(look.waiting)) {
    if (!budget.AdmitFromReserve(id)) break;
    ++admitted;
  }
  if (admitted > 0) {
    context_->metrics->relief_admitted += admitted;
    Log(LogLevel::kWarning,
        "payload memory is full: pushes of the oldest group, or of groups that are over, let in "
        "from "
        "the reserve",
        {{"pushes", admitted}, {"waiting", look.facts.waiters}});
    return;
  }
  // Bytes that are on disk give way by themselves: the store is slow, or stands still, and dropping
  // what was acknowledged would free nothing.
  if (context_->storage->segments() != nullptr) return;
  // Groups of a step that does not fit would only be followed by others: their pushes wait until
  // memory.payload_bytes_max is raised or the step is opened anew, and nothing is lost.
  DropFirst(ChooseDrops(look.shards, !look.waiters.empty() && !look.too_large), look.wanted);
}

void BudgetRelief::DropFirst(std::vector<DropTarget> targets, std::vector<SourceId> wanted) {
  if (targets.empty()) {
    Log(LogLevel::kError,
        "payload memory is full, a step lacks groups, and there is nothing to drop: "
        "memory.payload_bytes_max is too small for a step");
    return;
  }
  const DropTarget target = targets.front();
  targets.erase(targets.begin());
  shard::DropForBudget command;
  if (target.only_others) command.spared = wanted;
  context_->engine->Ask<shard::CountReply>(
      target.shard, std::move(command),
      [this, target, targets = std::move(targets),
       wanted = std::move(wanted)](shard::CountReply&& reply) mutable {
        // It has groups, but none that holds bytes.
        if (reply.count == 0) return DropFirst(std::move(targets), std::move(wanted));
        context_->metrics->relief_dropped += reply.count;
        Log(LogLevel::kWarning,
            target.only_others
                ? "payload memory is full: a group of a source that the waiting step does not "
                  "take was dropped"
                : "payload memory is full: the youngest incomplete group was dropped",
            {{"groups", reply.count}});
      });
}

}  // namespace forebay::server
