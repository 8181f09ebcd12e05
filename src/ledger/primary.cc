#include "ledger/primary.h"

#include <algorithm>

#include "base/check.h"
#include "ledger/limits.h"
#include "ledger/resolve_report.h"

namespace forebay::ledger {

Primary::Primary(const State& state)
    : state_(state), shards_(state.options().shards), presence_(state.options().shards) {}

void Primary::Propose(uint64_t now_ms, Tag tag, Command command, Output* output) {
  (void)now_ms;
  if (auto* commit = std::get_if<CommitStep>(&command)) {
    commit->retention_bytes_max = retention_bytes_max_;
    commit->keep = KeepNow();
    commit->drift = drift_rules_;
  } else if (auto* checkpoint = std::get_if<CheckpointStep>(&command)) {
    checkpoint->keep = KeepNow();
  }
  if (auto* attach = std::get_if<AttachTrainer>(&command)) {
    attach->first_generation = first_generation_;
  }
  absl::Status status;
  if (auto* report = std::get_if<ReportSequences>(&command)) {
    status = ResolveReport(state_, report);
  }
  if (status.ok()) status = state_.Check(command);
  if (const auto* open = std::get_if<OpenStep>(&command); status.ok() && open != nullptr) {
    const Step* held = state_.step(open->step);
    const bool is_new = held == nullptr || !held->live();
    if (is_new) status = state_.CheckOpenSteps(open->step, state_.options().open_steps_max);
  }
  if (status.ok()) {
    output->commands.emplace_back(tag, std::move(command));
  } else if (tag != 0) {
    output->replies.push_back({tag, Refusal(command, std::move(status))});
  }
}

void Primary::SetSummary(uint64_t now_ms, codec::ReadySummary summary, Output* output) {
  const size_t index = summary.shard.value;
  if (index >= shards_.size()) return;
  shards_[index] = Shard{std::move(summary)};
  AskForGroups(now_ms, output);
}

void Primary::Applied(uint64_t now_ms, const Command& command, const Effects& effects,
                      Output* output) {
  Account(command, effects);
  UpdateClocks(now_ms);
  AskForGroups(now_ms, output);
}

void Primary::Account(const Command& command, const Effects& effects) {
  if (const auto* request = std::get_if<RequestGroups>(&command)) {
    asking_ = false;
    if (!effects.to_shards.empty()) return;
    // Refused, for the step changed on the way: nobody was asked.
    for (const RequestGroups::Part& part : request->parts) {
      if (part.shard.value >= shards_.size()) continue;
      Shard& shard = shards_[part.shard.value];
      shard.asked_groups -= std::min<uint64_t>(shard.asked_groups, part.groups);
      shard.asked_tokens -= std::min(shard.asked_tokens, part.tokens);
    }
  } else if (const auto* from = std::get_if<FromShard>(&command)) {
    // What it has is not for this step (too old, say). Asking again would only be answered the
    // same.
    const auto* reserved = std::get_if<codec::Reserved>(&from->message);
    if (reserved != nullptr && reserved->groups.empty() && from->shard.value < shards_.size()) {
      shards_[from->shard.value].dry_for = reserved->step;
    }
  } else if (const auto* open = std::get_if<OpenStep>(&command)) {
    for (Shard& shard : shards_) {
      if (shard.dry_for == open->step) shard.dry_for = StepId();
    }
  } else if (std::holds_alternative<ledger::TrimRetained>(command)) {
    trimming_ = false;
  } else if (const auto* mark = std::get_if<MarkShard>(&command)) {
    if (mark->shard.value < presence_.size()) presence_[mark->shard.value].marking = false;
  }
}

void Primary::SetAnswering(uint64_t now_ms, ShardId shard, bool answering) {
  uint64_t& since = presence_[shard.value].silent_since_ms;
  if (answering) {
    since = kNever;
  } else if (since == kNever) {
    since = now_ms;
  }
}

bool Primary::Present(ShardId shard) const {
  return presence_[shard.value].silent_since_ms == kNever && !state_.absent(shard);
}

uint64_t Primary::MarkDue(size_t shard) const {
  const Presence& presence = presence_[shard];
  const bool absent = state_.absent(ShardId(static_cast<uint8_t>(shard)));
  const bool answers = presence.silent_since_ms == kNever;
  if (presence.marking || absent != answers) return kNever;
  if (absent) return last_now_ms_;
  if (state_.options().mutations.wait_for_absent) return kNever;
  return presence.silent_since_ms + absent_after_ms_;
}

void Primary::MarkShards(uint64_t now_ms, Output* output) {
  for (size_t i = 0; i < presence_.size(); ++i) {
    if (MarkDue(i) > now_ms) continue;
    const ShardId shard(static_cast<uint8_t>(i));
    presence_[i].marking = true;
    output->commands.emplace_back(0, MarkShard{.shard = shard, .absent = !state_.absent(shard)});
  }
}

void Primary::SetStoreFull(uint64_t now_ms, bool full) {
  if (full && !store_full_) trim_due_ms_ = now_ms + kTrimPauseMs;
  store_full_ = full;
}

// One rollout that is kept holds its file: for a full store none is added.
codec::KeepRule Primary::KeepNow() const {
  return store_full_ ? codec::KeepRule{.bytes_max = keep_.bytes_max} : keep_;
}

void Primary::TrimRetained(uint64_t now_ms, Output* output) {
  if (trimming_) return;
  const uint64_t retained = state_.retained_bytes();
  ledger::TrimRetained trim{retention_bytes_max_, KeepNow()};
  const bool for_room = store_full_ && now_ms >= trim_due_ms_;
  if (for_room) {
    trim.bytes_max = std::min(trim.bytes_max, retained / 2);
    trim.keep.bytes_max = std::min(trim.keep.bytes_max, kept_bytes_ / 2);
  }
  const bool of_kept = kept_bytes_ > trim.keep.bytes_max && (for_room || now_ms >= keep_due_ms_);
  Command command = trim;
  if ((retained <= trim.bytes_max && !of_kept) || !state_.Check(command).ok()) return;
  trimming_ = true;
  trim_due_ms_ = keep_due_ms_ = now_ms + kTrimPauseMs;
  output->commands.emplace_back(0, std::move(command));
}

void Primary::Tick(uint64_t now_ms, Output* output) {
  UpdateClocks(now_ms);
  MarkShards(now_ms, output);
  AskForGroups(now_ms, output);
  TrimRetained(now_ms, output);
}

uint64_t Primary::NextTick() const {
  if (!trimming_ && state_.retained_bytes() > retention_bytes_max_) return last_now_ms_;
  uint64_t next = kNever;
  for (size_t i = 0; i < presence_.size(); ++i) next = std::min(next, MarkDue(i));
  const Step* step = Hungry();
  const uint64_t end = step == nullptr ? 0 : LateWaitEnd(*step);
  return end == 0 ? next : std::min(next, end);
}

void Primary::UpdateClocks(uint64_t now_ms) {
  last_now_ms_ = now_ms;
  // A committed step's clock lives as long as the state shows the step.
  std::erase_if(clocks_, [this](const auto& entry) { return state_.step(entry.first) == nullptr; });
  for (const Step* step : state_.StepsNewestFirst()) {
    if (step->state == StepState::kCommitted) break;
    if (!step->live()) {
      clocks_.erase(step->step);
      continue;
    }
    Clock& clock = clocks_.try_emplace(step->step, Clock{now_ms}).first->second;
    if (step->state != StepState::kSealed) {
      clock.sealed_ms = kNever;
    } else if (clock.sealed_ms == kNever) {
      clock.sealed_ms = now_ms;
    }
  }
}

uint64_t Primary::WaitedMs(StepId step, uint64_t now_ms) const {
  const auto it = clocks_.find(step);
  if (it == clocks_.end()) return 0;
  return std::min(now_ms, it->second.sealed_ms) - it->second.opened_ms;
}

const Step* Primary::Hungry() const {
  // Only the oldest open one: a younger step must not take what an older one may still need.
  for (StepId id = state_.next_step();; id = StepId(id.value + 1)) {
    const Step* step = state_.step(id);
    if (step == nullptr || !step->live()) return nullptr;
    if (step->state != StepState::kOpen) continue;
    return step->GroupsLacking() > 0 || step->TokensLacking() > 0 ? step : nullptr;
  }
}

bool Primary::Eligible(const Step& step, SourceId id) const {
  const Source* source = state_.source(id);
  if (source == nullptr || source->settings.purpose != codec::Purpose::kTrain) return false;
  const std::vector<SourceId>& wanted = step.spec.sources;
  return wanted.empty() || std::binary_search(wanted.begin(), wanted.end(), id);
}

Primary::Ready Primary::ReadyFor(const Step& step, const Shard& shard) const {
  Ready ready;
  for (const codec::ReadySummary::Source& source : shard.summary.sources) {
    if (!Eligible(step, source.source)) continue;
    ready.groups += source.ready_groups;
    ready.tokens += source.ready_tokens;
    ready.open_groups += source.open_groups;
    ready.in_flight += source.in_flight;
    ready.waited_for += source.waited_for;
  }
  return ready;
}

Primary::Ready Primary::ReadyFor(const Step& step) const {
  Ready sum;
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (!Present(ShardId(static_cast<uint8_t>(i)))) continue;
    const Ready ready = ReadyFor(step, shards_[i]);
    sum.groups += ready.groups;
    sum.tokens += ready.tokens;
    sum.open_groups += ready.open_groups;
    sum.in_flight += ready.in_flight;
    sum.waited_for += ready.waited_for;
  }
  return sum;
}

uint64_t Primary::LateWaitEnd(const Step& step) const {
  if (ReadyFor(step).waited_for == 0) return 0;
  const auto clock = clocks_.find(step.step);
  if (clock == clocks_.end()) return 0;
  const uint64_t end = clock->second.opened_ms + kLateWaitMs;
  return end > last_now_ms_ ? end : 0;
}

// What the shard has for the step by its summary, less what it was asked for since, or before and
// has not answered.
uint64_t Primary::Available(const Step& step, size_t index) const {
  const Shard& shard = shards_[index];
  if (shard.dry_for == step.step || !Present(ShardId(static_cast<uint8_t>(index)))) return 0;
  const Ready ready = ReadyFor(step, shard);
  const bool by_tokens = step.spec.groups == 0;
  uint64_t asked = 0;
  for (const Step* other : state_.StepsNewestFirst()) {
    for (const GroupRequest& request : other->requests) {
      if (request.shard.value == index) asked += by_tokens ? request.tokens : request.groups;
    }
  }
  asked = std::max(asked, by_tokens ? shard.asked_tokens : shard.asked_groups);
  const uint64_t has = by_tokens ? ready.tokens : ready.groups;
  return has > asked ? has - asked : 0;
}

void Primary::AskForGroups(uint64_t now_ms, Output* output) {
  last_now_ms_ = now_ms;
  const Step* step = asking_ ? nullptr : Hungry();
  if (step == nullptr || LateWaitEnd(*step) > 0) return;
  const bool by_tokens = step->spec.groups == 0;
  const uint64_t lacking = by_tokens ? step->TokensLacking() : step->GroupsLacking();
  std::vector<uint64_t> available(shards_.size());
  uint64_t total = 0;
  for (size_t i = 0; i < shards_.size(); ++i) total += available[i] = Available(*step, i);
  const uint64_t ask = std::min(lacking, total);
  RequestGroups request{step->step, step->revision, {}};
  uint64_t seen = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    // The i-th part of a rounded running sum: parts are proportional, and add up.
    const auto share = [&](uint64_t upto) {
      return static_cast<uint64_t>(static_cast<unsigned __int128>(ask) * upto / total);
    };
    if (available[i] == 0) continue;
    const uint64_t part = share(seen + available[i]) - share(seen);
    seen += available[i];
    if (part == 0) continue;
    const ShardId shard(static_cast<uint8_t>(i));
    request.parts.push_back(
        {shard, by_tokens ? 0 : static_cast<uint32_t>(part), by_tokens ? part : 0});
    (by_tokens ? shards_[i].asked_tokens : shards_[i].asked_groups) += part;
  }
  if (request.parts.empty()) return;
  asking_ = true;
  output->commands.emplace_back(0, std::move(request));
}

}  // namespace forebay::ledger
