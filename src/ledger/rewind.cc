// Going back: the steps after one are taken back, and a new branch of versions begins.
//
// Taken back are committed steps, and what is open after them. In replay those that keep their
// payloads become sealed steps again, with the plan that they had; those that an earlier rewind
// serves again and that were not committed since are among them. The generation ends: every rank
// attaches anew, and learns where the run stands. Revisions of the new branch are above all of the
// old ones, so that no two plans of a step have the same number.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ledger/limits.h"
#include "ledger/state.h"

namespace forebay::ledger {

const PastRewind* State::FindRewind(uint64_t request_id) const {
  for (const PastRewind& past : rewinds_) {
    if (past.request_id == request_id) return &past;
  }
  return nullptr;
}

StepId State::oldest_replay() const {
  StepId oldest(next_step_.value - 1);
  for (auto it = steps_.lower_bound(next_step_); it != steps_.begin();) {
    --it;
    if (!it->second.retained) break;
    oldest = StepId(it->first.value - 1);
  }
  return oldest;
}

PolicyVersion State::VersionAfter(StepId id) const {
  return id == checkpoint_.step ? checkpoint_.version : step(id)->next_version;
}

absl::Status State::CheckOne(const Rewind& c) const {
  if (c.request_id == 0) return absl::InvalidArgumentError("request_id: 0, any number but 0");
  if (c.reason.size() > kReasonBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("reason: ", c.reason.size(), " bytes, at most ", kReasonBytesMax));
  }
  if (const PastRewind* past = FindRewind(c.request_id)) {
    if (past->step == c.step && past->replay == c.replay) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "request_id: ", c.request_id, " was of a ", past->replay ? "replay" : "fresh rewind",
        " to step ", past->step.value, "; choose another one"));
  }
  if (c.generation != Generation()) FOREBAY_RETURN_IF_ERROR(CheckGeneration(c.generation));
  if (c.step >= next_step_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "step: ", c.step.value, " is not committed; the last one that is: ", next_step_.value - 1));
  }
  if (c.step < checkpoint_.step) {
    return absl::FailedPreconditionError(absl::StrCat("step: ", c.step.value, ", at least ",
                                                      checkpoint_.step.value,
                                                      ", which the last checkpoint covers"));
  }
  if (c.step != checkpoint_.step && step(c.step) == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("step: ", c.step.value, " was committed more than ", kCommittedStepsKept,
                     " steps ago; go back to ", steps_.begin()->first.value, " or later, or to ",
                     checkpoint_.step.value, ", which the last checkpoint covers"));
  }
  if (c.replay && c.step < oldest_replay()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "replay: the payloads of step ", oldest_replay().value,
        " are gone (storage.retention_bytes_max), so that the oldest step to replay from is ",
        oldest_replay().value, ", not ", c.step.value, "; ask for fresh rollouts instead"));
  }
  return CheckChannels();
}

absl::Status State::Run(const Rewind& c, Tag tag, Effects* effects) {
  if (const PastRewind* past = FindRewind(c.request_id)) {
    Answer(tag, past->reply, effects);
    return absl::OkStatus();
  }
  StepId served_again = c.step;
  if (c.replay) {
    served_again = StepId(next_step_.value - 1);
    for (const Step* next = step(next_step_); next != nullptr && next->served_again;) {
      served_again = next->step;
      next = step(StepId(next->step.value + 1));
    }
  }
  RewindReply reply;
  reply.taken_back = next_step_.value - 1 - c.step.value;
  committed_version_ = {branch() + 1, VersionAfter(c.step).number};
  branch_begin_ = committed_version_;
  reply.served_again = TakeBack(c.step, served_again, effects);
  next_step_ = StepId(c.step.value + 1);
  fenced_revision_ = newest_revision_;
  pending_.reset();
  drift_.reports.Drop(next_step_);
  drift_.hold.reset();
  rollouts_since_published_ = 0;
  if (generation_ != Generation()) {
    generation_ = Generation(generation_.value + 1);
    ++counters_.generations;
    places_.clear();
  }
  ++counters_.rewinds;
  counters_.steps_taken_back += reply.taken_back;
  counters_.steps_served_again += reply.served_again;
  versions_ = CurrentVersionState();
  SendToAll(codec::Rewound{c.step, served_again, committed_version_, versions_}, effects);
  reply.next_step = next_step_;
  reply.train_version = committed_version_;
  rewinds_.push_back({c.request_id, c.step, c.replay, reply});
  if (rewinds_.size() > kRewindsRemembered) rewinds_.pop_front();
  Answer(tag, reply, effects);
  return absl::OkStatus();
}

uint64_t State::TakeBack(StepId last, StepId served_again, Effects* effects) {
  uint64_t again = 0;
  for (auto it = steps_.upper_bound(last); it != steps_.end();) {
    Step& step = it->second;
    effects->steps_changed.push_back(step.step);
    if (step.step > served_again) {
      counters_.steps_aborted += step.live();
      step.Clear(&effects->dead_payloads);
      it = steps_.erase(it);
      continue;
    }
    DropWritten(step, effects);
    step.state = StepState::kSealed;
    step.retained = false;
    step.served_again = true;
    step.train_version.branch = committed_version_.branch;
    step.next_version.branch = committed_version_.branch;
    ++again;
    ++it;
  }
  return again;
}

}  // namespace forebay::ledger
