#include "server/fetch_port.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

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

}  // namespace

void FetchPort::View(const FetchKey& key, FetchAnswer answer) {
  engine_->OnLedger([key, answer = std::move(answer)](node::LedgerLoop& loop, uint64_t) {
    answer(Look(loop.state(), key));
  });
}

void FetchPort::Answering(const FetchKey& key, uint64_t bytes) {
  clients_->Fetched(key.micro_batch.dp_rank, node::Engine::NowMs(), bytes);
}

}  // namespace forebay::server
