#include "replication/replica.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::replication {

Replica::Replica(const Options& options, const Mutations& mutations, Identity self,
                 Recovered recovered, uint64_t now_ms)
    : options_(options),
      mutations_(mutations),
      self_(self),
      log_(recovered.base, std::move(recovered.entries)),
      synced_(log_.last().position),
      committed_(recovered.base.position),
      applied_(recovered.base.position),
      // Whoever wrote the log's end is not followed below its epoch any more.
      epoch_(log_.last().epoch),
      tick_ms_(now_ms),
      heard_ms_(now_ms) {
  FOREBAY_CHECK(self.node != NodeId() && self.incarnation != Incarnation());
  FOREBAY_CHECK(self.kept_since <= self.incarnation);
}

Output Replica::Take() {
  SendProposed();
  return std::exchange(output_, {});
}

void Replica::Fail(const std::string& what) {
  if (failed_) return;
  failed_ = true;
  role_ = Role::kBackup;
  output_.failure = what;
}

void Replica::Send(NodeId to, decltype(Message::body) body) {
  output_.messages.emplace_back(to,
                                Message{self_.node, self_.incarnation, epoch_, std::move(body)});
}

void Replica::Write(decltype(LogWrite::what) what) {
  if (!std::holds_alternative<AppendEntry>(what)) ++generation_;
  output_.log.push_back({generation_, std::move(what)});
}

// A later reign has begun: the own one, or what was followed, is over.
void Replica::NoteEpoch(Epoch epoch) {
  if (epoch <= epoch_) return;
  if (role_ == Role::kPrimary) {
    output_.roles.push_back({Role::kBackup, epoch});
    pending_.reset();
  }
  role_ = Role::kBackup;
  epoch_ = epoch;
  leader_ = NodeId();
  matched_ = LogPosition();
  take_over_ = false;
  peers_.clear();
  hand_over_to_ = NodeId();
}

void Replica::OnConfiguration(ConfigurationRevision revision, const Configuration& configuration,
                              uint64_t now_ms) {
  if (failed_ || revision <= revision_) return;
  const bool first = revision_ == ConfigurationRevision();
  revision_ = revision;
  configuration_ = configuration;
  if (configuration.epoch > epoch_) {
    NoteEpoch(configuration.epoch);
    NoteReign(now_ms);
    heard_ms_ = now_ms;  // the new primary has its time
  }
  if (configuration.epoch == epoch_ && role_ == Role::kBackup) leader_ = configuration.primary;
  if (role_ == Role::kPrimary) {
    if (configuration.epoch == epoch_ && configuration.primary != self_.node)
      return Fail("another primary in the own epoch");
    // A swap from an older revision can not be done any more.
    if (pending_ && pending_->base < revision) pending_.reset();
    MatchPeersToConfiguration(now_ms);
    TryCommit(now_ms);
  } else if (first && mutations_.resume_reign && configuration.primary == self_.node &&
             configuration.InSync(self_.node, self_.incarnation)) {
    BeginReign(now_ms);
  }
}

void Replica::NoteReign(uint64_t now_ms) {
  const bool was_short = reign_ms_ && now_ms - *reign_ms_ < options_.short_reign_ms;
  short_reigns_ = was_short ? std::min(short_reigns_ + 1, options_.patience_doublings_max) : 0;
  reign_ms_ = now_ms;
}

void Replica::AskSwap(Configuration next, uint64_t now_ms) {
  pending_ =
      Pending{next_swap_id_++, revision_, std::move(next), true, now_ms + options_.swap_retry_ms};
  output_.swaps.push_back({pending_->id, pending_->base, pending_->next});
}

void Replica::OnSwapAnswer(const SwapAnswer& answer, uint64_t now_ms) {
  if (failed_) return;
  const bool own = pending_ && pending_->id == answer.id;
  const bool campaign = own && role_ == Role::kBackup;
  if (answer.outcome == SwapOutcome::kDone && own) {
    const Pending done = *pending_;
    if (campaign) pending_.reset();
    OnConfiguration(answer.revision, done.next, now_ms);
    // Only who has heard that its own swap was done reigns: a configuration that names it may be
    // of an attempt before a restart, whose reign may have begun and ended.
    if (campaign && !failed_ && epoch_ == done.next.epoch && configuration_.epoch == epoch_ &&
        configuration_.primary == self_.node) {
      BeginReign(now_ms);
      output_.roles.back().from_cut_log = done.from_cut_log;
    }
    return;
  }
  if (own) {
    pending_->asked = false;
    pending_->retry_ms = now_ms + options_.swap_retry_ms;
    if (campaign) {
      // A later attempt begins with what is known then.
      heard_ms_ = now_ms - std::min(now_ms, options_.suspect_ms - options_.swap_retry_ms);
      pending_.reset();
    }
  }
  if (answer.outcome == SwapOutcome::kRefused)
    OnConfiguration(answer.revision, answer.current, now_ms);
}

void Replica::OnMessage(const Message& message, uint64_t now_ms) {
  if (failed_ || message.from == self_.node) return;
  if (configuration_.epoch != Epoch() && !configuration_.placed(message.from)) return;
  NoteEpoch(message.epoch);
  if (const auto* hello = std::get_if<Hello>(&message.body))
    return OnHello(message.from, message.incarnation, *hello, now_ms);
  if (message.epoch < epoch_ && !(mutations_.ignore_epochs && role_ == Role::kBackup)) {
    // An old primary hears in this way that its reign is over.
    if (std::holds_alternative<Append>(message.body))
      Send(message.from, Hello{self_.kept_since, log_.last()});
    return;
  }
  if (const auto* append = std::get_if<Append>(&message.body))
    return OnAppend(message.from, *append, now_ms);
  if (std::holds_alternative<TakeOver>(message.body)) return OnTakeOver(message.from, now_ms);
  if (std::holds_alternative<Goodbye>(message.body))
    return OnGoodbye(message.from, message.incarnation, now_ms);
  if (role_ == Role::kPrimary)
    OnAppended(message.from, message.incarnation, std::get<Appended>(message.body), now_ms);
}

void Replica::OnSynced(LogGeneration generation, LogPosition position, uint64_t now_ms) {
  // What was synced before a truncation says nothing of what was appended after it.
  if (failed_ || generation != generation_ || position <= synced_) return;
  FOREBAY_CHECK(position <= log_.last().position);
  synced_ = position;
  if (role_ == Role::kPrimary) return TryCommit(now_ms);
  if (leader_ != NodeId() && matched_ != LogPosition()) Answer(leader_, true, matched_);
}

void Replica::SetCommitted(LogPosition position) {
  if (position > committed_) committed_ = position;
}

void Replica::OnApplied(LogPosition position, std::optional<uint64_t> hash) {
  FOREBAY_CHECK(position <= committed_);
  applied_ = std::max(applied_, position);
  if (hash) {
    hashes_.push_back({position, *hash});
    if (hashes_.size() > kHashesMax) hashes_.pop_front();
    if (expected_ && expected_->position == position) CheckHash(*expected_);
  }
  TrimApplied();
}

void Replica::CheckHash(const StateHash& theirs) {
  if (theirs.position > applied_) {
    expected_ = theirs;
    return;
  }
  for (const StateHash& own : hashes_) {
    if (own.position != theirs.position) continue;
    if (own.hash != theirs.hash)
      Fail(absl::StrCat("the state at position ", own.position.value, " is not the primary's"));
    return;
  }
}

// No member in sync needs what is applied; one that lags more than this gets a snapshot.
void Replica::TrimApplied() {
  const LogPosition needed = NeededByPeers();
  LogPosition to = log_.base().position;
  while (to < applied_ &&
         log_.BytesBetween(to, applied_) >
             (to < needed ? options_.retained_bytes_max : options_.catch_up_bytes_max))
    ++to.value;
  log_.TrimTo(to);
}

// What comes after this position is on its way to a peer, or will be when its snapshot has come.
LogPosition Replica::NeededByPeers() const {
  LogPosition needed(UINT64_MAX);
  for (const auto& [node, peer] : peers_) {
    const LogPosition has = std::max(peer.end, peer.snapshot_at);
    // Most have been heard since the last tick.
    if (has >= log_.base().position && tick_ms_ <= peer.heard_ms + options_.suspect_ms)
      needed = std::min(needed, has);
  }
  return needed;
}

void Replica::OnSnapshotInstalled(LogPlace base, uint64_t now_ms) {
  FOREBAY_CHECK(WantsSnapshot(base));
  // It may be the first that is heard of its epoch.
  NoteEpoch(base.epoch);
  log_.Restart(base);
  Write(RestartLog{base});
  committed_ = applied_ = base.position;
  synced_ = base.position;
  hashes_.clear();
  expected_.reset();
  // What else the log holds is matched anew.
  matched_ = LogPosition();
  heard_ms_ = now_ms;
}

void Replica::OnTick(uint64_t now_ms) {
  if (failed_) return;
  // After a pause of its own a replica suspects nobody at once.
  if (now_ms - tick_ms_ > options_.suspect_ms / 2) {
    heard_ms_ = now_ms;
    for (auto& [node, peer] : peers_) peer.heard_ms = peer.moved_ms = now_ms;
  }
  tick_ms_ = now_ms;
  if (role_ == Role::kPrimary) return TickAsPrimary(now_ms);
  TickAsBackup(now_ms);
}

}  // namespace forebay::replication
