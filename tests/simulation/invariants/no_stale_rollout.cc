// 6. No step contains a rollout beyond its lag limit, of an abandoned branch, or of an incomplete
// group.
//
// The model: by payload what was pushed, with the versions that the client reported or was
// assigned, and its rewards; by group how many rewarded rollouts came in. Each reservation that a
// shard reports is held against it, with a computation of lag of its own.
#include <algorithm>
#include <array>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "curriculum/curriculum.h"
#include "tests/simulation/invariants/invariant.h"

namespace forebay::simulation {
namespace {

struct Assigned {
  GroupId group;
  TaskId task;
  uint32_t token = 0;
  PolicyVersion version;
  PayloadId partial;  // that was pushed for it
  uint32_t partial_oldest = 0;
};

struct Pushed {
  AttemptId attempt;
  GroupId group;
  SourceId source;
  PolicyVersion assigned;
  std::vector<shard::SequenceMeta> sequences;
  uint8_t rewards = 0;
  double reward = 0;
};

struct Reserving {
  uint32_t train = 0;
  uint32_t branch = 0;
  std::optional<uint32_t> max_lag;
};

// The tokens of each version of a rollout, one by one run.
std::vector<std::pair<uint32_t, uint64_t>> TokensByVersion(const Pushed& pushed) {
  std::vector<std::pair<uint32_t, uint64_t>> runs;
  for (const shard::SequenceMeta& sequence : pushed.sequences) {
    if (sequence.versions.empty()) {
      runs.emplace_back(pushed.assigned.number, sequence.tokens);
      continue;
    }
    for (size_t i = 0; i < sequence.versions.size(); ++i) {
      const uint32_t end =
          i + 1 == sequence.versions.size() ? sequence.tokens : sequence.versions[i + 1].offset;
      runs.emplace_back(sequence.versions[i].version.number, end - sequence.versions[i].offset);
    }
  }
  return runs;
}

uint32_t VersionOf(const Pushed& pushed, codec::LagOf lag_of) {
  const auto runs = TokensByVersion(pushed);
  uint32_t oldest = runs[0].first, newest = runs[0].first, start = UINT32_MAX;
  uint64_t tokens = 0, weighted = 0;
  for (const auto& [version, count] : runs) {
    oldest = std::min(oldest, version);
    newest = std::max(newest, version);
    tokens += count;
    weighted += count * version;
  }
  for (const shard::SequenceMeta& sequence : pushed.sequences) {
    const uint32_t first =
        sequence.versions.empty() ? pushed.assigned.number : sequence.versions[0].version.number;
    start = std::min(start, first);
  }
  switch (lag_of) {
    case codec::LagOf::kOldest:
      return oldest;
    case codec::LagOf::kStart:
      return start;
    case codec::LagOf::kNewest:
      return newest;
    case codec::LagOf::kMeanToken:
      return static_cast<uint32_t>(weighted / tokens);
  }
  return oldest;
}

class NoStaleRollout final : public Invariant {
 public:
  explicit NoStaleRollout(Checker* checker)
      : Invariant("6 no stale rollout, no incomplete group in a step", checker) {}

  void OnAssigned(SessionId, const shard::Assignment& a) override {
    Assigned& assigned = assigned_[a.attempt.value];
    const PayloadId partial = assigned.partial;
    if (a.partial != PayloadId() && a.partial != partial)
      Violated(absl::StrCat("payload ", a.partial.value, " is no unfinished attempt"));
    assigned.group = a.group;
    assigned.task = a.task;
    assigned.token = a.token;
    assigned.version = a.version;
    if (a.partial == PayloadId()) assigned.partial = PayloadId();
  }

  void OnPushed(SessionId, const shard::RolloutMeta& meta,
                const shard::PushOutcome& outcome) override {
    if (outcome.result != shard::PushResult::kAccepted) return;
    const auto found = assigned_.find(meta.lease.attempt.value);
    if (found == assigned_.end()) return;
    Assigned& assigned = found->second;
    Pushed pushed;
    pushed.attempt = meta.lease.attempt;
    pushed.group = assigned.group;
    pushed.source = assigned.task.source();
    pushed.assigned = assigned.version;
    if (assigned.partial != PayloadId())
      pushed.assigned.number = std::min(pushed.assigned.number, assigned.partial_oldest);
    pushed.sequences = {meta.first};
    pushed.sequences.insert(pushed.sequences.end(), meta.more.begin(), meta.more.end());
    pushed.rewards = meta.rewards_present;
    pushed.reward = meta.reward;
    if (meta.partial) {
      assigned.partial_oldest = VersionOf(pushed, codec::LagOf::kOldest);
      assigned.partial = meta.payload;
      return;
    }
    if (meta.status == shard::RolloutStatus::kAborted) return;
    assigned.partial = PayloadId();
    by_attempt_[pushed.attempt.value] = meta.payload;
    Hold(meta.payload, std::move(pushed));
  }

  void OnGroupPushed(const shard::PutGroup& group, const shard::PutRolloutsReply& reply) override {
    const ShardId shard = node().ShardOf(group.task.external_hash);
    for (size_t i = 0; i < group.rollouts.size() && i < reply.outcomes.size(); ++i) {
      if (reply.outcomes[i].result != shard::PushResult::kAccepted) continue;
      const shard::RolloutMeta& meta = group.rollouts[i];
      Pushed pushed;
      pushed.source = group.source;
      pushed.assigned = node().shard(shard).versions().published;
      pushed.sequences = {meta.first};
      pushed.sequences.insert(pushed.sequences.end(), meta.more.begin(), meta.more.end());
      pushed.rewards = meta.rewards_present;
      pushed.reward = meta.reward;
      Hold(meta.payload, std::move(pushed));
    }
  }

  void OnRewarded(const shard::LateReward& reward, shard::PushResult result) override {
    if (result != shard::PushResult::kAccepted) return;
    const auto payload = by_attempt_.find(reward.attempt.value);
    if (payload == by_attempt_.end()) return;
    const auto found = pushed_.find(payload->second.value);
    if (found == pushed_.end()) return;
    Pushed& pushed = found->second;
    pushed.rewards |= reward.rewards_present;
    pushed.reward += reward.reward;
    Rewarded(pushed);
  }

  void OnShardCommand(ShardId shard, const shard::Command& command) override {
    const auto* message = std::get_if<shard::FromLedger>(&command);
    if (message == nullptr || message->number != node().shard(shard).from_ledger() + 1) return;
    if (const auto* reserve = std::get_if<codec::Reserve>(&message->message)) {
      reserving_[shard.value] = {reserve->train_version.number, reserve->train_version.branch,
                                 reserve->max_lag};
    } else if (const auto* changed = std::get_if<codec::SourceChanged>(&message->message)) {
      ++changes_[{shard, changed->source}];
    }
  }

  void OnReserved(ShardId shard, const codec::Reserved& reserved) override {
    for (const codec::GroupReport& group : reserved.groups)
      CheckGroup(shard, reserving_[shard.value], group);
  }

 private:
  uint8_t AllRewards(ShardId shard, SourceId source) const {
    const size_t count = node().shard(shard).curriculum().source(source)->settings().rewards.size();
    return static_cast<uint8_t>((1u << count) - 1);
  }

  void Hold(PayloadId payload, Pushed pushed) {
    Rewarded(pushed);
    pushed_[payload.value] = std::move(pushed);
  }

  // `rewarded_` may count a rollout more than once where rewards come in parts; it is a lower bound
  // that is asked for.
  void Rewarded(const Pushed& pushed) {
    if (pushed.group == GroupId()) return;
    if (pushed.rewards == AllRewards(pushed.group.shard(), pushed.source))
      ++rewarded_[pushed.group.value];
  }

  void CheckGroup(ShardId shard, const Reserving& reserving, const codec::GroupReport& group) {
    const auto wrong = [&](const std::string& what) {
      Violated(absl::StrCat("group ", group.group.value, ": ", what));
    };
    const codec::SourceSettings& settings =
        node().shard(shard).curriculum().source(group.task.source())->settings();
    if (reserving.branch != node().shard(shard).versions().branch)
      wrong("reserved for an abandoned branch");
    const size_t least = group.advantage == codec::AdvantageKind::kNone ? 1 : 2;
    if (group.rollouts.size() < least)
      wrong(absl::StrCat("reserved with ", group.rollouts.size(), " rollouts"));
    for (const codec::RolloutReport& rollout : group.rollouts)
      CheckRollout(shard, settings, reserving, group, rollout);
    const auto count = rewarded_.find(group.group.value);
    if (count == rewarded_.end()) return;  // pushed whole
    const bool strict = changes_[{shard, group.task.source()}] == 1 &&
                        settings.complete_deadline_ms == 0 &&
                        settings.truncated != codec::TruncatedRule::kDrop &&
                        settings.aborted == codec::AbortedRule::kRetry;
    const size_t needed = strict ? settings.complete_at : least;
    if (count->second < needed) {
      wrong(absl::StrCat("reserved with ", count->second, " rewarded rollouts of ", needed));
    }
  }

  void CheckRollout(ShardId shard, const codec::SourceSettings& settings,
                    const Reserving& reserving, const codec::GroupReport& group,
                    const codec::RolloutReport& rollout) {
    const auto wrong = [&](const std::string& what) {
      Violated(absl::StrCat("group ", group.group.value, " payload ", rollout.payload.value, ": ",
                            what));
    };
    const auto found = pushed_.find(rollout.payload.value);
    if (found == pushed_.end()) return wrong("reserved, and was never acknowledged");
    const Pushed& pushed = found->second;
    if (pushed.source != group.task.source()) return wrong("of another source");
    if (pushed.group != GroupId() && pushed.group != group.group) return wrong("of another group");
    if (pushed.rewards != AllRewards(shard, pushed.source))
      return wrong("reserved without all its rewards");
    if (static_cast<float>(pushed.reward) != rollout.reward)
      return wrong("another reward than it was given");
    if (pushed.assigned.branch != reserving.branch) return wrong("of an abandoned branch");
    const uint32_t version = VersionOf(pushed, settings.lag_of);
    const uint32_t lag = reserving.train > version ? reserving.train - version : 0;
    if (rollout.version != version || rollout.lag != lag) {
      return wrong(absl::StrCat("reported version ", rollout.version, " lag ", rollout.lag,
                                ", from outside ", version, " lag ", lag));
    }
    const uint32_t limit = std::min(settings.max_lag, reserving.max_lag.value_or(settings.max_lag));
    if (lag <= limit || settings.late == codec::LateRule::kTrain) return;
    if (settings.late == codec::LateRule::kMaskOldTokens &&
        rollout.mask_below >= reserving.train - limit)
      return;
    wrong(absl::StrCat("reserved with lag ", lag, ", at most ", limit));
  }

  absl::flat_hash_map<uint64_t, Assigned> assigned_;  // by attempt; none of these is iterated
  absl::flat_hash_map<uint64_t, Pushed> pushed_;      // by payload
  absl::flat_hash_map<uint64_t, PayloadId> by_attempt_;
  absl::flat_hash_map<uint64_t, uint32_t> rewarded_;  // by group
  std::map<std::pair<ShardId, SourceId>, uint32_t> changes_;
  std::array<Reserving, 256> reserving_;
};

}  // namespace

std::unique_ptr<Invariant> MakeNoStaleRollout(Checker* checker) {
  return std::make_unique<NoStaleRollout>(checker);
}

}  // namespace forebay::simulation
