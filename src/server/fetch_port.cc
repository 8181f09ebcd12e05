#include "server/fetch_port.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/log.h"
#include "storage/payload_store.h"

namespace forebay::server {
namespace {

absl::StatusOr<FetchView> Look(const ledger::State& state, const FetchKey& key) {
  FOREBAY_RETURN_IF_ERROR(state.CheckGeneration(key.generation));
  auto view = state.ViewMicroBatch(key.step, key.revision, key.micro_batch);
  if (!view.ok()) return view.status();
  FetchView owned{.slots = std::move(view->slots),
                  .padded_tokens = view->padded_tokens,
                  .mini_batch = view->mini_batch,
                  .written = {view->written.begin(), view->written.end()}};
  for (const auto& slot : owned.slots) {
    const SourceId id = slot.task.source();
    const auto known = [id](const auto& source) { return source.first == id; };
    if (std::ranges::any_of(owned.sources, known)) continue;
    const auto* source = state.source(id);
    owned.sources.emplace_back(id, source == nullptr ? "" : source->settings.name);
  }
  return owned;
}

// Until the step is planned without what is lost; a log that is full makes it wait.
constexpr uint32_t kLostWaitMs = 10'000;

using LostRollout = std::pair<RolloutId, PayloadId>;

std::string Hex(uint64_t id) { return absl::StrCat("0x", absl::Hex(id)); }

// Whoever reads the same bytes next tries again.
void LogRefusal(const absl::Status& status) {
  if (status.ok()) return;
  Log(LogLevel::kWarning, "what is lost could not be dropped yet", {{"why", status.message()}});
}

void Drop(node::Engine* engine, ShardId shard, std::vector<LostRollout> rollouts) {
  engine->AskWith<shard::CountReply>(
      shard,
      [rollouts = std::move(rollouts)](const shard::State& state) {
        shard::DropDamaged drop;
        for (const auto& [rollout, payload] : rollouts) {
          const auto attempt = state.AttemptOf(rollout);
          if (attempt) drop.payloads.push_back({*attempt, payload});
        }
        return drop;
      },
      [](shard::CountReply&& reply) { LogRefusal(reply.status); });
}

}  // namespace

void FetchPort::View(const FetchKey& key, FetchAnswer answer) {
  engine_->OnLedger([key, answer = std::move(answer)](node::LedgerLoop& loop, uint64_t) {
    answer(Look(loop.state(), key));
  });
}

void FetchPort::Lost(const FetchKey& key, const FetchView& view, const absl::Status& why,
                     FetchRefusal answer) {
  const std::vector<PayloadId> lost = storage::LostOf(why);
  const auto is_lost = [&lost](PayloadId id) { return std::ranges::find(lost, id) != lost.end(); };
  std::map<ShardId, std::vector<LostRollout>> rollouts;
  std::string names;
  for (const ledger::Slot& slot : view.slots) {
    if (!is_lost(slot.payload)) continue;
    std::vector<LostRollout>& of_shard = rollouts[slot.rollout.shard()];
    const LostRollout rollout(slot.rollout, slot.payload);
    if (std::ranges::find(of_shard, rollout) != of_shard.end()) continue;
    of_shard.push_back(rollout);
    absl::StrAppend(&names, names.empty() ? "rollout " : ", ", Hex(slot.rollout.value));
  }
  ledger::DropDamaged columns;  // and what is of shards that are absent
  for (const ledger::WrittenColumn& column : view.written) {
    if (!is_lost(column.payload)) continue;
    columns.payloads.push_back(column.payload);
    absl::StrAppend(&names, names.empty() ? "" : ", ", "column ", column.name);
  }
  const std::string what =
      absl::StrCat("step ", key.step.value, ": ", names, names.empty() ? "" : ": ", why.message());
  Log(LogLevel::kError, "bytes of a step are lost",
      {{"step", key.step.value},
       {"revision", key.revision.value},
       {"lost", names},
       {"why", why.message()}});
  for (auto& [shard, of_shard] : rollouts) {
    if (engine_->Presence(shard).ok()) {
      Drop(engine_, shard, std::move(of_shard));
      continue;
    }
    for (const auto& [rollout, payload] : of_shard) columns.payloads.push_back(payload);
  }
  if (!columns.payloads.empty()) {
    engine_->AskLedger<ledger::StatusReply>(
        std::move(columns), [](ledger::StatusReply&& reply) { LogRefusal(reply.status); });
  }
  engine_->WatchStep(
      key.step, kLostWaitMs,
      [key, what, answer = std::move(answer)](node::LedgerLoop& loop, bool over) {
        const ledger::Step* step = loop.state().step(key.step);
        const bool planned = step == nullptr || !step->live() || step->revision != key.revision;
        if (!planned && !over) return false;
        answer(absl::DataLossError(
            absl::StrCat(what, planned ? "; it is dropped as 'damaged', and the step planned anew "
                                         "without it: open the step again"
                                       : "; it is to be dropped as 'damaged', which has not "
                                         "happened yet: open the step again")));
        return true;
      });
}

void FetchPort::Answering(const FetchKey& key, uint64_t bytes) {
  clients_->Fetched(key.micro_batch.dp_rank, node::Engine::NowMs(), bytes);
}

}  // namespace forebay::server
