// The primary's part of a replica: replication, commit, changes of the set, switchover.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "replication/replica.h"

namespace forebay::replication {

void Replica::BeginReign(uint64_t now_ms) {
  role_ = Role::kPrimary;
  epoch_ = configuration_.epoch;
  leader_ = self_.node;
  pending_.reset();
  peers_.clear();
  hand_over_to_ = admitting_ = NodeId();
  admission_ms_ = hand_over_until_ms_ = 0;
  reign_start_ = LogPosition(log_.last().position.value + 1);
  output_.roles.push_back({Role::kPrimary, epoch_});
  MatchPeersToConfiguration(now_ms);
  AppendOwn("");
  for (auto& [node, peer] : peers_) SendEntries(node, peer, now_ms);
  beat_ms_ = now_ms;
}

Replica::Peer Replica::NewPeer(Incarnation incarnation, uint64_t now_ms) const {
  Peer peer;
  peer.incarnation = incarnation;
  peer.next = LogPosition(committed_.value + 1);
  peer.heard_ms = peer.moved_ms = now_ms;
  return peer;
}

void Replica::MatchPeersToConfiguration(uint64_t now_ms) {
  for (const auto& [node, incarnation] : configuration_.incarnations) {
    if (node != self_.node && !peers_.contains(node)) peers_[node] = NewPeer(incarnation, now_ms);
  }
  std::erase_if(peers_, [this](const auto& peer) { return !configuration_.placed(peer.first); });
}

void Replica::AppendOwn(std::string command) {
  Entry entry{epoch_, std::move(command)};
  log_.Append(entry);
  Write(AppendEntry{log_.last().position, std::move(entry)});
}

absl::Status Replica::MayPropose(size_t bytes) const {
  if (failed_ || !serving()) return absl::UnavailableError("not the serving primary");
  if (hand_over_to_ != NodeId()) return absl::UnavailableError("another replica takes over");
  if (bytes == 0 || bytes > kCommandBytesMax)
    return absl::InvalidArgumentError("a command has 1 byte at least, and an upper limit");
  if (log_.BytesBetween(committed_, log_.last().position) + bytes > options_.pending_bytes_max)
    return absl::ResourceExhaustedError("too much waits to be committed");
  return absl::OkStatus();
}

absl::StatusOr<LogPosition> Replica::Propose(std::string command, uint64_t now_ms) {
  if (absl::Status status = MayPropose(command.size()); !status.ok()) return status;
  AppendOwn(std::move(command));
  proposed_ = true;
  proposed_ms_ = now_ms;
  return log_.last().position;
}

void Replica::SendProposed() {
  if (!std::exchange(proposed_, false) || role_ != Role::kPrimary || failed_) return;
  const LogPosition last = log_.last().position;
  for (auto& [node, peer] : peers_) {
    if (peer.matched && peer.next <= last) SendEntries(node, peer, proposed_ms_);
  }
}

void Replica::SendAppend(NodeId to, const Peer& peer, std::vector<Entry> entries) {
  Append append;
  // A peer that needs a snapshot is at least told that there is a primary.
  const LogPosition before(std::max(peer.next.value - 1, log_.base().position.value));
  append.before = {log_.EpochAt(before), before};
  append.entries = std::move(entries);
  append.committed = committed_;
  append.reign_start = reign_start_;
  if (!hashes_.empty()) append.hash = hashes_.back();
  Send(to, std::move(append));
}

// What the window allows, and one message at least: it is also the heartbeat.
void Replica::SendEntries(NodeId to, Peer& peer, uint64_t now_ms) {
  bool sent = false;
  if (peer.next.value - 1 < log_.base().position.value) {
    // What was proposed before it was asked for may be sent after it.
    if (!peer.snapshot_on_way &&
        (peer.snapshot_ms == 0 || now_ms >= peer.snapshot_ms + options_.snapshot_retry_ms)) {
      peer.snapshot_on_way = true;
      peer.snapshot_ms = now_ms;
      peer.snapshot_at = applied_;
      output_.snapshots.push_back(to);
    }
    return SendAppend(to, peer, {});
  }
  const LogPosition last = log_.last().position;
  const LogPosition acknowledged(std::max(peer.end.value, log_.base().position.value));
  while (peer.next <= last && (peer.matched || !sent)) {
    const LogPosition behind(peer.next.value - 1);
    if (log_.BytesBetween(acknowledged, behind) >= options_.window_bytes_max) break;
    std::vector<Entry> entries;
    LogPosition to_send = behind;
    while (to_send < last && entries.size() < kEntriesPerMessageMax) {
      const LogPosition more(to_send.value + 1);
      if (!entries.empty() && log_.BytesBetween(behind, more) > options_.batch_bytes_max) break;
      entries.push_back(log_.At(more));
      to_send = more;
    }
    SendAppend(to, peer, std::move(entries));
    sent = true;
    if (!peer.matched) return;  // it goes on when it is known where
    peer.next = LogPosition(to_send.value + 1);
  }
  if (!sent) SendAppend(to, peer, {});
}

void Replica::OnSnapshotEnded(NodeId to) {
  const auto found = peers_.find(to);
  if (found != peers_.end()) found->second.snapshot_on_way = false;
}

void Replica::OnAppended(NodeId from, Incarnation incarnation, const Appended& answer,
                         uint64_t now_ms) {
  const auto found = peers_.find(from);
  const LogPosition last = log_.last().position;
  if (found == peers_.end() || incarnation < found->second.incarnation) return;
  if (answer.matched && answer.end > last) return;  // nobody has what was never sent
  if (answer.synced > last) return;
  Peer& peer = found->second;
  if (incarnation > peer.incarnation) peer = NewPeer(incarnation, now_ms);
  peer.heard_ms = now_ms;
  if (answer.synced > peer.synced) {
    peer.synced = answer.synced;
    peer.moved_ms = now_ms;
  }
  if (answer.matched) {
    if (!peer.matched) peer.next = LogPosition(answer.end.value + 1);
    peer.matched = true;
    peer.end = std::max(peer.end, answer.end);
    peer.next = std::max(peer.next, LogPosition(answer.end.value + 1));
    if (peer.next <= last) SendEntries(from, peer, now_ms);
  } else {
    peer.matched = false;
    const LogPosition next(std::min(answer.end, last).value + 1);
    const bool other = next != peer.next;
    peer.next = next;
    peer.end = std::min(peer.end, std::min(answer.end, last));
    // Else it was an old answer, or nothing helps: the heartbeat asks again.
    if (other) SendEntries(from, peer, now_ms);
  }
  TryCommit(now_ms);
  if (from == admitting_) ConsiderChange(now_ms);
  ConsiderHandOver(now_ms);
}

bool Replica::HasSynced(NodeId node, Incarnation incarnation, LogPosition position) const {
  if (node == self_.node) return incarnation == self_.incarnation && synced_ >= position;
  const auto found = peers_.find(node);
  return found != peers_.end() && found->second.incarnation == incarnation &&
         found->second.synced >= position;
}

bool Replica::AllHaveSynced(const Configuration& set, LogPosition position, uint64_t now_ms) const {
  if (set.in_sync.size() < set.min_in_sync) return false;
  return std::all_of(set.in_sync.begin(), set.in_sync.end(), [&](NodeId node) {
    if (mutations_.commit_before_shrink && peers_.contains(node) &&
        Suspected(peers_.at(node), now_ms))
      return true;
    return HasSynced(node, set.incarnation(node), position);
  });
}

void Replica::TryCommit(uint64_t now_ms) {
  if (role_ != Role::kPrimary) return;
  // Every member of the set, and of the set that may already be in its place.
  const auto committable = [&](LogPosition position) {
    if (pending_ && mutations_.commit_on_new_set_alone)
      return AllHaveSynced(pending_->next, position, now_ms);
    if (const auto found = peers_.find(admitting_); found != peers_.end()) {
      if (found->second.synced < position) return false;
    }
    return AllHaveSynced(configuration_, position, now_ms) &&
           (!pending_ || AllHaveSynced(pending_->next, position, now_ms));
  };
  // From its own first entry on: what is older is committed with it.
  LogPosition low = std::max(committed_, LogPosition(reign_start_.value - 1));
  LogPosition high = synced_;
  if (high <= low || !committable(LogPosition(low.value + 1))) return;
  while (low < high) {
    const LogPosition middle(low.value + (high.value - low.value + 1) / 2);
    if (committable(middle)) {
      low = middle;
    } else {
      high = LogPosition(middle.value - 1);
    }
  }
  SetCommitted(low);
}

// It may be back under the same incarnation; until then it still answers for a moment.
void Replica::OnGoodbye(NodeId from, Incarnation incarnation, uint64_t now_ms) {
  const auto found = peers_.find(from);
  if (role_ != Role::kPrimary || found == peers_.end()) return;
  if (incarnation != found->second.incarnation) return;
  found->second.leaves_until_ms = now_ms + options_.suspect_ms;
  ConsiderChange(now_ms);
}

bool Replica::Suspected(const Peer& peer, uint64_t now_ms) const {
  return now_ms < peer.leaves_until_ms || now_ms - peer.heard_ms > options_.suspect_ms ||
         now_ms - peer.moved_ms > options_.lag_ms;
}

// Everything that is or may be committed: of older reigns what this one began with.
bool Replica::MayJoin(const Peer& peer, uint64_t now_ms) const {
  if (!peer.matched || now_ms < peer.leaves_until_ms ||
      now_ms - peer.heard_ms > 2 * options_.heartbeat_ms + 1)
    return false;
  if (mutations_.join_behind) return true;
  return peer.synced >= committed_ && peer.synced.value + 1 >= reign_start_.value;
}

// A primary that needs nobody commits faster than anybody can say that it has everything.
void Replica::ConsiderAdmission(uint64_t now_ms) {
  if (admitting_ != NodeId()) {
    const auto found = peers_.find(admitting_);
    const bool comes = found != peers_.end() && !Suspected(found->second, now_ms);
    if (comes && now_ms < admission_ms_) return;
    admitting_ = NodeId();
    admission_ms_ = now_ms + 10 * options_.admission_ms;
    TryCommit(now_ms);
  }
  if (now_ms < admission_ms_) return;
  for (const auto& [node, peer] : peers_) {
    if (configuration_.InSync(node, peer.incarnation) || configuration_.Leaving(node)) continue;
    if (!peer.matched || Suspected(peer, now_ms) || peer.synced < log_.base().position) continue;
    if (log_.BytesBetween(peer.synced, log_.last().position) > options_.window_bytes_max) continue;
    admitting_ = node;
    admission_ms_ = now_ms + options_.admission_ms;
    return;
  }
}

void Replica::ConsiderChange(uint64_t now_ms) {
  if (pending_) {
    // Nothing else is asked for until it is known whether this one was done: while it is not, both
    // sets are waited for, and they must not become many.
    if (pending_->asked || now_ms < pending_->retry_ms) return;
    return AskSwap(pending_->next, now_ms);
  }
  cluster::ChangeInSync change{self_.node, {}, {}};
  size_t size = configuration_.in_sync.size();
  for (const auto& [node, peer] : peers_) {
    if (configuration_.InSync(node, peer.incarnation) || configuration_.Leaving(node) ||
        !MayJoin(peer, now_ms))
      continue;
    change.join.emplace_back(node, peer.incarnation);
    size += configuration_.InSync(node) ? 0 : 1;
  }
  for (const NodeId node : configuration_.in_sync) {
    if (node == self_.node || size <= configuration_.min_in_sync) continue;
    const auto found = peers_.find(node);
    const bool other = found->second.incarnation != configuration_.incarnation(node);
    const bool joins = std::any_of(change.join.begin(), change.join.end(),
                                   [node](const auto& join) { return join.first == node; });
    const bool wanted = !other && !configuration_.Leaving(node);
    if (joins || (wanted && !Suspected(found->second, now_ms))) continue;
    change.leave.push_back(node);
    --size;
  }
  if (change.join.empty()) ConsiderAdmission(now_ms);
  if (change.join.empty() && change.leave.empty()) return;
  absl::StatusOr<Configuration> next = cluster::Next(configuration_, change);
  if (!next.ok()) return;
  if (!change.join.empty()) admitting_ = NodeId();
  AskSwap(*std::move(next), now_ms);
}

absl::Status Replica::HandOver(NodeId to, uint64_t now_ms) {
  const auto found = peers_.find(to);
  if (role_ != Role::kPrimary || !serving())
    return absl::FailedPreconditionError("not the serving primary");
  if (found == peers_.end() || !configuration_.InSync(to, found->second.incarnation) ||
      Suspected(found->second, now_ms))
    return absl::FailedPreconditionError(absl::StrCat("node ", to.value, " is not in sync"));
  if (pending_) return absl::UnavailableError("the set is being changed");
  hand_over_to_ = to;
  hand_over_until_ms_ = now_ms + options_.hand_over_ms;
  ConsiderHandOver(now_ms);
  return absl::OkStatus();
}

void Replica::ConsiderHandOver(uint64_t now_ms) {
  if (hand_over_to_ == NodeId()) return;
  const auto found = peers_.find(hand_over_to_);
  if (now_ms >= hand_over_until_ms_ || found == peers_.end()) {
    hand_over_to_ = NodeId();
    return;
  }
  if (found->second.synced == log_.last().position) Send(hand_over_to_, TakeOver{});
}

void Replica::TickAsPrimary(uint64_t now_ms) {
  if (now_ms - beat_ms_ >= options_.heartbeat_ms) {
    beat_ms_ = now_ms;
    for (auto& [node, peer] : peers_) {
      if (peer.synced == log_.last().position) peer.moved_ms = now_ms;
      SendEntries(node, peer, now_ms);
    }
    ConsiderHandOver(now_ms);
  }
  ConsiderChange(now_ms);
  if (!configuration_.Leaving(self_.node) || hand_over_to_ != NodeId()) return;
  // Where it did not come to pass, work goes on for a while before it is tried again.
  const uint64_t pause_ms = 4 * options_.hand_over_ms;
  if (hand_over_until_ms_ != 0 && now_ms < hand_over_until_ms_ + pause_ms) return;
  for (const NodeId node : configuration_.in_sync) {
    if (!configuration_.Leaving(node) && HandOver(node, now_ms).ok()) return;
  }
}

}  // namespace forebay::replication
