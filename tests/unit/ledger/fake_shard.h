// A shard as the ledger sees it, which keeps its word: ready groups, reservations, and its end of
// the channel.
//
// For tests of one thread.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "codec/archive.h"
#include "codec/peer_channel.h"
#include "codec/peer_messages.h"

namespace forebay::ledger {

struct GroupShape {
  uint32_t rollouts = 4;
  uint32_t tokens = 100;  // of each sequence
  uint32_t version = 0;
  uint32_t sequences = 1;  // of each rollout
  codec::AdvantageKind advantage = codec::AdvantageKind::kGrpo;
};

class FakeShard {
 public:
  explicit FakeShard(ShardId id) : id_(id) {}

  GroupId AddReady(const GroupShape& shape, SourceId source = SourceId(0)) {
    const uint32_t n = ++made_;
    codec::GroupReport group;
    group.group = GroupId::Make(id_, 1, n);
    group.task = TaskId::Make(source, n * 7 % 101);
    group.advantage = shape.advantage;
    for (uint32_t r = 0; r < shape.rollouts; ++r) {
      codec::RolloutReport& rollout = group.rollouts.emplace_back();
      rollout.rollout = RolloutId::Make(id_, 1, n * 1000 + r);
      rollout.payload = PayloadId(uint64_t{id_.value} * 100'000'000 + n * 1000 + r);
      rollout.payload_bytes = shape.tokens * 10;
      rollout.reward = static_cast<float>(r % 2);
      rollout.advantage = rollout.reward - 0.5f;
      rollout.version = shape.version;
      for (uint32_t s = 0; s < shape.sequences; ++s) {
        rollout.sequences.push_back({shape.tokens + r, 10, shape.tokens + r - 10, {}});
      }
    }
    const GroupId id = group.group;
    ready_.push_back(std::move(group));
    return id;
  }

  // Nothing if the message is a repeated one.
  void Receive(const codec::NumberedMessage& message) {
    if (!inbox_.Accept(message.number)) return;
    codec::ToShard body;
    FOREBAY_CHECK(codec::Decode(message.body, &body));
    history_.push_back(body);
    std::visit([this](const auto& m) { Handle(m); }, body);
  }

  codec::ReadySummary Summary() const {
    std::map<SourceId, codec::ReadySummary::Source> sources;
    for (const codec::GroupReport& group : ready_) {
      codec::ReadySummary::Source& source = sources[group.task.source()];
      ++source.ready_groups;
      source.ready_tokens += Tokens(group);
    }
    codec::ReadySummary summary;
    summary.shard = id_;
    for (auto& [id, source] : sources) {
      source.source = id;
      summary.sources.push_back(source);
    }
    return summary;
  }

  static uint64_t Tokens(const codec::GroupReport& group) {
    uint64_t sum = 0;
    for (const auto& rollout : group.rollouts) {
      for (const auto& sequence : rollout.sequences) sum += sequence.tokens;
    }
    return sum;
  }

  // Says that a rollout of a step is lost ...
  void Tell(StepId step, RolloutId rollout) {
    outbox_.Add(codec::Encode(codec::ToLedger(codec::RolloutsLost{step, {rollout}})));
  }
  // ... and drops it when its group comes back.
  void Lose(StepId step, RolloutId rollout) {
    lost_.push_back(rollout);
    Tell(step, rollout);
  }

  const std::deque<codec::GroupReport>& ready() const { return ready_; }
  const std::vector<codec::GroupReport>& reserved(StepId step) { return reserved_[step].groups; }
  Revision revision(StepId step) { return reserved_[step].revision; }
  // Of steps that are committed, those that were taken back since left out.
  std::vector<GroupId> committed() const {
    std::vector<GroupId> groups;
    for (const auto& [step, trained] : trained_) {
      for (const codec::GroupReport& group : trained.groups) groups.push_back(group.group);
    }
    return groups;
  }
  // Committed steps whose payloads are kept.
  std::vector<uint64_t> retained() const {
    std::vector<uint64_t> steps;
    for (const auto& [step, trained] : trained_) {
      if (trained.retained) steps.push_back(step.value);
    }
    return steps;
  }
  const std::vector<codec::ToShard>& history() const { return history_; }
  codec::PeerOutbox& outbox() { return outbox_; }
  uint64_t received() const { return inbox_.last(); }

  template <class M>
  const M* Last() const {
    for (auto it = history_.rbegin(); it != history_.rend(); ++it) {
      if (const M* message = std::get_if<M>(&*it)) return message;
    }
    return nullptr;
  }
  template <class M>
  size_t Count() const {
    return std::count_if(history_.begin(), history_.end(),
                         [](const auto& m) { return std::holds_alternative<M>(m); });
  }

  uint32_t refuse_versions_below = 0;  // of groups that are reserved

 private:
  struct Reservation {
    Revision revision;
    std::vector<codec::GroupReport> groups;
    bool retained = false;  // once it is committed
  };

  void Handle(const codec::SourceChanged&) {}
  void Handle(const codec::VersionState&) {}
  void Handle(const codec::Reserve& m) {
    codec::Reserved answer{m.step, m.revision, m.request, {}};
    Reservation& held = reserved_[m.step];
    held.revision = m.revision;
    uint64_t tokens = 0;
    for (auto it = ready_.begin(); it != ready_.end();) {
      const bool enough = answer.groups.size() >= m.groups || (m.tokens > 0 && tokens >= m.tokens);
      if (enough) break;
      const uint32_t lag = m.train_version.number - it->rollouts[0].version;
      const bool wanted = m.sources.empty() ||
                          std::count(m.sources.begin(), m.sources.end(), it->task.source()) > 0;
      if (!wanted || lag > m.max_lag.value_or(UINT32_MAX) ||
          it->rollouts[0].version < refuse_versions_below) {
        ++it;
        continue;
      }
      for (codec::RolloutReport& rollout : it->rollouts) rollout.lag = lag;
      tokens += Tokens(*it);
      held.groups.push_back(*it);
      answer.groups.push_back(std::move(*it));
      it = ready_.erase(it);
    }
    outbox_.Add(codec::Encode(codec::ToLedger(answer)));
  }
  void Handle(const codec::Unreserve& m) {
    FOREBAY_CHECK(m.groups.empty());
    std::vector<codec::GroupReport>& groups = reserved_[m.step].groups;
    for (codec::GroupReport& group : groups) {
      std::erase_if(group.rollouts, [this](const codec::RolloutReport& rollout) {
        return std::count(lost_.begin(), lost_.end(), rollout.rollout) > 0;
      });
    }
    std::erase_if(groups, [](const codec::GroupReport& group) { return group.rollouts.empty(); });
    ready_.insert(ready_.begin(), groups.begin(), groups.end());
    groups.clear();
  }
  void Handle(const codec::StepCommitted& m) {
    const auto held = reserved_.find(m.step);
    if (held == reserved_.end()) return;
    FOREBAY_CHECK(held->second.groups.empty() || held->second.revision == m.revision);
    Reservation& trained = trained_[m.step];
    FOREBAY_CHECK(trained.groups.empty());
    trained = std::move(held->second);
    trained.retained = m.retain;
    reserved_.erase(held);
  }
  void Handle(const codec::StepsReleased& m) {
    for (auto& [step, trained] : trained_) {
      if (step <= m.step) trained.retained = false;
    }
  }
  void Handle(const codec::StepsCovered& m) { Handle(codec::StepsReleased{m.step}); }
  void Handle(const codec::Rewound& m) {
    ready_.clear();
    std::erase_if(reserved_, [&](const auto& held) { return held.first > m.served_again; });
    for (auto it = trained_.upper_bound(m.step); it != trained_.end(); it = trained_.erase(it)) {
      if (it->first > m.served_again) continue;
      FOREBAY_CHECK(it->second.retained && reserved_[it->first].groups.empty());
      reserved_[it->first] = it->second;
    }
  }
  void Handle(const codec::StepReplanned& m) { reserved_[m.step].revision = m.revision; }

  const ShardId id_;
  uint32_t made_ = 0;
  std::deque<codec::GroupReport> ready_;
  std::map<StepId, Reservation> reserved_;
  std::map<StepId, Reservation> trained_;
  std::vector<RolloutId> lost_;
  std::vector<codec::ToShard> history_;
  codec::PeerInbox inbox_;
  codec::PeerOutbox outbox_;
};

}  // namespace forebay::ledger
