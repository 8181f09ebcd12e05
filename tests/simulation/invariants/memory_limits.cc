// 12. Memory stays within the named limits.
#include "absl/strings/str_cat.h"
#include "ledger/limits.h"
#include "shard/limits.h"
#include "shard/machine.h"
#include "shard/primary.h"
#include "tests/simulation/invariants/invariant.h"

namespace forebay::simulation {
namespace {

// Messages that one end may have to send again: the other acknowledges each, and answers come from
// work that is bounded.
constexpr size_t kUnacknowledgedMax = 4'096;

// What is logged though the log is full: of the machine's own, and between machines.
constexpr uint64_t kLogSlack = 256 * 1024;

class MemoryLimits final : public Invariant {
 public:
  explicit MemoryLimits(Checker* checker) : Invariant("12 memory within limits", checker) {}

  void OnScan() override {
    AtMost("payload bytes", node().payloads().used(), node().payloads().bytes_max());
    uint64_t named = 0;
    for (uint32_t s = 0; s < node().shards(); ++s) {
      const ShardId id(static_cast<uint8_t>(s));
      const shard::State& shard = node().shard(id);
      const shard::Machine& machine = shard.machine();
      named += shard.payload_bytes() + shard.retained_bytes() + shard.kept_bytes();
      AtMost("bytes kept for people", shard.kept_bytes(),
             options().keep.bytes_max / node().shards());
      AtMost("sessions", machine.sessions().size(), shard::kSessionsMax);
      AtMost("evaluation runs", machine.evals().size(), shard::kEvalRunsMax);
      AtMost("waiting requests", node().waiters(id), shard::PrimaryOptions().waiters_max);
      AtMost("messages to the ledger", shard.to_ledger().Unacknowledged().size(),
             kUnacknowledgedMax);
      AtMost("messages to a shard", node().ledger().outbox(id).Unacknowledged().size(),
             kUnacknowledgedMax);
      uint64_t live = 0;
      for (const shard::SourceView& view : shard.Sources()) {
        live += view.groups_open + view.groups_ready + view.groups_reserved;
      }
      for (uint32_t slot = 0; slot < machine.tables().groups().size(); ++slot) {
        const auto& groups = machine.tables().groups();
        live += groups.InUse(slot) && groups[slot].state == rollout::GroupState::kTrained;
      }
      AtMost("groups", machine.tables().groups().used(), live + options().closed_groups_max);
    }
    for (const node::LogQueue& queue : node().LogQueues()) {
      if (queue.bytes_max > 0) AtMost("bytes to log", queue.bytes, queue.bytes_max + kLogSlack);
    }
    AtMost("payload bytes that shards name", named,
           node().payloads().used() + node().payloads().cold());
    const auto steps = node().ledger().StepsNewestFirst();
    AtMost("steps", steps.size(),
           ledger::kCommittedStepsKept + node().ledger().options().open_steps_max);
    uint64_t plans = 0;
    for (const ledger::Step* step : steps)
      plans += !step->live() && !step->rollouts.empty() && !step->retained;
    AtMost("plans of steps that are over", plans, 0);
    AtMost("bytes of committed steps", node().ledger().retained_bytes(),
           options().retention_bytes_max);
    AtMost("announcements", node().ledger().announcements().size(), ledger::kAnnouncementsKept);
    AtMost("adoption reports", node().ledger().adoptions().size(), ledger::kEnginesKept);
  }

 private:
  void AtMost(const char* what, uint64_t value, uint64_t limit) {
    if (value > limit) Violated(absl::StrCat(what, ": ", value, ", at most ", limit));
  }
};

}  // namespace

std::unique_ptr<Invariant> MakeMemoryLimits(Checker* checker) {
  return std::make_unique<MemoryLimits>(checker);
}

}  // namespace forebay::simulation
