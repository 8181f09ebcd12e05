// Reservations of ready groups by steps, and what becomes of them.
#include <algorithm>

#include "shard/machine.h"

namespace forebay::shard {

using rollout::CloseReason;
using rollout::GroupRecord;
using rollout::GroupState;
using rollout::RolloutRecord;

namespace {

constexpr uint32_t kMaskAll = UINT32_MAX;

uint32_t Lag(uint32_t version, uint32_t train) { return train > version ? train - version : 0; }

}  // namespace

StepHold* FindHold(std::vector<StepHold>* holds, StepId step) {
  const auto at = std::lower_bound(holds->begin(), holds->end(), step,
                                   [](const StepHold& hold, StepId s) { return hold.step < s; });
  return at != holds->end() && at->step == step ? &*at : nullptr;
}

StepHold& HoldOf(std::vector<StepHold>* holds, StepId step, Revision revision) {
  StepHold* hold = FindHold(holds, step);
  if (hold == nullptr) {
    const auto at = std::lower_bound(holds->begin(), holds->end(), step,
                                     [](const StepHold& h, StepId s) { return h.step < s; });
    hold = &*holds->insert(at, StepHold{step, revision, {}});
  }
  hold->revision = revision;
  return *hold;
}

std::vector<uint32_t> GroupsOf(const GroupTable& groups, const StepHold& hold) {
  std::vector<uint32_t> slots;
  for (uint32_t slot = hold.groups.head(); slot != kNone;
       slot = rollout::OrderList::Next(groups, slot)) {
    slots.push_back(slot);
  }
  return slots;
}

StepId Machine::StepOf(uint32_t group) const {
  const GroupRecord& record = tables_.group(group);
  const bool of_step =
      record.state == GroupState::kReserved || record.state == GroupState::kTrained;
  return of_step ? record.step : StepId();
}

Machine::Verdict Machine::Judge(uint32_t r, const codec::SourceSettings& settings, uint32_t max_lag,
                                uint32_t train) const {
  const RolloutRecord& rollout = tables_.rollout(r);
  SequenceMeta scratch;
  const auto sequences = tables_.Sequences(r, &scratch);
  Verdict verdict;
  verdict.version = rollout::VersionBy(settings.lag_of, sequences, rollout.version.number);
  if (rollout.flags & RolloutRecord::kMasked) verdict.mask_below = kMaskAll;
  if (Lag(verdict.version, train) <= max_lag || options_.mutations.ignore_lag) return verdict;
  switch (settings.late) {
    case codec::LateRule::kTrain:
      break;
    case codec::LateRule::kBaselineOnly:
      verdict.judgement = Judgement::kBaselineOnly;
      break;
    case codec::LateRule::kMaskOldTokens: {
      verdict.mask_below = std::max(verdict.mask_below, train - max_lag);
      uint64_t left = 0;
      for (const SequenceMeta& sequence : sequences) {
        left += rollout::LossTokensFrom(sequence, verdict.mask_below, rollout.version.number);
      }
      if (left == 0 && verdict.mask_below != kMaskAll) verdict.judgement = Judgement::kDrop;
      break;
    }
    case codec::LateRule::kDrop:
    case codec::LateRule::kWait:
      verdict.judgement = Judgement::kDrop;
      break;
  }
  return verdict;
}

// Takes rollouts over the limit out of a ready group. False when too few are left, and the group is
// dropped.
bool Machine::Cull(uint32_t slot, uint32_t max_lag, uint32_t train, Effects* effects) {
  GroupRecord& group = tables_.group(slot);
  const codec::SourceSettings& settings = SettingsOfGroup(slot);
  uint32_t late = 0;
  uint32_t with_loss = 0;
  tables_.ForEachRollout(slot, [&](uint32_t r) {
    const Verdict verdict = Judge(r, settings, max_lag, train);
    late += verdict.judgement != Judgement::kTrain;
    with_loss += verdict.judgement == Judgement::kTrain && verdict.mask_below != kMaskAll;
  });
  const uint32_t least = group.advantage == codec::AdvantageKind::kNone ? 1 : 2;
  const bool enough = group.held() - late >= least;
  if (late == 0 && enough && with_loss > 0) return true;
  if (late > 0) {
    SourceState& source = SourceOf(slot);
    source.ready.Remove(tables_.groups(), slot);
    tables_.ForEachRollout(slot, [&](uint32_t r) {
      const Verdict verdict = Judge(r, settings, max_lag, train);
      if (verdict.judgement == Judgement::kTrain) return;
      source.counters.baseline_only += verdict.judgement == Judgement::kBaselineOnly;
      DropRollout(r, DropReason::kStale, effects);
    });
    MakeReady(slot);
  }
  if (enough && with_loss > 0) return true;
  // Groups of truncated rollouts alone have no loss.
  const DropReason reason = enough ? DropReason::kTruncated : DropReason::kShort;
  DropGroup(slot, reason, CloseReason::kComplete, effects);
  return false;
}

codec::GroupReport Machine::Report(uint32_t slot, uint32_t max_lag, uint32_t train) const {
  const GroupRecord& group = tables_.group(slot);
  const codec::SourceSettings& settings = SettingsOfGroup(slot);
  codec::GroupReport report;
  report.group = tables_.IdOfGroup(slot);
  report.task = group.task;
  report.advantage = group.advantage;
  report.rollouts.reserve(group.held());
  SequenceMeta scratch;
  tables_.ForEachRollout(slot, [&](uint32_t r) {
    const RolloutRecord& rollout = tables_.rollout(r);
    const Verdict verdict = Judge(r, settings, max_lag, train);
    codec::RolloutReport& out = report.rollouts.emplace_back();
    out.rollout = tables_.IdOfRollout(r);
    out.payload = rollout.payload;
    out.payload_bytes = rollout.payload_bytes;
    out.reward = static_cast<float>(rollout.reward);
    out.advantage = rollout.advantage;
    out.version = verdict.version;
    out.lag = Lag(verdict.version, train);
    out.mask_below = verdict.mask_below;
    for (const SequenceMeta& sequence : tables_.Sequences(r, &scratch)) {
      const uint32_t loss_tokens =
          rollout::LossTokensFrom(sequence, verdict.mask_below, rollout.version.number);
      out.sequences.push_back(
          {sequence.tokens, sequence.prompt_tokens, loss_tokens, sequence.advantage});
    }
  });
  return report;
}

bool Machine::Staler(uint32_t a, uint32_t b) const {
  const GroupRecord& left = tables_.group(a);
  const GroupRecord& right = tables_.group(b);
  return std::pair(left.version, left.sequence) < std::pair(right.version, right.sequence);
}

// Over all sources that the step takes from: the oldest version, then the earliest completed.
uint32_t Machine::OldestReady(const codec::Reserve& m) const {
  uint32_t oldest = kNone;
  for (uint32_t i = 0; i < sources_.size(); ++i) {
    const uint32_t slot = sources_[i].ready.front();
    if (slot == kNone) continue;
    const bool taken = m.sources.empty() || std::find(m.sources.begin(), m.sources.end(),
                                                      SourceId(i)) != m.sources.end();
    if (!taken) continue;
    if (oldest == kNone) {
      oldest = slot;
      continue;
    }
    if (Staler(slot, oldest)) oldest = slot;
  }
  return oldest;
}

void Machine::ReserveGroup(uint32_t slot, StepHold& hold) {
  GroupRecord& group = tables_.group(slot);
  SourceState& source = SourceOf(slot);
  LeaveList(slot);
  group.state = GroupState::kReserved;
  group.step = hold.step;
  hold.groups.PushBack(tables_.groups(), slot);
  ++source.reserved_groups;
  source.counters.held -= group.held();
  source.counters.reserved += group.held();
}

void Machine::Run(const codec::Reserve& m, Effects* effects) {
  codec::Reserved answer{m.step, m.revision, m.request, {}};
  uint64_t tokens = 0;
  const uint32_t train = m.train_version.number;
  while (m.train_version.branch == versions_.branch) {
    if (answer.groups.size() >= m.groups || (m.tokens != 0 && tokens >= m.tokens)) break;
    const uint32_t slot = OldestReady(m);
    if (slot == kNone) break;
    const uint32_t own_limit = SettingsOfGroup(slot).max_lag;
    const uint32_t max_lag = std::min(own_limit, m.max_lag.value_or(own_limit));
    if (!Cull(slot, max_lag, train, effects)) continue;
    answer.groups.push_back(Report(slot, max_lag, train));
    for (const codec::RolloutReport& rollout : answer.groups.back().rollouts) {
      const bool masked = rollout.mask_below != 0 && rollout.mask_below != kMaskAll;
      SourceOf(slot).counters.masked += masked;
    }
    tokens += tables_.group(slot).tokens;
    ReserveGroup(slot, HoldOf(&holds_, m.step, m.revision));
    effects->ready_moved = true;
  }
  Send(std::move(answer), effects);
}

// The group goes back to where it was among the ready ones.
void Machine::GiveBack(uint32_t slot, Effects* effects) {
  GroupRecord& group = tables_.group(slot);
  SourceState& source = SourceOf(slot);
  effects->ready_moved = true;
  bool abandoned = false;
  tables_.ForEachRollout(slot, [&](uint32_t r) {
    abandoned |= tables_.rollout(r).version.branch != versions_.branch;
  });
  if (!options_.mutations.keep_damaged) DropMarked(slot, effects);
  if (abandoned) return DropGroup(slot, DropReason::kRewound, CloseReason::kRewound, effects);
  LeaveList(slot);
  source.counters.reserved -= group.held();
  source.counters.held += group.held();
  group.step = StepId();
  MakeReady(slot);
  Cull(slot, SettingsOfGroup(slot).max_lag, train_floor_, effects);
}

void Machine::Run(const codec::Unreserve& m, Effects* effects) {
  std::vector<uint32_t> slots;
  if (!m.groups.empty()) {
    for (GroupId id : m.groups) {
      const uint32_t slot = tables_.Find(id);
      const bool held = slot != kNone && tables_.group(slot).state == GroupState::kReserved &&
                        tables_.group(slot).step == m.step;
      if (held) slots.push_back(slot);
    }
  } else if (const StepHold* hold = FindHold(&holds_, m.step)) {
    // From the youngest on: each is put before those that came back already.
    uint32_t slot = hold->groups.tail();
    for (; slot != kNone; slot = rollout::OrderList::Previous(tables_.groups(), slot)) {
      slots.push_back(slot);
    }
  }
  for (uint32_t slot : slots) {
    if (tables_.group(slot).state == GroupState::kReserved) GiveBack(slot, effects);
  }
}

void Machine::CommitGroup(uint32_t slot, const codec::StepCommitted& m, Effects* effects) {
  GroupRecord& group = tables_.group(slot);
  SourceState& source = SourceOf(slot);
  const SourceId id = group.task.source();
  TrainedSum sum{id, 1, group.held(), 0};
  tables_.ForEachRollout(slot, [&](uint32_t r) {
    const RolloutRecord& rollout = tables_.rollout(r);
    sum.tokens += rollout.tokens;
    if (m.retain) {
      payload_bytes_ -= rollout.payload_bytes;
      retained_bytes_ += rollout.payload_bytes;
      if (rollout.payload != PayloadId()) effects->cold_payloads.push_back(rollout.payload);
    } else {
      if (KeepForPeople(r, m.keep, effects)) {
        payload_bytes_ -= rollout.payload_bytes;
        effects->cold_payloads.push_back(rollout.payload);
      } else {
        FreePayload(rollout.payload, rollout.payload_bytes, effects);
      }
      tables_.RemoveRollout(r);
    }
  });
  source.counters.reserved -= sum.rollouts;
  source.counters.AddTrained(sum.groups, sum.rollouts, sum.tokens);
  const auto same = [&](const Unpublished& u) { return u.next == m.next && u.source == id; };
  const auto at = std::find_if(unpublished_.begin(), unpublished_.end(), same);
  if (at != unpublished_.end()) {
    at->credits += group.credits;
  } else {
    unpublished_.push_back({m.next, id, group.credits});
  }
  group.credits = 0;
  if (m.retain) {
    group.state = GroupState::kTrained;
    HoldOf(&retained_, m.step, m.revision).groups.PushBack(tables_.groups(), slot);
    return;
  }
  history_.AddTrained(m.step, sum);
  CloseGroup(slot, CloseReason::kComplete, effects);
}

void Machine::Run(const codec::StepCommitted& m, Effects* effects) {
  std::vector<uint32_t> slots;
  if (const StepHold* hold = FindHold(&holds_, m.step)) slots = GroupsOf(tables_.groups(), *hold);
  for (uint32_t slot : slots) {
    LeaveList(slot);
    CommitGroup(slot, m, effects);
  }
  kept_.Trim(m.keep, &effects->dead_payloads);
  history_.Begin(m.step, curriculum_);
  if (m.next.branch == versions_.branch) RaiseFloor(m.next.number, effects);
  ReleaseCredits();
}

void Machine::Run(const codec::StepReplanned& m, Effects*) {
  StepHold* hold = FindHold(&holds_, m.step);
  if (hold != nullptr) hold->revision = m.revision;
}

void Machine::Send(codec::ToLedger message, Effects* effects) {
  effects->to_ledger.push_back(outbox_.Add(codec::Encode(message)));
}

}  // namespace forebay::shard
