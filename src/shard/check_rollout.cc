#include "shard/check_rollout.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "shard/limits.h"

namespace forebay::shard {
namespace {

std::string Text(PolicyVersion v) { return absl::StrCat(v.branch, ".", v.number); }

PushOutcome Invalid(const char* field, std::string message) {
  return Refuse(PushResult::kInvalid, field, std::move(message));
}

Refusal CheckVersion(PolicyVersion version, const codec::VersionState& versions,
                     const PolicyVersion* pinned) {
  if (pinned != nullptr) {
    if (version == *pinned) return std::nullopt;
    return Refuse(
        PushResult::kStale, "versions",
        absl::StrCat("version ", Text(version), "; the evaluation is of ", Text(*pinned)));
  }
  // Before the first version of a branch is announced, all of it is from the future.
  if (version.branch > versions.branch ||
      (version.branch == versions.branch && version > versions.announced)) {
    return Invalid("versions",
                   absl::StrCat("version ", Text(version), " was never announced; the newest is ",
                                Text(versions.announced)));
  }
  if (version.branch != versions.branch) {
    return Refuse(PushResult::kStale, "versions",
                  absl::StrCat("version ", Text(version),
                               " is of an abandoned branch; the current one is ", versions.branch));
  }
  return std::nullopt;
}

Refusal CheckRuns(const SequenceMeta& sequence, const codec::VersionState& versions,
                  const PolicyVersion* pinned) {
  if (sequence.versions.size() > kVersionRunsMax) {
    return Invalid("versions",
                   absl::StrCat(sequence.versions.size(), " runs; at most ", kVersionRunsMax));
  }
  uint64_t loss_tokens = 0;
  for (size_t i = 0; i < sequence.versions.size(); ++i) {
    const VersionRun& run = sequence.versions[i];
    const bool rises = i == 0 ? run.offset == 0 : run.offset > sequence.versions[i - 1].offset;
    if (!rises || run.offset >= sequence.tokens) {
      return Invalid("versions.offset",
                     absl::StrCat("offset ", run.offset, " of run ", i,
                                  "; they begin at 0 and rise below ", sequence.tokens));
    }
    loss_tokens += run.loss_tokens;
    if (Refusal refusal = CheckVersion(run.version, versions, pinned)) return refusal;
  }
  if (!sequence.versions.empty() && loss_tokens != sequence.loss_tokens) {
    return Invalid("versions.loss_tokens",
                   absl::StrCat("the runs hold ", loss_tokens, " loss tokens, the sequence ",
                                sequence.loss_tokens));
  }
  return std::nullopt;
}

Refusal CheckSequence(const SequenceMeta& sequence, const codec::VersionState& versions,
                      const PolicyVersion* pinned) {
  if (sequence.tokens == 0) return Invalid("sequences.tokens", "0 tokens; at least 1");
  if (sequence.prompt_tokens > sequence.tokens) {
    return Invalid("sequences.prompt_tokens",
                   absl::StrCat(sequence.prompt_tokens, " prompt tokens of ", sequence.tokens));
  }
  if (sequence.loss_tokens > sequence.tokens) {
    return Invalid("sequences.loss_tokens",
                   absl::StrCat(sequence.loss_tokens, " loss tokens of ", sequence.tokens));
  }
  if (sequence.advantage && !std::isfinite(*sequence.advantage)) {
    return Invalid("sequences.advantage", absl::StrCat(*sequence.advantage, " is not finite"));
  }
  return CheckRuns(sequence, versions, pinned);
}

Refusal CheckRewards(const RolloutMeta& rollout, const codec::SourceSettings& settings) {
  if (!std::isfinite(rollout.reward)) {
    return Invalid("rewards", absl::StrCat(rollout.reward, " is not finite"));
  }
  const uint8_t all = AllRewards(settings);
  if (rollout.rewards_present & ~all) {
    return Invalid("rewards",
                   absl::StrCat("a reward beyond the ", settings.rewards.size(), " of the source"));
  }
  const bool needed = !rollout.partial && rollout.status != RolloutStatus::kAborted;
  if (needed && rollout.rewards_present != all && settings.reward_timeout_ms == 0) {
    for (size_t i = 0; i < settings.rewards.size(); ++i) {
      if (rollout.rewards_present >> i & 1) continue;
      return Invalid("rewards", absl::StrCat("reward \"", settings.rewards[i].first,
                                             "\" is missing, and reward_timeout_ms is 0"));
    }
  }
  return std::nullopt;
}

}  // namespace

PushOutcome Refuse(PushResult result, const char* field, std::string message) {
  PushOutcome outcome;
  outcome.result = result;
  outcome.field = field;
  outcome.message = std::move(message);
  return outcome;
}

uint8_t AllRewards(const codec::SourceSettings& settings) {
  return static_cast<uint8_t>((1u << std::min<size_t>(settings.rewards.size(), 8)) - 1);
}

Refusal CheckRollout(const RolloutMeta& rollout, const codec::SourceSettings& settings,
                     const codec::VersionState& versions, const PolicyVersion* pinned) {
  if (rollout.status > RolloutStatus::kAborted) {
    return Invalid("status",
                   absl::StrCat("status ", static_cast<int>(rollout.status), "; at most 2"));
  }
  if (Refusal refusal = CheckRewards(rollout, settings)) return refusal;
  if (Refusal refusal = CheckSequence(rollout.first, versions, pinned)) return refusal;
  if (rollout.more.empty()) return std::nullopt;
  if (rollout.more.size() + 1 > kSequencesMax) {
    return Invalid("sequences",
                   absl::StrCat(rollout.more.size() + 1, " sequences; at most ", kSequencesMax));
  }
  uint64_t tokens = rollout.first.tokens;
  for (const SequenceMeta& sequence : rollout.more) {
    if (Refusal refusal = CheckSequence(sequence, versions, pinned)) return refusal;
    tokens += sequence.tokens;
  }
  if (tokens > UINT32_MAX) {
    return Invalid("sequences.tokens",
                   absl::StrCat(tokens, " tokens in all; at most ", UINT32_MAX));
  }
  return std::nullopt;
}

}  // namespace forebay::shard
