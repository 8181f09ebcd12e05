#include "tests/cluster_simulation/disk.h"

#include <utility>
#include <vector>

namespace forebay::cluster_simulation {

using replication::LogPlace;

void Disk::Write(replication::LogWrite write) {
  waiting_.push_back(std::move(write));
  if (!syncing_) Sync();
}

void Disk::Do(const replication::LogWrite& write) {
  if (const auto* append = std::get_if<replication::AppendEntry>(&write.what)) {
    log_.Append(append->entry);
  } else if (const auto* truncate = std::get_if<replication::TruncateLog>(&write.what)) {
    log_.TruncateFrom(truncate->from);
  } else {
    log_.Restart(std::get<replication::RestartLog>(write.what).base);
  }
}

void Disk::Sync() {
  syncing_ = true;
  const size_t count = waiting_.size();
  const uint64_t most = options_.sync_ms_max;
  const uint64_t took = slow_ms_ > 0 ? dice_->Between(1, slow_ms_) : dice_->Between(1, most);
  queue_->After(took, [this, life = life_, count] {
    if (life != life_) return queue_->Idle();
    replication::LogGeneration generation = 0;
    for (size_t i = 0; i < count; ++i) {
      generation = waiting_.front().generation;
      Do(waiting_.front());
      waiting_.pop_front();
    }
    syncing_ = false;
    if (!waiting_.empty()) Sync();
    on_synced_(generation, log_.last().position);
  });
}

void Disk::Save(LogPlace base, std::string state, bool own, std::function<void()> done) {
  const uint64_t took = dice_->Between(1, 10 * options_.sync_ms_max) + slow_ms_;
  queue_->After(took, [this, life = life_, base, own, state = std::move(state),
                       done = std::move(done)]() mutable {
    if (life != life_) return queue_->Idle();
    if (base.position > snapshot_base_.position) {
      snapshot_base_ = base;
      snapshot_ = std::move(state);
      if (own && log_.Has(base)) log_.TrimTo(base.position);
    }
    done();
  });
}

void Disk::NextIncarnation() {
  if (!options_.trust_cut_log) ++incarnation_.value;
}

void Disk::Crash(bool rot) {
  ++life_;
  syncing_ = false;
  bool cut = false;
  size_t survive = dice_->Below(waiting_.size() + 1);
  for (const replication::LogWrite& write : waiting_) {
    if (survive-- == 0) {
      // The next one is there in part: it cannot be told from one that was synced and went bad.
      cut = std::holds_alternative<replication::AppendEntry>(write.what) && dice_->OneIn(2);
      break;
    }
    Do(write);
  }
  waiting_.clear();
  if (cut) stats_->Count(Fault::kTornTail);
  for (uint64_t bad = rot ? dice_->Between(1, 4) : 0; bad > 0; --bad) {
    const LogPosition last = log_.last().position;
    if (last == log_.base().position || last <= snapshot_base_.position) break;
    log_.TruncateFrom(last);
    if (!cut) stats_->Count(Fault::kRottenTail);
    cut = true;
    whole_since_ = replication::Incarnation(incarnation_.value + 1);
  }
  if (cut) NextIncarnation();
}

void Disk::Lose() {
  ++incarnation_.value;
  kept_since_ = whole_since_ = incarnation_;
  log_ = {};
  snapshot_base_ = {};
  snapshot_.clear();
}

replication::Recovered Disk::Recover() {
  // A snapshot of a peer may have come without the log beginning anew.
  log_.Restart(snapshot_base_);
  replication::Recovered recovered;
  recovered.base = log_.base();
  for (uint64_t p = log_.base().position.value + 1; p <= log_.last().position.value; ++p)
    recovered.entries.push_back(log_.At(LogPosition(p)));
  return recovered;
}

}  // namespace forebay::cluster_simulation
