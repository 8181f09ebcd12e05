#include "rollout/tables.h"

#include <utility>

#include "base/check.h"

namespace forebay::rollout {

uint32_t Tables::AddGroup(TaskId task, uint32_t attempts, uint64_t sequence) {
  FOREBAY_CHECK(attempts >= 1 && attempts <= kAttemptsPerGroupMax);
  const uint32_t slot = groups_.Add();
  GroupRecord& group = groups_[slot];
  group.task = task;
  group.sequence = sequence;
  group.attempts = static_cast<uint16_t>(attempts);
  uint32_t previous = kNone;
  for (uint32_t number = 0; number < attempts; ++number) {
    const uint32_t a = attempts_.Add();
    AttemptRecord& attempt = attempts_[a];
    attempt.group = slot;
    attempt.number = static_cast<uint16_t>(number);
    if (previous == kNone) {
      group.first_attempt = group.pending_head = a;
    } else {
      attempts_[previous].next = attempts_[previous].link = a;
    }
    previous = a;
  }
  group.pending = group.attempts;
  return slot;
}

void Tables::RemoveGroup(uint32_t slot) {
  FOREBAY_CHECK(groups_[slot].state == GroupState::kClosed && groups_[slot].held() == 0);
  ForEachAttempt(slot, [this](uint32_t a) { attempts_.Remove(a); });
  groups_.Remove(slot);
}

void Tables::RemovePending(GroupRecord& group, uint32_t a) {
  uint32_t previous = kNone;
  for (uint32_t p = group.pending_head; p != a; p = attempts_[p].link) {
    FOREBAY_CHECK(p != kNone);
    previous = p;
  }
  (previous == kNone ? group.pending_head : attempts_[previous].link) = attempts_[a].link;
  attempts_[a].link = kNone;
  --group.pending;
}

uint32_t Tables::Lease(uint32_t slot, uint32_t session, uint32_t version) {
  GroupRecord& group = groups_[slot];
  const uint32_t a = group.pending_head;
  FOREBAY_CHECK(a != kNone);
  AttemptRecord& attempt = attempts_[a];
  group.pending_head = attempt.link;
  --group.pending;
  ++group.leased;
  attempt.link = kNone;
  attempt.state = AttemptState::kLeased;
  attempt.session = session;
  attempt.version = version;
  attempt.flags &= ~(AttemptRecord::kReported | AttemptRecord::kTaken);
  ++attempt.token;
  return a;
}

void Tables::MakePending(uint32_t a) {
  AttemptRecord& attempt = attempts_[a];
  GroupRecord& group = groups_[attempt.group];
  FOREBAY_CHECK(attempt.state == AttemptState::kLeased || attempt.state == AttemptState::kDone);
  if (attempt.state == AttemptState::kLeased) --group.leased;
  attempt.state = AttemptState::kPending;
  attempt.session = kNone;
  attempt.link = group.pending_head;
  group.pending_head = a;
  ++group.pending;
}

void Tables::Settle(uint32_t a, AttemptState state) {
  AttemptRecord& attempt = attempts_[a];
  GroupRecord& group = groups_[attempt.group];
  if (attempt.state == AttemptState::kLeased) {
    --group.leased;
  } else {
    FOREBAY_CHECK(attempt.state == AttemptState::kPending);
    RemovePending(group, a);
  }
  attempt.state = state;
  attempt.session = kNone;
}

namespace {

uint64_t BytesOf(const std::vector<SequenceMeta>& sequences) {
  uint64_t bytes = sequences.size() * sizeof(SequenceMeta);
  for (const SequenceMeta& s : sequences) bytes += s.versions.size() * sizeof(VersionRun);
  return bytes;
}

}  // namespace

// Without an owner, so that it costs a plain rollout nothing.
Tables::SequencesRef Tables::NoSequences() {
  static constinit const std::vector<SequenceMeta> kEmpty;
  return {SequencesRef(), &kEmpty};
}

Tables::SequencesRef Tables::WithVersions(std::span<const SequenceMeta> sequences,
                                          PolicyVersion assigned) {
  std::vector<SequenceMeta> stored(sequences.begin(), sequences.end());
  for (SequenceMeta& sequence : stored) {
    if (sequence.versions.empty()) {
      sequence.versions.push_back({0, assigned, sequence.loss_tokens});
    }
  }
  return std::make_shared<const std::vector<SequenceMeta>>(std::move(stored));
}

void Tables::SetSequences(uint32_t slot, SequencesRef sequences) {
  while (sequences_.size() <= slot) sequences_.Append();
  SequencesRef& place = sequences_[slot];
  if (place != nullptr) sequence_bytes_ -= BytesOf(*place);
  if (sequences != nullptr) sequence_bytes_ += BytesOf(*sequences);
  place = std::move(sequences);
}

uint32_t Tables::AddRollout(uint32_t a, std::span<const SequenceMeta> sequences,
                            PolicyVersion assigned, bool rewarded) {
  const uint32_t slot = rollouts_.Add();
  RolloutRecord& rollout = rollouts_[slot];
  rollout.attempt = a;
  for (const SequenceMeta& sequence : sequences) {
    rollout.tokens += sequence.tokens;
    rollout.loss_tokens += sequence.loss_tokens;
  }
  const SequenceMeta& first = sequences.front();
  rollout.prompt_tokens = first.prompt_tokens;
  const bool plain = sequences.size() == 1 && first.versions.empty() && !first.advantage;
  SetSequences(slot, plain ? NoSequences() : WithVersions(sequences, assigned));
  if (!plain) {
    assigned.number = VersionBy(codec::LagOf::kOldest, sequences, assigned.number);
  }
  rollout.version = assigned;
  attempts_[a].rollout = slot;
  GroupRecord& group = groups_[attempts_[a].group];
  if (rewarded) {
    rollout.flags |= RolloutRecord::kRewarded;
    ++group.rewarded;
  } else {
    ++group.unrewarded;
  }
  return slot;
}

void Tables::SetRewarded(uint32_t slot) {
  GroupRecord& group = groups_[attempts_[rollouts_[slot].attempt].group];
  FOREBAY_CHECK((rollouts_[slot].flags & RolloutRecord::kRewarded) == 0);
  rollouts_[slot].flags |= RolloutRecord::kRewarded;
  --group.unrewarded;
  ++group.rewarded;
}

void Tables::RemoveRollout(uint32_t slot) {
  RolloutRecord& rollout = rollouts_[slot];
  AttemptRecord& attempt = attempts_[rollout.attempt];
  GroupRecord& group = groups_[attempt.group];
  if (rollout.flags & RolloutRecord::kRewarded) {
    --group.rewarded;
  } else {
    --group.unrewarded;
  }
  SetSequences(slot, nullptr);
  attempt.rollout = kNone;
  rollouts_.Remove(slot);
}

std::span<const SequenceMeta> Tables::Sequences(uint32_t slot, SequenceMeta* scratch) const {
  const RolloutRecord& rollout = rollouts_[slot];
  if (!IsPlain(slot)) return *sequences_[slot];
  scratch->tokens = rollout.tokens;
  scratch->prompt_tokens = rollout.prompt_tokens;
  scratch->loss_tokens = rollout.loss_tokens;
  scratch->advantage.reset();
  scratch->versions.clear();
  return {scratch, 1};
}

uint64_t Tables::memory_bytes() const {
  return groups_.memory_bytes() + attempts_.memory_bytes() + rollouts_.memory_bytes() +
         sequences_.memory_bytes() + sequence_bytes_;
}

}  // namespace forebay::rollout
