// Why a step waits, for people.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ledger/primary.h"

namespace forebay::ledger {

std::string Primary::Waiting(StepId id, uint64_t now_ms) const {
  const Step* step = state_.step(id);
  if (step == nullptr) return absl::StrCat("step ", id.value, " is not open");
  switch (step->state) {
    case StepState::kOpen:
      return WaitingForGroups(*step, now_ms);
    case StepState::kReserved:
      return absl::StrCat("waiting for the advantages of ", step->rollouts.size(), " rollouts");
    case StepState::kAborted:
      return absl::StrCat("aborted: ", step->failure);
    case StepState::kSealed:
    case StepState::kCommitted:
      return "";
  }
  return "";
}

std::string Primary::WaitingForGroups(const Step& step, uint64_t now_ms) const {
  const Ready ready = ReadyFor(step);
  std::string text;
  if (step.spec.groups > 0) {
    text = absl::StrCat("waiting for groups: ", step.groups.size(), " of ", step.spec.groups,
                        " reserved, ", ready.groups, " ready, ");
  } else {
    text = absl::StrCat("waiting for tokens: ", step.totals.tokens, " of ", step.spec.tokens,
                        " reserved, ", ready.tokens, " ready, ");
  }
  absl::StrAppend(&text, ready.in_flight, " attempts in flight");
  for (StepId id = state_.next_step(); id < step.step; id = StepId(id.value + 1)) {
    const Step* older = state_.step(id);
    if (older != nullptr && older->state == StepState::kOpen) {
      absl::StrAppend(&text, "; step ", id.value, " comes first");
    }
  }
  if (const uint64_t end = LateWaitEnd(step); end > now_ms) {
    absl::StrAppend(&text, "; waits for ", ready.waited_for, " stale attempts, at most ",
                    (end - now_ms + 999) / 1000, " s more");
  }
  if (!std::any_of(state_.sources().begin(), state_.sources().end(),
                   [&](const Source& source) { return Eligible(step, source.id); })) {
    absl::StrAppend(&text, "; there is no train source");
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    uint64_t unanswered = 0;
    for (const GroupRequest& request : step.requests) unanswered += request.shard.value == i;
    if (unanswered > 0) absl::StrAppend(&text, "; shard ", i, " was asked and has not answered");
    const std::string& reason = shards_[i].summary.reason;
    if (!reason.empty()) absl::StrAppend(&text, "; shard ", i, ": ", reason);
  }
  return text;
}

}  // namespace forebay::ledger
