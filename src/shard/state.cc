#include "shard/state.h"

#include <algorithm>

#include "base/hash.h"
#include "shard/machine.h"

namespace forebay::shard {

using rollout::AttemptRecord;
using rollout::AttemptState;
using rollout::GroupRecord;
using rollout::RolloutRecord;

const char* Name(DropReason reason) {
  static constexpr const char* kNames[kDropReasons] = {
      "filtered_equal", "filtered_single", "filtered_length", "stale",
      "truncated",      "aborted",         "no_reward",       "late",
      "failed",         "budget",          "rewound",         "short",
      "damaged",        "operator"};
  return kNames[static_cast<size_t>(reason)];
}

State::State(const Options& options) : machine_(std::make_unique<Machine>(options)) {}
State::~State() = default;
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;

void State::Apply(const Command& command, Tag tag, Effects* effects) {
  machine_->Apply(command, tag, effects);
}

void State::Snapshot(codec::Writer& writer) const { machine_->Snapshot(writer); }
bool State::Restore(codec::Reader& reader) { return machine_->Restore(reader); }

uint64_t State::Hash() const {
  std::string bytes;
  codec::Writer writer(&bytes);
  machine_->Snapshot(writer);
  return Hash64(bytes);
}

ShardId State::shard() const { return machine_->options().shard; }
const curriculum::Curriculum& State::curriculum() const { return machine_->curriculum(); }
const codec::VersionState& State::versions() const { return machine_->versions(); }
const codec::PeerOutbox& State::to_ledger() const { return machine_->outbox(); }
uint64_t State::from_ledger() const { return machine_->inbox().last(); }
uint64_t State::payload_bytes() const { return machine_->payload_bytes(); }
uint64_t State::retained_bytes() const { return machine_->retained_bytes(); }
uint64_t State::kept_bytes() const { return machine_->kept().payload_bytes(); }
uint64_t State::kept_rollouts() const { return machine_->kept().size(); }
uint64_t State::memory_bytes() const { return machine_->memory_bytes(); }
std::string State::CheckInvariants() const { return machine_->CheckInvariants(); }

double State::BytesPerRollout(uint32_t group_size) {
  return sizeof(RolloutRecord) + sizeof(AttemptRecord) +
         static_cast<double>(sizeof(GroupRecord)) / std::max(group_size, 1u);
}

namespace {

double Ratio(double sum, uint64_t count) {
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

SourceView ViewOf(const curriculum::Source& source, const SourceState& state) {
  SourceView view;
  view.source = source.id();
  view.settings = &source.settings();
  view.counters = &state.counters;
  view.tasks = source.tasks().size();
  view.quarantined = source.quarantined();
  view.epoch = source.epoch();
  view.groups_open = state.open.size();
  view.groups_ready = state.ready.size();
  view.groups_reserved = state.reserved_groups;
  view.ready_tokens = state.ready.tokens();
  view.in_flight = state.leased.total();
  view.outstanding = state.outstanding;
  view.survival = source.survival();
  view.mean_reward = Ratio(state.counters.reward_sum, state.counters.rewarded);
  view.mean_tokens = source.mean_tokens();
  view.mean_duration_ms = source.mean_duration_ms();
  const double accepted = static_cast<double>(state.counters.tokens_accepted);
  const double trained = static_cast<double>(state.counters.tokens_trained);
  view.mean_tokens_dispatched = Ratio(accepted, state.counters.accepted);
  view.mean_tokens_trained = Ratio(trained, state.counters.trained);
  return view;
}

SessionView ViewOf(const SessionRecord& record) {
  return {record.id,     &record.actor, &record.engine, &record.site,  &record.client,
          record.leases, record.pushed, record.failed,  record.version};
}

EvalView ViewOf(const EvalRun& run) {
  EvalView view;
  view.run = run.run;
  view.source = run.source;
  view.version = run.version;
  view.attempts = run.attempts;
  view.done = run.done;
  view.tasks = run.tasks;
  view.tasks_done = run.tasks_done;
  view.rollouts = run.rollouts;
  view.failed = run.failed;
  view.mean_sum = run.mean_sum;
  view.mean_square_sum = run.mean_square_sum;
  view.pass_sums = run.pass_sums;
  view.tokens_sum = run.tokens_sum;
  return view;
}

RolloutView ViewOf(const Machine& machine, uint32_t slot) {
  const rollout::Tables& tables = machine.tables();
  const RolloutRecord& record = tables.rollout(slot);
  const AttemptRecord& attempt = tables.attempt(record.attempt);
  const GroupRecord& group = tables.group(attempt.group);
  RolloutView view;
  view.rollout = tables.IdOfRollout(slot);
  view.group = tables.IdOfGroup(attempt.group);
  view.task = group.task;
  view.attempt = tables.IdOfAttempt(record.attempt);
  view.state = group.state;
  view.status = record.status;
  view.rewarded = (record.flags & RolloutRecord::kRewarded) != 0;
  view.reward = record.reward;
  view.advantage = record.advantage;
  view.tokens = record.tokens;
  view.loss_tokens = record.loss_tokens;
  view.version = record.version;
  view.payload = record.payload;
  view.payload_bytes = record.payload_bytes;
  view.step = machine.StepOf(attempt.group);
  return view;
}

LeaseView ViewOfLease(const Machine& machine, uint32_t slot) {
  const AttemptRecord& attempt = machine.tables().attempt(slot);
  LeaseView view;
  view.attempt = machine.tables().IdOfAttempt(slot);
  view.token = attempt.token;
  view.session = machine.sessions()[attempt.session].id;
  view.task = machine.tables().group(attempt.group).task;
  view.group = machine.tables().IdOfGroup(attempt.group);
  view.number = attempt.number;
  view.version = machine.VersionOf(slot);
  return view;
}

}  // namespace

std::vector<SourceView> State::Sources() const {
  std::vector<SourceView> views;
  const Admission admission = machine_->admission();
  for (const auto& source : curriculum().sources()) {
    views.push_back(ViewOf(*source, machine_->sources()[source->id().value]));
    if (source->settings().purpose != codec::Purpose::kTrain) continue;
    views.back().outstanding_max = admission.LimitShown(*source);
  }
  return views;
}

std::vector<SessionView> State::Sessions() const {
  std::vector<SessionView> views;
  const auto& sessions = machine_->sessions();
  for (uint32_t slot = 0; slot < sessions.size(); ++slot) views.push_back(ViewOf(sessions[slot]));
  return views;
}

std::optional<SessionView> State::Session(SessionId session) const {
  const uint32_t slot = machine_->sessions().Find(session);
  if (slot == kNone) return std::nullopt;
  return ViewOf(machine_->sessions()[slot]);
}

std::vector<LeaseView> State::Leases(uint64_t* cursor, size_t limit) const {
  std::vector<LeaseView> views;
  const auto& attempts = machine_->tables().attempts();
  for (; *cursor < attempts.size() && views.size() < limit; ++*cursor) {
    const uint32_t slot = static_cast<uint32_t>(*cursor);
    const bool leased = attempts.InUse(slot) && attempts[slot].state == AttemptState::kLeased;
    if (leased) views.push_back(ViewOfLease(*machine_, slot));
  }
  if (*cursor >= attempts.size()) *cursor = UINT64_MAX;
  return views;
}

std::vector<RolloutView> State::Rollouts(uint64_t* cursor, size_t limit) const {
  std::vector<RolloutView> views;
  const auto& rollouts = machine_->tables().rollouts();
  for (; *cursor < rollouts.size() && views.size() < limit; ++*cursor) {
    const uint32_t slot = static_cast<uint32_t>(*cursor);
    if (rollouts.InUse(slot)) views.push_back(ViewOf(*machine_, slot));
  }
  if (*cursor >= rollouts.size()) *cursor = UINT64_MAX;
  return views;
}

std::vector<EvalView> State::Evals() const {
  std::vector<const EvalRun*> runs;
  for (const EvalRun& run : machine_->evals()) runs.push_back(&run);
  std::sort(runs.begin(), runs.end(),
            [](const EvalRun* a, const EvalRun* b) { return a->order < b->order; });
  std::vector<EvalView> views;
  for (const EvalRun* run : runs) views.push_back(ViewOf(*run));
  return views;
}

std::optional<EvalView> State::Eval(EvalRunId run) const {
  const uint32_t found = machine_->FindEval(run);
  if (found == kNone) return std::nullopt;
  return ViewOf(machine_->evals()[found]);
}

bool State::LeaseHeld(const LeaseRef& lease) const {
  const uint32_t slot = machine_->tables().Find(lease.attempt);
  if (slot == kNone) return false;
  const AttemptRecord& attempt = machine_->tables().attempt(slot);
  return attempt.state == AttemptState::kLeased && attempt.token == lease.token;
}

std::optional<TaskId> State::TaskOf(AttemptId id) const {
  const uint32_t slot = machine_->tables().Find(id);
  if (slot == kNone) return std::nullopt;
  return machine_->tables().group(machine_->tables().attempt(slot).group).task;
}

}  // namespace forebay::shard
