// Running commands, answering them, and what the shards are told.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ledger/check_source.h"
#include "ledger/limits.h"
#include "ledger/state.h"

namespace forebay::ledger {
namespace {

// How many of these rollouts fall to each version that admission counts, by the source for which it
// counts fewest.
uint64_t ForEachVersion(uint64_t rollouts, const std::vector<Source>& sources,
                        uint32_t numbers_per_version) {
  uint32_t lag = UINT32_MAX - 1;
  for (const Source& source : sources) {
    if (source.settings.purpose != codec::Purpose::kTrain) continue;
    lag = std::min(lag, source.settings.max_lag / std::max(numbers_per_version, 1u));
  }
  return (rollouts + lag) / (uint64_t{lag} + 1);
}

}  // namespace

Reply Refusal(const Command& command, absl::Status why) {
  return std::visit(
      [&why](const auto& c) -> Reply {
        using C = std::decay_t<decltype(c)>;
        if constexpr (std::is_same_v<C, PutSource>) return PutSourceReply{std::move(why)};
        if constexpr (std::is_same_v<C, AttachTrainer>) return AttachReply{std::move(why)};
        if constexpr (std::is_same_v<C, CommitStep>) return CommitReply{std::move(why)};
        if constexpr (std::is_same_v<C, CheckpointStep>) return CheckpointReply{std::move(why)};
        if constexpr (std::is_same_v<C, Rewind>) return RewindReply{std::move(why)};
        if constexpr (std::is_same_v<C, ReportSequences>) return ReportReply{std::move(why)};
        if constexpr (std::is_same_v<C, LiftHold>) return LiftReply{std::move(why)};
        return StatusReply{std::move(why)};
      },
      command);
}

void State::Apply(const Command& command, Tag tag, Effects* effects) {
  absl::Status status = Check(command);
  if (status.ok()) {
    status = std::visit([&](const auto& c) { return Run(c, tag, effects); }, command);
  }
  if (status.ok()) {
    SendVersionState(effects);
  } else if (tag != 0) {
    effects->replies.push_back({tag, Refusal(command, std::move(status))});
  }
}

absl::Status State::Check(const Command& command) const {
  return std::visit([this](const auto& c) { return CheckOne(c); }, command);
}

void State::Answer(Tag tag, Reply reply, Effects* effects) {
  if (tag != 0) effects->replies.push_back({tag, std::move(reply)});
}

absl::Status State::CheckOne(const PutSource& c) const {
  FOREBAY_RETURN_IF_ERROR(CheckSettings(c.settings));
  FOREBAY_RETURN_IF_ERROR(CheckChannels());
  const Source* known = FindSource(c.settings.name);
  if (known == nullptr && sources_.size() >= kSourcesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("sources: ", sources_.size(), ", at most ", kSourcesMax));
  }
  if (known != nullptr && known->settings.purpose != c.settings.purpose) {
    return absl::InvalidArgumentError(absl::StrCat(
        "purpose: ", static_cast<int>(c.settings.purpose), ", but source ", c.settings.name,
        " was created with ", static_cast<int>(known->settings.purpose)));
  }
  if (c.settings.purpose != codec::Purpose::kTrain) return absl::OkStatus();
  double shares = c.settings.minimum_share;
  for (const Source& source : sources_) {
    if (&source != known && source.settings.purpose == codec::Purpose::kTrain) {
      shares += source.settings.minimum_share;
    }
  }
  // The slack takes ten times 0.1, which is not quite 1.
  if (shares > 1 + 1e-9) {
    return absl::InvalidArgumentError(absl::StrCat("minimum_share: ", c.settings.minimum_share,
                                                   ", with the other sources ", shares,
                                                   ", at most 1"));
  }
  return absl::OkStatus();
}

absl::Status State::Run(const PutSource& c, Tag tag, Effects* effects) {
  PutSourceReply reply;
  const Source* known = FindSource(c.settings.name);
  reply.created = known == nullptr;
  reply.source = known != nullptr ? known->id : SourceId(static_cast<uint16_t>(sources_.size()));
  if (known == nullptr || known->settings != c.settings) {
    if (known == nullptr) sources_.push_back({reply.source, c.settings});
    sources_[reply.source.value].settings = c.settings;
    SendToAll(codec::SourceChanged{reply.source, c.settings}, effects);
  }
  Answer(tag, reply, effects);
  return absl::OkStatus();
}

absl::Status State::CheckOne(const FromShard& c) const {
  if (c.shard.value < channels_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("shard: ", c.shard.value, ", less than ", channels_.size()));
}

absl::Status State::Run(const FromShard& c, Tag tag, Effects* effects) {
  codec::PeerInbox& inbox = channels_[c.shard.value].inbox;
  if (inbox.Accept(c.number)) {
    std::visit([&](const auto& m) { Take(c.shard, m, effects); }, c.message);
  }
  effects->acknowledge_shards.emplace_back(c.shard, inbox.last());
  Answer(tag, StatusReply{}, effects);
  return absl::OkStatus();
}

absl::Status State::CheckOne(const ShardAcknowledged& c) const {
  if (c.shard.value < channels_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("shard: ", c.shard.value, ", less than ", channels_.size()));
}

absl::Status State::Run(const ShardAcknowledged& c, Tag tag, Effects* effects) {
  channels_[c.shard.value].outbox.Acknowledge(c.number);
  Answer(tag, StatusReply{}, effects);
  return absl::OkStatus();
}

absl::Status State::CheckChannels() const {
  for (size_t i = 0; i < channels_.size(); ++i) {
    const size_t waiting = channels_[i].outbox.Unacknowledged().size();
    if (waiting >= kUnacknowledgedMax) {
      return absl::ResourceExhaustedError(absl::StrCat("messages that shard ", i,
                                                       " has not acknowledged: ", waiting,
                                                       ", at most ", kUnacknowledgedMax));
    }
  }
  return absl::OkStatus();
}

void State::Send(ShardId shard, const codec::ToShard& message, Effects* effects) {
  effects->to_shards.emplace_back(shard, channels_[shard.value].outbox.Add(codec::Encode(message)));
}

void State::SendToAll(const codec::ToShard& message, Effects* effects) {
  for (size_t i = 0; i < channels_.size(); ++i) {
    Send(ShardId(static_cast<uint8_t>(i)), message, effects);
  }
}

void State::SendVersionState(Effects* effects) {
  const codec::VersionState now = CurrentVersionState();
  if (codec::Encode(now) == codec::Encode(versions_)) return;
  versions_ = now;
  // For one that is absent they would pile up; it is told when it returns.
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (!channels_[i].absent) Send(ShardId(static_cast<uint8_t>(i)), now, effects);
  }
}

uint32_t State::ShardsPresent() const {
  const auto present = std::ranges::count(channels_, false, &ShardChannel::absent);
  return std::max(static_cast<uint32_t>(present), 1u);
}

codec::VersionState State::CurrentVersionState() const {
  codec::VersionState now;
  now.branch = committed_version_.branch;
  now.published = published_.version;
  now.announced = published_.version;
  if (pending_ && pending_->version > now.announced) now.announced = pending_->version;
  now.next_train = committed_version_;
  now.rollouts_per_version = measured_rollouts_;
  bool reserves = false;
  uint64_t behind = 0;  // in steps that are served again after one that lacks groups
  for (const auto& [id, step] : steps_) {
    if (step.state == StepState::kAborted) continue;
    now.numbers_per_version = step.spec.mini_batches;
    if (!reserves) now.wanted_sources = step.spec.sources;
    if (!step.live()) continue;
    now.rollouts_per_version = std::max(now.rollouts_per_version, RolloutsWanted(step));
    if (reserves && step.served_again) behind += step.totals.rollouts;
    if (reserves) continue;
    // Until the oldest step has its groups, those that are too old for the next one are still good
    // for it.
    reserves = step.state == StepState::kOpen;
    now.next_train = reserves ? step.train_version : step.next_version;
  }
  now.shards = ShardsPresent();
  // They are more than admission lets in, and would keep out what that step lacks.
  if (behind > 0)
    now.rollouts_per_version += ForEachVersion(behind, sources_, now.numbers_per_version);
  return now;
}

// How many rollouts admission has to let in so that the step can be filled: its groups with all
// their attempts (what is held may be more: groups that were pushed whole have any size), and for
// each share of the budget (a source on a shard) but one a group that does not fit in whole.
uint64_t State::RolloutsWanted(const Step& step) const {
  if (step.state != StepState::kOpen) return step.totals.rollouts;
  if (step.spec.groups == 0) {
    // The length of what is held so far stands for the rest.
    if (step.totals.tokens == 0) return 0;
    return step.totals.rollouts *
           ((step.spec.tokens + step.totals.tokens - 1) / step.totals.tokens);
  }
  double weights = 0, weighted = 0;
  uint64_t sources = 0, largest = 0, sum = 0;
  for (const Source& source : sources_) {
    const codec::SourceSettings& settings = source.settings;
    const std::vector<SourceId>& wanted = step.spec.sources;
    if (settings.purpose != codec::Purpose::kTrain) continue;
    if (!wanted.empty() && !std::binary_search(wanted.begin(), wanted.end(), source.id)) continue;
    const uint64_t attempts = settings.attempts_per_task;
    ++sources;
    sum += attempts;
    largest = std::max(largest, attempts);
    weights += settings.weight;
    weighted += settings.weight * static_cast<double>(attempts);
  }
  if (sources == 0) return 0;
  const double mean =
      weights > 0 ? weighted / weights : static_cast<double>(sum) / static_cast<double>(sources);
  const auto rollouts = [mean](uint64_t groups) {
    return static_cast<uint64_t>(std::ceil(static_cast<double>(groups) * mean));
  };
  const uint64_t held = std::min<uint64_t>(step.groups.size(), step.spec.groups);
  return std::max(rollouts(step.spec.groups),
                  step.totals.rollouts + rollouts(step.spec.groups - held)) +
         (sources * ShardsPresent() - 1) * largest;
}

}  // namespace forebay::ledger
