// Why a step waits, for people.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ledger/primary.h"

namespace forebay::ledger {
namespace {

constexpr size_t kReasonsShown = 3;
constexpr size_t kShardsNamed = 3;

}  // namespace

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

// What most shards say comes first; the text stays short however many there are.
void Primary::AppendShards(const Step& step, std::string* text) const {
  std::map<std::string, std::vector<size_t>> by_reason;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const bool silent = std::any_of(step.requests.begin(), step.requests.end(),
                                    [i](const auto& request) { return request.shard.value == i; });
    if (silent) by_reason["asked, and has not answered"].push_back(i);
    const std::string& reason = shards_[i].summary.reason;
    if (!reason.empty()) by_reason[reason].push_back(i);
  }
  std::vector<std::pair<std::string, std::vector<size_t>>> reasons(by_reason.begin(),
                                                                   by_reason.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::set<size_t> left_out;
  for (size_t i = 0; i < reasons.size(); ++i) {
    const auto& [reason, shards] = reasons[i];
    if (i >= kReasonsShown) {
      left_out.insert(shards.begin(), shards.end());
      continue;
    }
    absl::StrAppend(text, shards.size() == 1 ? "; shard " : "; shards ");
    for (size_t k = 0; k < std::min(shards.size(), kShardsNamed); ++k) {
      absl::StrAppend(text, k == 0 ? "" : ", ", shards[k]);
    }
    if (shards.size() > kShardsNamed) {
      absl::StrAppend(text, " and ", shards.size() - kShardsNamed, " more");
    }
    absl::StrAppend(text, ": ", reason);
  }
  if (!left_out.empty()) {
    absl::StrAppend(text, "; and ", left_out.size(),
                    left_out.size() == 1 ? " more shard" : " more shards");
  }
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
  AppendShards(step, &text);
  return text;
}

}  // namespace forebay::ledger
