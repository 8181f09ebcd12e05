#include "shard/primary.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "shard/check_command.h"
#include "shard/machine.h"
#include "shard/timers.h"
#include "shard/waiters.h"

namespace forebay::shard {

using rollout::AttemptRecord;
using rollout::AttemptState;
using rollout::CloseReason;
using rollout::GroupRecord;
using rollout::GroupState;
using rollout::RolloutRecord;

namespace {

// Waiters that are looked at after one command, when something is there but not for the first of
// them.
constexpr int kWaitersLookedAt = 8;

// Of an attempt: its lease, or the wait for its rollout's reward.
struct AttemptClock {
  uint64_t since_ms = 0;
  uint32_t generated_tokens = 0;
};

// Of a session, by its slot.
struct Heard {
  SessionId session;  // who had the slot then
  uint64_t seen_ms = 0;
  // The newest request of which Assigns are logged and not applied, and how many.
  uint64_t assigning = 0;
  uint32_t assigns = 0;
};

// Of a group: its deadline. It may outlive the group, until another group has the slot.
struct GroupClock {
  GroupId group;
};

AssignReply Empty(const char* reason, absl::Status status = absl::OkStatus()) {
  AssignReply reply;
  reply.reason = reason;
  reply.status = std::move(status);
  return reply;
}

const char* AbandonReason(CloseReason reason) {
  switch (reason) {
    case CloseReason::kTaskRemoved:
      return "task_removed";
    case CloseReason::kRewound:
      return "rewound";
    case CloseReason::kNone:
    case CloseReason::kComplete:
    case CloseReason::kBudget:
    case CloseReason::kOperator:
      break;
  }
  return "group_done";
}

}  // namespace

class Primary::Impl {
 public:
  Impl(const State& state, uint64_t now_ms, const PrimaryOptions& options);

  void Acquire(uint64_t now_ms, Tag tag, const Assign& request, uint32_t wait_ms, Output* output);
  void Applied(uint64_t now_ms, const Command& command, Output* output);
  RenewReply Renew(uint64_t now_ms, SessionId session, std::span<const LeaseRef> leases,
                   std::span<const uint32_t> generated_tokens);
  void Tick(uint64_t now_ms, Output* output);
  uint64_t NextTick() const;
  void SetMemory(uint64_t free, uint64_t expected_rollout_bytes);
  void HoldBack(std::vector<SourceId> sources);
  codec::ReadySummary Summary() const;
  Available WhatIsAvailable(std::vector<SourceId> sources = {}) const;
  void Seen(uint64_t now_ms, SessionId session);
  // Nullptr: nothing was heard of it.
  const Heard* FindHeard(SessionId session) const;

  const Machine& machine;
  const PrimaryOptions options;
  uint32_t first_token = 1;
  Waiters waiters;
  Timers<AttemptClock> attempts;
  Timers<GroupClock> groups;
  std::vector<Heard> heard;  // by the session's slot
  uint64_t claimed = 0;      // attempts that Assigns on their way to Applied may take
  bool memory_known = false;
  uint64_t free_bytes = 0;
  double expected_bytes = 0;
  std::vector<SourceId> held_back;
  bool draining = false;
  bool recheck = false;  // there may be room for those who wait, though no command was applied

 private:
  const rollout::Tables& tables() const { return machine.tables(); }
  const codec::SourceSettings& SettingsOf(uint32_t group) const {
    return machine.SettingsOf(tables().group(group).task.source());
  }
  uint32_t LeaseMs(uint32_t group) const;
  struct Room {
    uint32_t groups = 0;  // that fit into the memory that is free
    uint64_t open = 0;
  };
  Room RoomForGroups() const;
  uint32_t NewGroupsMax() const;
  bool HeldBack(SourceId source) const {
    return std::ranges::find(held_back, source) != held_back.end();
  }
  Available Narrow(uint32_t new_groups_max, Assign* request) const;
  Heard& HeardOf(uint32_t session);
  void Send(Tag tag, Assign request, Output* output);
  void Wake(Output* output);
  void StartLeases(uint64_t now_ms, const std::vector<LeaseRef>& leases);
  void StartGroup(uint64_t now_ms, uint32_t group);
  void FollowAttempt(uint64_t now_ms, AttemptId id);
  void RenewOne(uint64_t now_ms, uint32_t session, const LeaseRef& lease, uint32_t generated,
                RenewReply* reply);
  const char* Abandon(uint32_t session, const LeaseRef& lease, uint32_t* attempt) const;
  void AttemptsDue(uint64_t now_ms, Output* output);
  void GroupsDue(uint64_t now_ms, GroupsTimedOut* timed_out);

  std::vector<uint32_t> due_;
};

Primary::Impl::Impl(const State& state, uint64_t now_ms, const PrimaryOptions& o)
    : machine(state.machine()), options(o), waiters(now_ms), attempts(now_ms), groups(now_ms) {
  for (uint32_t slot = 0; slot < tables().attempts().size(); ++slot) {
    if (!tables().attempts().InUse(slot)) continue;
    const AttemptRecord& attempt = tables().attempt(slot);
    const AttemptId id = tables().IdOfAttempt(slot);
    if (attempt.state == AttemptState::kLeased) StartLeases(now_ms, {{id, attempt.token}});
    FollowAttempt(now_ms, id);
  }
}

uint32_t Primary::Impl::LeaseMs(uint32_t group) const {
  return machine.curriculum().source(tables().group(group).task.source())->lease_ms();
}

// Starts the clocks of those that are still held. Leases come by group, so what a group decides is
// looked up once.
void Primary::Impl::StartLeases(uint64_t now_ms, const std::vector<LeaseRef>& leases) {
  uint32_t group = kNone;
  uint64_t due_ms = 0;
  for (const LeaseRef& lease : leases) {
    const uint32_t slot = tables().Find(lease.attempt);
    if (slot == kNone) continue;
    const AttemptRecord& attempt = tables().attempt(slot);
    if (attempt.token != lease.token || attempt.state != AttemptState::kLeased) continue;
    if (attempt.group != group) {
      group = attempt.group;
      due_ms = now_ms + LeaseMs(group);
      StartGroup(now_ms, group);
    }
    attempts.Set(slot, due_ms) = AttemptClock{now_ms, 0};
  }
}

void Primary::Impl::StartGroup(uint64_t now_ms, uint32_t group) {
  const GroupClock* clock = groups.data(group);
  const GroupId id = tables().IdOfGroup(group);
  if (clock != nullptr && clock->group == id) return;
  // The group that had the slot before may have left its clock.
  groups.Cancel(group);
  const uint64_t deadline_ms = SettingsOf(group).complete_deadline_ms;
  if (deadline_ms == 0 || tables().group(group).eval != kNone) return;
  groups.Set(group, now_ms + deadline_ms) = {id};
}

// After its attempt's state may have changed: the lease's clock ends, that of a missing reward
// starts.
void Primary::Impl::FollowAttempt(uint64_t now_ms, AttemptId id) {
  const uint32_t slot = tables().Find(id);
  if (slot == kNone) return;
  const AttemptRecord& attempt = tables().attempt(slot);
  if (attempt.state == AttemptState::kLeased) return;
  const bool unrewarded = attempt.rollout != kNone &&
                          (tables().rollout(attempt.rollout).flags & RolloutRecord::kRewarded) == 0;
  if (!unrewarded) return attempts.Cancel(slot);
  const uint64_t timeout_ms = SettingsOf(attempt.group).reward_timeout_ms;
  attempts.Set(slot, now_ms + timeout_ms) = AttemptClock{now_ms, 0};
}

// The expected bytes of open groups have their place; new groups get what is left.
Primary::Impl::Room Primary::Impl::RoomForGroups() const {
  if (!memory_known) return {UINT32_MAX, 0};
  double expected = 0;
  double per_group = 1;
  uint64_t open = 0;
  for (const auto& source : machine.curriculum().sources()) {
    if (source->settings().purpose != codec::Purpose::kTrain) continue;
    const SourceState& state = machine.sources()[source->id().value];
    const double bytes = state.payload_mean > 0 ? state.payload_mean : expected_bytes;
    expected += bytes * static_cast<double>(state.unfinished);
    per_group = std::max(per_group, bytes * source->settings().attempts_per_task);
    open += state.open.size();
  }
  const double room = static_cast<double>(free_bytes) - expected;
  if (room < per_group) return {0, open};
  return {static_cast<uint32_t>(std::min(room / per_group, 4294967295.0)), open};
}

// With nothing open one group is begun all the same: what does not fit then never fits.
uint32_t Primary::Impl::NewGroupsMax() const {
  const Room room = RoomForGroups();
  return room.groups == 0 && room.open == 0 && claimed == 0 ? 1 : room.groups;
}

Heard& Primary::Impl::HeardOf(uint32_t session) {
  if (session >= heard.size()) heard.resize(session + 1);
  Heard& found = heard[session];
  const SessionId id = machine.sessions()[session].id;
  if (found.session != id) found = {.session = id};
  return found;
}

const Heard* Primary::Impl::FindHeard(SessionId session) const {
  const uint32_t slot = machine.sessions().Find(session);
  if (slot >= heard.size() || heard[slot].session != session) return nullptr;
  return &heard[slot];
}

void Primary::Impl::Seen(uint64_t now_ms, SessionId session) {
  const uint32_t slot = machine.sessions().Find(session);
  if (slot != kNone) HeardOf(slot).seen_ms = now_ms;
}

// Takes out of the request what it may not get now; then what there is for it.
Available Primary::Impl::Narrow(uint32_t new_groups_max, Assign* request) const {
  request->new_groups_max = std::min(request->new_groups_max, new_groups_max);
  if (!held_back.empty()) {
    if (request->sources.empty()) {
      for (const auto& source : machine.curriculum().sources()) {
        request->sources.push_back(source->id());
      }
    }
    std::erase_if(request->sources, [this](SourceId source) { return HeldBack(source); });
    if (request->sources.empty()) return {.attempts = 0, .reason = "memory"};
  }
  return machine.WhatIsAvailable(*request);
}

void Primary::Impl::Send(Tag tag, Assign request, Output* output) {
  claimed += request.max;
  const uint32_t slot = machine.sessions().Find(request.session);
  if (slot != kNone) {
    Heard& session = HeardOf(slot);
    if (std::exchange(session.assigning, request.request_id) != request.request_id) {
      session.assigns = 0;
    }
    ++session.assigns;
  }
  request.first_token = first_token;
  output->commands.emplace_back(tag, Command(std::move(request)));
}

void Primary::Impl::Acquire(uint64_t now_ms, Tag tag, const Assign& request, uint32_t wait_ms,
                            Output* output) {
  const auto answer = [&](AssignReply reply) {
    output->replies.push_back({tag, Reply(std::move(reply))});
  };
  absl::Status status = CheckAssign(machine, request, options.assignments_max);
  if (!status.ok()) return answer(Empty("", std::move(status)));
  const uint32_t slot = machine.sessions().Find(request.session);
  Heard& from = HeardOf(slot);
  from.seen_ms = now_ms;
  // A client asks one thing at a time: a request that still waits has been given up.
  if (std::optional<Waiter> old = waiters.TakeOfSession(request.session)) {
    output->replies.push_back({old->tag, Reply(Empty("superseded"))});
  }
  const SessionRecord& session = machine.sessions()[slot];
  if (request.request_id <= session.last_request) {
    AssignReply reply;
    if (request.request_id == session.last_request) reply = machine.LastAnswer(session);
    if (reply.assignments.empty()) reply.reason = "superseded";
    return answer(std::move(reply));
  }
  Assign assign = request;
  const bool logged = from.assigns > 0 && from.assigning == request.request_id;
  if (logged) {
    // It follows the one that is logged already, and is answered as that one is.
    assign.new_groups_max = 0;
    return Send(tag, std::move(assign), output);
  }
  if (draining) return answer(Empty("draining"));
  const Available available = Narrow(NewGroupsMax(), &assign);
  if (available.attempts > claimed) return Send(tag, std::move(assign), output);
  if (wait_ms == 0) return answer(Empty(available.reason));
  if (waiters.size() >= options.waiters_max) {
    return answer(
        Empty(available.reason, absl::ResourceExhaustedError(absl::StrCat(
                                    "wait_ms: ", waiters.size(), " requests wait already"))));
  }
  waiters.Add({tag, request}, now_ms + std::min(wait_ms, options.wait_ms_max));
}

Available Primary::Impl::WhatIsAvailable(std::vector<SourceId> sources) const {
  Assign any;
  any.max = 1;
  any.sources = std::move(sources);
  any.loads_any_version = true;
  any.new_groups_max = UINT32_MAX;
  return Narrow(NewGroupsMax(), &any);
}

// As many as can get something, in turn; those for whom nothing is there go to the end.
void Primary::Impl::Wake(Output* output) {
  if (waiters.empty() || draining || WhatIsAvailable().attempts <= claimed) return;
  const uint32_t new_groups = NewGroupsMax();
  for (int looked = 0; looked < kWaitersLookedAt && !waiters.empty();) {
    Assign assign = waiters.front().request;
    if (Narrow(new_groups, &assign).attempts > claimed) {
      Send(waiters.TakeFront().tag, std::move(assign), output);
    } else {
      waiters.MoveFrontToBack();
      ++looked;
    }
  }
}

void Primary::Impl::Applied(uint64_t now_ms, const Command& command, Output* output) {
  if (const auto* assign = std::get_if<Assign>(&command)) {
    claimed -= std::min<uint64_t>(claimed, assign->max);
    const uint32_t slot = machine.sessions().Find(assign->session);
    if (slot != kNone) {
      const SessionRecord& session = machine.sessions()[slot];
      if (session.last_request == assign->request_id) StartLeases(now_ms, session.answer);
      Heard& from = HeardOf(slot);
      if (from.assigning == assign->request_id && from.assigns > 0) --from.assigns;
    }
  } else if (const auto* put = std::get_if<PutRollouts>(&command)) {
    Seen(now_ms, put->session);
    for (const RolloutMeta& meta : put->rollouts) FollowAttempt(now_ms, meta.lease.attempt);
  } else if (const auto* release = std::get_if<Release>(&command)) {
    for (const LeaseRef& lease : release->leases) FollowAttempt(now_ms, lease.attempt);
  } else if (const auto* fail = std::get_if<Fail>(&command)) {
    for (const LeaseRef& lease : fail->leases) FollowAttempt(now_ms, lease.attempt);
  } else if (const auto* damaged = std::get_if<DropDamaged>(&command)) {
    for (const DamagedPayload& lost : damaged->payloads) FollowAttempt(now_ms, lost.attempt);
  } else if (const auto* open = std::get_if<OpenSession>(&command)) {
    Seen(now_ms, open->session);
  }
  Wake(output);
}

// Why the holder should stop; "" if it need not. `attempt` is set for a lease that is live.
const char* Primary::Impl::Abandon(uint32_t session, const LeaseRef& lease, uint32_t* slot) const {
  *slot = kNone;
  const uint32_t found = tables().Find(lease.attempt);
  if (session == kNone || found == kNone) return "lease_lost";
  const AttemptRecord& attempt = tables().attempt(found);
  const GroupRecord& group = tables().group(attempt.group);
  if (attempt.token != lease.token) return "lease_lost";
  if (attempt.state == AttemptState::kClosed) return AbandonReason(group.close_reason);
  if (attempt.state != AttemptState::kLeased || attempt.session != session) return "lease_lost";
  *slot = found;
  const codec::SourceSettings& settings = SettingsOf(attempt.group);
  const bool by_oldest =
      settings.lag_of == codec::LagOf::kOldest || settings.lag_of == codec::LagOf::kStart;
  const bool dropped =
      settings.late == codec::LateRule::kDrop || settings.late == codec::LateRule::kWait;
  if (group.eval == kNone && by_oldest && dropped && machine.UselessAt(attempt.version, settings)) {
    return "too_stale";
  }
  return "";
}

void Primary::Impl::RenewOne(uint64_t now_ms, uint32_t session, const LeaseRef& lease,
                             uint32_t generated, RenewReply* reply) {
  uint32_t slot = kNone;
  const char* reason = Abandon(session, lease, &slot);
  LeaseAction action = reason[0] == '\0' ? LeaseAction::kContinue : LeaseAction::kAbandon;
  if (action == LeaseAction::kContinue) {
    const uint32_t lease_ms = LeaseMs(tables().attempt(slot).group);
    // An expiry that is on its way is not called back.
    if (AttemptClock* clock = attempts.data(slot)) {
      clock->generated_tokens = std::max(clock->generated_tokens, generated);
      attempts.Set(slot, now_ms + lease_ms);
    }
    reply->lease_ms = reply->lease_ms == 0 ? lease_ms : std::min(reply->lease_ms, lease_ms);
    if (draining) {
      action = LeaseAction::kSavePartial;
      reason = "draining";
    }
  }
  reply->actions.push_back(action);
  reply->reasons.push_back(reason);
}

RenewReply Primary::Impl::Renew(uint64_t now_ms, SessionId session,
                                std::span<const LeaseRef> leases,
                                std::span<const uint32_t> generated_tokens) {
  RenewReply reply;
  Seen(now_ms, session);
  const uint32_t slot = machine.sessions().Find(session);
  for (size_t i = 0; i < leases.size(); ++i) {
    RenewOne(now_ms, slot, leases[i], i < generated_tokens.size() ? generated_tokens[i] : 0,
             &reply);
  }
  const bool all_continue = std::all_of(reply.actions.begin(), reply.actions.end(),
                                        [](LeaseAction a) { return a == LeaseAction::kContinue; });
  if (all_continue) {
    reply.actions.clear();
    reply.reasons.clear();
  }
  return reply;
}

void Primary::Impl::AttemptsDue(uint64_t now_ms, Output* output) {
  due_.clear();
  attempts.TakeDue(now_ms, &due_);
  Expire expire;
  GroupsTimedOut timed_out;
  for (uint32_t slot : due_) {
    if (!tables().attempts().InUse(slot)) continue;
    const AttemptRecord& attempt = tables().attempt(slot);
    if (attempt.state == AttemptState::kLeased) {
      expire.leases.push_back({tables().IdOfAttempt(slot), attempt.token});
    } else if (attempt.rollout != kNone &&
               (tables().rollout(attempt.rollout).flags & RolloutRecord::kRewarded) == 0) {
      timed_out.unrewarded.push_back(tables().IdOfAttempt(slot));
    }
  }
  if (!expire.leases.empty()) output->commands.emplace_back(0, std::move(expire));
  GroupsDue(now_ms, &timed_out);
  if (!timed_out.groups.empty() || !timed_out.unrewarded.empty()) {
    output->commands.emplace_back(0, std::move(timed_out));
  }
}

void Primary::Impl::GroupsDue(uint64_t now_ms, GroupsTimedOut* timed_out) {
  due_.clear();
  groups.TakeDue(now_ms, &due_);
  for (uint32_t slot : due_) {
    if (!tables().groups().InUse(slot)) continue;
    const GroupRecord& group = tables().group(slot);
    if (group.state != GroupState::kOpen || (group.flags & GroupRecord::kPastDeadline)) continue;
    timed_out->groups.push_back(tables().IdOfGroup(slot));
  }
}

void Primary::Impl::SetMemory(uint64_t free, uint64_t expected_rollout_bytes) {
  const uint32_t before = NewGroupsMax();
  memory_known = true;
  free_bytes = free;
  expected_bytes = static_cast<double>(expected_rollout_bytes);
  recheck |= before == 0 && NewGroupsMax() > 0;
}

void Primary::Impl::HoldBack(std::vector<SourceId> sources) {
  recheck |= held_back != sources;
  held_back = std::move(sources);
}

void Primary::Impl::Tick(uint64_t now_ms, Output* output) {
  recheck = false;
  AttemptsDue(now_ms, output);
  std::vector<Waiter> over;
  waiters.TakeDue(now_ms, &over);
  for (Waiter& waiter : over) {
    const Available available = Narrow(NewGroupsMax(), &waiter.request);
    if (available.attempts > claimed && !draining) {
      Send(waiter.tag, std::move(waiter.request), output);
    } else {
      output->replies.push_back({waiter.tag, Reply(Empty(available.reason))});
    }
  }
  while (draining && !waiters.empty()) {
    output->replies.push_back({waiters.TakeFront().tag, Reply(Empty("draining"))});
  }
  Wake(output);
}

uint64_t Primary::Impl::NextTick() const {
  if (recheck && !waiters.empty()) return 0;
  return std::min({attempts.Next(), groups.Next(), waiters.NextDue()});
}

codec::ReadySummary Primary::Impl::Summary() const {
  codec::ReadySummary summary;
  summary.shard = machine.options().shard;
  std::vector<uint64_t> limits;  // of use for idle sources alone
  for (const auto& source : machine.curriculum().sources()) {
    const codec::SourceSettings& settings = source->settings();
    if (settings.purpose != codec::Purpose::kTrain) continue;
    const SourceState& state = machine.sources()[source->id().value];
    codec::ReadySummary::Source& out = summary.sources.emplace_back();
    out.source = source->id();
    out.ready_groups = static_cast<uint32_t>(state.ready.size());
    out.ready_tokens = state.ready.tokens();
    out.open_groups = state.open.size();
    out.in_flight = static_cast<uint32_t>(state.leased.total());
    const uint32_t floor = machine.train_floor();
    if (settings.late == codec::LateRule::kWait && floor >= settings.max_lag) {
      // Of use to the next step, and to none after it.
      out.waited_for = static_cast<uint32_t>(state.leased.CountOf(floor - settings.max_lag));
    }
    out.group_bytes = static_cast<uint64_t>(state.payload_mean * settings.complete_at);
    if (out.ready_groups > 0 || out.in_flight > 0) continue;
    if (limits.empty()) machine.admission().Limits(&limits);
    const SourceSupply supply = machine.SupplyOf(
        *source, limits[source->id().value], HeldBack(source->id()) ? 0 : RoomForGroups().groups);
    out.idle = supply.attempts > 0 ? codec::IdleReason::kNoActors : supply.idle;
  }
  return summary;
}

Primary::Primary(const State& state, uint64_t now_ms, const PrimaryOptions& options)
    : impl_(std::make_unique<Impl>(state, now_ms, options)) {}
Primary::~Primary() = default;

void Primary::Acquire(uint64_t now_ms, Tag tag, const Assign& request, uint32_t wait_ms,
                      Output* output) {
  impl_->Acquire(now_ms, tag, request, wait_ms, output);
}

bool Primary::CancelWait(Tag tag) { return impl_->waiters.TakeOfTag(tag).has_value(); }

void Primary::Propose(uint64_t, Tag tag, Command command, Output* output) {
  if (std::optional<Reply> refusal = RefusalOf(impl_->machine, command)) {
    if (tag != 0) output->replies.push_back({tag, *std::move(refusal)});
    return;
  }
  output->commands.emplace_back(tag, std::move(command));
}

void Primary::Applied(uint64_t now_ms, const Command& command, const Effects&, Output* output) {
  impl_->Applied(now_ms, command, output);
}

RenewReply Primary::Renew(uint64_t now_ms, SessionId session, std::span<const LeaseRef> leases,
                          std::span<const uint32_t> generated_tokens) {
  return impl_->Renew(now_ms, session, leases, generated_tokens);
}

void Primary::Tick(uint64_t now_ms, Output* output) { impl_->Tick(now_ms, output); }
void Primary::HoldBack(std::vector<SourceId> sources) { impl_->HoldBack(std::move(sources)); }
void Primary::SetFirstToken(uint32_t token) { impl_->first_token = token; }
uint64_t Primary::NextTick() const { return impl_->NextTick(); }

void Primary::SetMemory(uint64_t free_bytes, uint64_t expected_rollout_bytes) {
  impl_->SetMemory(free_bytes, expected_rollout_bytes);
}

void Primary::SetDraining(bool draining) {
  impl_->recheck |= impl_->draining != draining;
  impl_->draining = draining;
}
codec::ReadySummary Primary::Summary() const { return impl_->Summary(); }
const char* Primary::IdleReason() const { return impl_->WhatIsAvailable().reason; }

const char* Primary::StandstillReason() const {
  for (const SourceState& source : impl_->machine.sources()) {
    if (source.ready.size() > 0 || source.leased.total() > 0) return "";
  }
  const Available available = impl_->WhatIsAvailable();
  return available.attempts > 0 ? "no_actors" : available.reason;
}

bool Primary::ShortOfMemory(const std::vector<SourceId>& sources) const {
  const Available available = impl_->WhatIsAvailable(sources);
  return available.attempts == 0 && available.reason == std::string_view("memory");
}

LeaseClock Primary::Clock(uint64_t now_ms, AttemptId attempt) const {
  const uint32_t slot = impl_->machine.tables().Find(attempt);
  const AttemptClock* clock = slot == kNone ? nullptr : impl_->attempts.data(slot);
  if (clock == nullptr) return {};
  const uint64_t due_ms = impl_->attempts.due_ms(slot);
  return {now_ms - std::min(now_ms, clock->since_ms), due_ms - std::min(now_ms, due_ms),
          clock->generated_tokens};
}

uint64_t Primary::LastSeen(SessionId session) const {
  const Heard* const heard = impl_->FindHeard(session);
  return heard == nullptr ? 0 : heard->seen_ms;
}

uint64_t Primary::NewestRequest(SessionId session) const {
  const uint32_t slot = impl_->machine.sessions().Find(session);
  if (slot == kNone) return 0;
  const uint64_t answered = impl_->machine.sessions()[slot].last_request;
  const Heard* const heard = impl_->FindHeard(session);
  const bool logged = heard != nullptr && heard->assigns > 0;
  return logged ? std::max(answered, heard->assigning) : answered;
}

size_t Primary::waiters() const { return impl_->waiters.size(); }

}  // namespace forebay::shard
