// The backup's part of a replica: following, suspicion, taking over.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "replication/replica.h"

namespace forebay::replication {

void Replica::OnAppend(NodeId from, const Append& append, uint64_t now_ms) {
  if (role_ == Role::kPrimary) return Fail("another primary in the own epoch");
  leader_ = from;
  heard_ms_ = now_ms;
  take_over_ = false;
  const bool matched = TakeEntries(append);
  if (failed_) return;
  if (matched) SetCommitted(std::min(append.committed, matched_));
  if (append.hash) CheckHash(*append.hash);
  if (failed_) return;
  if (matched) return Answer(from, true, matched_);
  const bool beyond = append.before.position > log_.last().position;
  Answer(from, false, beyond ? log_.last().position : committed_);
}

// False if the log does not have what the entries follow.
bool Replica::TakeEntries(const Append& append) {
  // What older primaries wrote from here on is not in this one's log: it was never committed.
  const LogPosition start = append.reign_start;
  if (start > log_.base().position && start <= log_.last().position && log_.EpochAt(start) < epoch_)
    TruncateFrom(start);
  if (failed_) return false;
  // What is committed here is the same in the primary's log.
  const LogPosition before = append.before.position;
  if (before > log_.last().position) return false;
  if (before > committed_ && !log_.Has(append.before)) return false;
  LogPosition position = before;
  for (const Entry& entry : append.entries) {
    ++position.value;
    if (position <= committed_) continue;
    if (position <= log_.last().position) {
      if (log_.EpochAt(position) == entry.epoch) continue;
      TruncateFrom(position);
      if (failed_) return false;
    }
    if (entry.epoch < log_.last().epoch) {
      Fail("an entry of an earlier epoch than the one before it");
      return false;
    }
    log_.Append(entry);
    Write(AppendEntry{position, entry});
  }
  if (mutations_.truncate_committed && matched_ == LogPosition() &&
      std::max(position, committed_) < log_.last().position)
    TruncateFrom(LogPosition(std::max(position, committed_).value + 1));
  matched_ = std::max({matched_, position, committed_});
  return true;
}

void Replica::TruncateFrom(LogPosition from) {
  if (from <= committed_ || (from <= matched_ && !mutations_.ignore_epochs))
    return Fail(absl::StrCat("was told to cut the log at position ", from.value,
                             ", which is committed or the primary's own"));
  log_.TruncateFrom(from);
  synced_ = std::min(synced_, log_.last().position);
  matched_ = std::min(matched_, log_.last().position);
  Write(TruncateLog{from});
}

void Replica::Answer(NodeId to, bool matched, LogPosition end) {
  const LogPosition synced = mutations_.count_unmatched ? synced_ : std::min(matched_, synced_);
  Send(to, Appended{matched, synced, mutations_.count_unmatched ? std::max(end, synced) : end});
}

void Replica::OnHello(NodeId from, Incarnation incarnation, const Hello& hello, uint64_t now_ms) {
  Heard& heard = heard_[from];
  if (incarnation < heard.incarnation) return;
  heard = {incarnation, hello, now_ms};
  if (role_ != Role::kPrimary) return;
  const auto found = peers_.find(from);
  if (found == peers_.end()) return;
  if (incarnation > found->second.incarnation) found->second = NewPeer(incarnation, now_ms);
  // It hears nothing of this primary: it is to hear of it at once.
  if (incarnation == found->second.incarnation) SendAppend(from, found->second, {});
}

void Replica::OnTakeOver(NodeId from, uint64_t now_ms) {
  if (role_ == Role::kPrimary || from != leader_) return;
  take_over_ = true;
  TickAsBackup(now_ms);
}

void Replica::Leave() {
  if (failed_ || role_ == Role::kPrimary || leader_ == NodeId()) return;
  Send(leader_, Goodbye{});
}

void Replica::TickAsBackup(uint64_t now_ms) {
  const bool silent = leader_ == NodeId() || now_ms - heard_ms_ > 2 * options_.heartbeat_ms;
  if (silent && now_ms - beat_ms_ >= options_.heartbeat_ms) {
    beat_ms_ = now_ms;
    for (const auto& [node, incarnation] : configuration_.incarnations) {
      if (node != self_.node) Send(node, Hello{self_.kept_since, log_.last()});
    }
  }
  if (pending_ || revision_ == ConfigurationRevision()) return;
  uint64_t patience_ms = options_.suspect_ms << short_reigns_;
  for (const NodeId node : configuration_.in_sync) {
    if (node == self_.node) break;
    if (node != configuration_.primary) patience_ms += options_.promote_stagger_ms;
  }
  // An own reign that was not begun is nobody's: nobody else can be waited for.
  const bool named = configuration_.primary == self_.node && configuration_.epoch == epoch_ &&
                     configuration_.InSync(self_.node, self_.incarnation) &&
                     now_ms - heard_ms_ >= options_.swap_retry_ms;
  const bool suspects = !paused_ && now_ms - heard_ms_ > patience_ms;
  if (take_over_ || named || suspects) Campaign(now_ms);
}

void Replica::Campaign(uint64_t now_ms) {
  absl::StatusOr<Configuration> next = cluster::Next(
      configuration_, cluster::Promote{self_.node, self_.incarnation, /*keep_primary=*/take_over_});
  const bool cut = !next.ok() && MayLeadFromCutLog(now_ms);
  if (cut) next = cluster::Next(configuration_, cluster::PromoteCut{self_.node, self_.incarnation});
  if (!next.ok() && mutations_.promote_out_of_sync && configuration_.placed(self_.node)) {
    next = configuration_;
    ++next->epoch.value;
    next->primary = self_.node;
    next->in_sync = {self_.node};
    next->incarnations[self_.node] = self_.incarnation;
    for (const auto& [node, incarnation] : configuration_.incarnations) {
      if (node != self_.node && next->in_sync.size() < next->min_in_sync)
        next->in_sync.push_back(node);
    }
    std::sort(next->in_sync.begin(), next->in_sync.end());
  }
  if (!next.ok()) return;
  take_over_ = false;
  AskSwap(*std::move(next), now_ms);
  pending_->from_cut_log = cut;
}

// In sync before the log was cut. What is missing may be what was torn, or what was acknowledged;
// so every other member must have said that it was cut too and has no more, or is lost. What is not
// synced here does not count: a crash would take it, and what it lacks then would not be seen.
bool Replica::MayLeadFromCutLog(uint64_t now_ms) const {
  const Incarnation counted = configuration_.incarnation(self_.node);
  if (!configuration_.InSync(self_.node) || counted >= self_.incarnation ||
      counted < self_.kept_since || synced_ < log_.last().position)
    return false;
  for (const NodeId node : configuration_.in_sync) {
    if (node == self_.node) continue;
    const auto found = heard_.find(node);
    if (found == heard_.end() || now_ms - found->second.at_ms > options_.suspect_ms) return false;
    const Heard& other = found->second;
    const Incarnation in_set = configuration_.incarnation(node);
    if (other.incarnation <= in_set) return false;  // it has everything, and will take over
    if (other.hello.kept_since > in_set) continue;  // it is lost
    if (other.hello.last > log_.last()) return false;
    if (other.hello.last == log_.last() && node < self_.node) return false;
  }
  return true;
}

}  // namespace forebay::replication
