// Why a step waits, for people.
#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/units.h"
#include "ledger/primary.h"

namespace forebay::ledger {
namespace {

// A run may have thousands of sources, and 256 shards.
constexpr size_t kSourcesNamed = 3;  // of each reason
constexpr size_t kShardsNamed = 3;

const char* NameOf(codec::IdleReason reason) {
  switch (reason) {
    case codec::IdleReason::kNoTasks:
      return "no_tasks";
    case codec::IdleReason::kNoActors:
      return "no_actors";
    case codec::IdleReason::kAdmission:
      return "admission";
    case codec::IdleReason::kMemory:
      return "memory";
    case codec::IdleReason::kPaused:
      return "paused";
    case codec::IdleReason::kNone:
      break;
  }
  return "";
}

std::string ShardsText(const std::vector<size_t>& shards) {
  std::string text = shards.size() == 1 ? "shard " : "shards ";
  for (size_t i = 0; i < std::min(shards.size(), kShardsNamed); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", shards[i]);
  }
  if (shards.size() > kShardsNamed) {
    absl::StrAppend(&text, " and ", shards.size() - kShardsNamed, " more");
  }
  return text;
}

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
  if (const auto& hold = state_.drift().hold) {
    absl::StrAppend(&text, "; held since step ", hold->step.value,
                    ": the engines are too far from the trainer (buffer-ctl kl)");
  }
  if (const uint64_t end = LateWaitEnd(step); end > now_ms) {
    absl::StrAppend(&text, "; waits for ", ready.waited_for, " stale attempts, at most ",
                    (end - now_ms + 999) / 1000, " s more");
  }
  if (!std::any_of(state_.sources().begin(), state_.sources().end(),
                   [&](const Source& source) { return Eligible(step, source.id); })) {
    absl::StrAppend(&text, "; there is no train source");
  }
  if (TooLarge(step)) {
    absl::StrAppend(&text, "; the step needs about ", BytesText(PayloadBytesOf(step)),
                    " of payload memory, memory.payload_bytes_max is ",
                    BytesText(payload_bytes_max_), ": raise it, or open smaller steps");
  }
  return absl::StrCat(text, WhyUnanswered(step), WhoIsAbsent(), WhyIdle(step));
}

std::string Primary::WhyUnanswered(const Step& step) const {
  std::vector<bool> asked(shards_.size());
  for (const GroupRequest& request : step.requests) asked[request.shard.value] = true;
  std::vector<size_t> silent;
  for (size_t i = 0; i < asked.size(); ++i) {
    if (asked[i]) silent.push_back(i);
  }
  if (silent.empty()) return "";
  return absl::StrCat("; ", ShardsText(silent), ": asked, and ",
                      silent.size() == 1 ? "has" : "have", " not answered");
}

std::string Primary::WhoIsAbsent() const {
  std::vector<size_t> absent;
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (state_.absent(ShardId(static_cast<uint8_t>(i)))) absent.push_back(i);
  }
  if (absent.empty()) return "";
  return absl::StrCat("; without ", ShardsText(absent),
                      absent.size() == 1 ? ", which is" : ", which are", " absent");
}

codec::IdleReason Primary::IdleOf(const Source& source) const {
  if (source.settings.paused) return codec::IdleReason::kPaused;
  auto worst = codec::IdleReason::kNone;
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (!Present(ShardId(static_cast<uint8_t>(i)))) continue;
    for (const codec::ReadySummary::Source& seen : shards_[i].summary.sources) {
      if (seen.source != source.id) continue;
      if (seen.idle == codec::IdleReason::kNone) return codec::IdleReason::kNone;
      worst = std::max(worst, seen.idle);
    }
  }
  return worst;
}

// The sources by reason, what asks most of people first.
std::string Primary::WhyIdle(const Step& step) const {
  std::map<codec::IdleReason, std::vector<const Source*>, std::greater<>> idle;
  for (const Source& source : state_.sources()) {
    if (!Eligible(step, source.id)) continue;
    const codec::IdleReason reason = IdleOf(source);
    if (reason != codec::IdleReason::kNone) idle[reason].push_back(&source);
  }
  std::string text;
  for (const auto& [reason, sources] : idle) {
    absl::StrAppend(&text, "; ", NameOf(reason), ": ",
                    sources.size() > 1 ? "sources '" : "source '");
    for (size_t i = 0; i < std::min(sources.size(), kSourcesNamed); ++i) {
      absl::StrAppend(&text, i > 0 ? "', '" : "", sources[i]->settings.name);
    }
    absl::StrAppend(&text, "'");
    if (sources.size() > kSourcesNamed) {
      absl::StrAppend(&text, " and ", sources.size() - kSourcesNamed, " more");
    }
    if (reason != codec::IdleReason::kAdmission) continue;
    const std::string unpublished = Unpublished();
    if (!unpublished.empty()) {
      absl::StrAppend(&text, " (max_lag ", sources[0]->settings.max_lag, ": ", unpublished, ")");
    }
  }
  return text;
}

std::string Primary::Unpublished() const {
  const PolicyVersion published = state_.published().version;
  const PolicyVersion trained = state_.committed_version();
  if (!(published < trained)) return "";
  // After a rewind nothing of the new branch is there to be loaded.
  const bool rewound = published.branch != trained.branch;
  std::string text = rewound ? absl::StrCat("nothing is published since the rewind, step ")
                             : absl::StrCat("published version ", published.number, ", step ");
  absl::StrAppend(&text, state_.next_step().value, " trains on version ",
                  rewound ? absl::StrCat(trained.branch, "/") : "", trained.number);
  const auto& pending = state_.pending();
  if (pending && !(pending->version < trained)) {
    return absl::StrCat(text, ", which is pending: publish it to go on");
  }
  return absl::StrCat(text, ": publish it to go on");
}

uint64_t Primary::GroupsLacking(const Step& step) const {
  if (step.spec.groups > 0) return step.GroupsLacking();
  const uint64_t tokens = step.TokensLacking();
  if (tokens == 0 || step.groups.empty()) return tokens > 0 ? 1 : 0;
  const uint64_t per_group = std::max<uint64_t>(step.totals.tokens / step.groups.size(), 1);
  return (tokens + per_group - 1) / per_group;
}

uint64_t Primary::PayloadBytesOf(const Step& step) const {
  uint64_t held = 0;
  for (const HeldRollout& rollout : step.rollouts) held += rollout.payload_bytes;
  const bool by_tokens = step.spec.groups == 0;
  if (held > 0 && by_tokens) {
    const double per_token = static_cast<double>(held) / static_cast<double>(step.totals.tokens);
    const uint64_t tokens = std::max(step.spec.tokens, step.totals.tokens);
    return static_cast<uint64_t>(per_token * static_cast<double>(tokens));
  }
  if (held > 0) return held + held / step.groups.size() * step.GroupsLacking();
  // The smallest: a wrong alarm is worse than a late one.
  uint64_t group_bytes = 0;
  for (const Shard& shard : shards_) {
    for (const codec::ReadySummary::Source& source : shard.summary.sources) {
      if (source.group_bytes == 0 || !Eligible(step, source.source)) continue;
      if (group_bytes == 0 || source.group_bytes < group_bytes) group_bytes = source.group_bytes;
    }
  }
  return by_tokens ? group_bytes : group_bytes * step.spec.groups;
}

bool Primary::TooLarge(const Step& step) const {
  return payload_bytes_max_ > 0 && step.state == StepState::kOpen &&
         PayloadBytesOf(step) > payload_bytes_max_;
}

std::vector<SourceId> Primary::HeldBack(uint64_t free_payload_bytes) const {
  std::vector<SourceId> held_back;
  const Step* step = Hungry();
  if (step == nullptr || free_payload_bytes >= payload_bytes_max_ / 2) return held_back;
  for (const Source& source : state_.sources()) {
    const bool train = source.settings.purpose == codec::Purpose::kTrain;
    if (train && !Eligible(*step, source.id)) held_back.push_back(source.id);
  }
  return held_back;
}

}  // namespace forebay::ledger
