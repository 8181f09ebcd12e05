// How an engine begins: on nothing, or on what a journal holds.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "node/check_recovered.h"
#include "node/engine.h"
#include "node/process_clock.h"
#include "shard/limits.h"

namespace forebay::node {

DeadBytes::Named Engine::NamedByState() const {
  DeadBytes::Named named;
  for (const auto& shard : shards_) {
    shard->state->ForEachPayload([&](PayloadId id) { named.payloads.push_back(id); },
                                 [&](PayloadId id) { named.contents.push_back(id); });
  }
  ledger_.state.ForEachPayload([&](PayloadId id) { named.payloads.push_back(id); },
                               [](PayloadId) {});
  for (const ledger::Step* step : ledger_.state.StepsNewestFirst()) {
    if (step->live()) named.wanted.emplace_back(step->step, step->ToFetch());
    for (const ledger::HeldRollout& rollout : step->rollouts) {
      // What it would name itself.
      const bool absent = !shards_[rollout.rollout.shard().value]->presence.ok();
      if (absent) named.payloads.push_back(rollout.payload);
    }
  }
  named.all = std::ranges::all_of(shards_, [](const auto& shard) { return shard->presence.ok(); });
  return named;
}

void Engine::DropLost(const std::vector<PayloadId>& lost) {
  if (lost.empty()) return;
  ledger_.serial.Post(
      [this, lost] { ledger_.loop->Propose(NowMs(), 0, ledger::DropDamaged{.payloads = lost}); });
  for (auto& shard : shards_) {
    if (!shard->presence.ok()) continue;
    shard->serial.Post([s = shard.get(), lost] {
      const std::vector<shard::DamagedPayload> found = s->state->FindPayloads(lost);
      for (size_t at = 0; at < found.size(); at += shard::kEntriesMax) {
        const size_t end = std::min<size_t>(at + shard::kEntriesMax, found.size());
        const auto first = found.begin() + static_cast<std::ptrdiff_t>(at);
        const auto last = found.begin() + static_cast<std::ptrdiff_t>(end);
        s->loop->Propose(NowMs(), 0, shard::DropDamaged{.payloads = {first, last}});
      }
    });
  }
}

absl::Status Engine::Follow(Journal* journal) {
  follows_ = true;
  if (auto status = journal->Follow(&ledger_.state); !status.ok()) return status;
  for (auto& shard : shards_) {
    if (auto status = journal->Follow(shard->state.get()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Its files stay as they are, and its state may have come half way.
void Engine::LeaveOut(Shard& shard, std::string why) {
  shard.presence = absl::UnavailableError(std::move(why));
  if (follows_) shard.followed = std::move(shard.state);
  shard.state = std::make_unique<shard::State>(
      shard::Options{.shard = shard.id, .run_seed = options_.run_seed});
}

absl::Status Engine::Recover(Journal* journal, LogPosition* ledger,
                             std::vector<LogPosition>* shards) {
  auto position = journal->Recover(&ledger_.state);
  if (!position.ok()) return position.status();
  *ledger = *position;
  size_t there = std::ranges::count_if(shards_, [](const auto& s) { return s->presence.ok(); });
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (!shards_[i]->presence.ok()) continue;
    position = journal->Recover(shards_[i]->state.get());
    absl::Status fits = position.status();
    if (fits.ok()) {
      (*shards)[i] = *position;
      FOREBAY_RETURN_IF_ERROR(CheckLedger(ledger_.state, *shards_[i]->state));
      fits = CheckShard(ledger_.state, *shards_[i]->state);
    }
    if (fits.ok()) continue;
    if (!absl::IsDataLoss(fits) || there-- == 1) return fits;
    LeaveOut(*shards_[i],
             absl::StrCat("shard-", i, " is absent, for it is damaged: ", fits.message()));
    (*shards)[i] = LogPosition();
  }
  return absl::OkStatus();
}

absl::Status Engine::Begin(Journal* journal, const AbsentMachines& absent) {
  for (auto& shard : shards_) {
    const auto found = absent.find(absl::StrCat("shard-", shard->id.value));
    if (found != absent.end()) LeaveOut(*shard, found->second);
  }
  std::vector<PayloadId> lost;
  LogPosition ledger_applied;
  std::vector<LogPosition> applied(shards_.size());
  if (journal != nullptr) {
    FOREBAY_RETURN_IF_ERROR(Recover(journal, &ledger_applied, &applied));
    auto recovered = dead_->Recovered(NamedByState());
    if (!recovered.ok()) return recovered.status();
    lost = *std::move(recovered);
  }
  if (auto status = ledger_.Begin(journal, ledger_applied); !status.ok()) return status;
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (auto status = shards_[i]->Begin(journal, applied[i]); !status.ok()) return status;
  }
  ProcessClock::Tick();  // from here on a standstill is noticed
  // Messages that were not acknowledged before the end of the last process.
  ledger_.serial.Post([this] { ledger_.loop->Resend(); });
  for (auto& shard : shards_) {
    if (shard->presence.ok()) shard->serial.Post([s = shard.get()] { s->loop->Resend(); });
  }
  DropLost(lost);
  timer_ = std::thread([this] { TimerThread(); });
  return absl::OkStatus();
}

}  // namespace forebay::node
