// A machine's log on disk, with snapshots of the machine's state when the log has grown.
//
// Belongs to the machine's loop; not thread-safe. The state outlives it. A snapshot stops the loop
// for as long as it takes to look at the state (codec/snapshot_parts.h); it is encoded and written
// while the loop goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "codec/archive.h"
#include "codec/snapshot_parts.h"
#include "node/log.h"
#include "storage/log_mark.h"
#include "storage/log_writer.h"
#include "storage/snapshot_writer.h"

namespace forebay::node {

// What a snapshot was and cost.
struct SnapshotTaken {
  LogPosition position;
  uint64_t bytes = 0;         // as stored
  double pause_seconds = 0;   // that the loop stood still for it
  double seconds = 0;         // until it was durable
  uint64_t copied_bytes = 0;  // of the state, for it changed meanwhile
};
// Called in the loop when a snapshot has come to its end, or failed.
using OnSnapshot = std::function<void(const absl::StatusOr<SnapshotTaken>&)>;

template <class Command, class State>
class MachineLog final : public Log<Command> {
 public:
  MachineLog(const State& state, std::unique_ptr<storage::LogWriter> writer,
             std::unique_ptr<storage::SnapshotWriter> snapshots,
             std::unique_ptr<storage::LogMarker> marker, uint64_t snapshot_log_bytes,
             uint64_t recovered_bytes, OnSnapshot on_snapshot)
      : state_(state),
        writer_(std::move(writer)),
        snapshots_(std::move(snapshots)),
        marker_(std::move(marker)),
        snapshot_log_bytes_(snapshot_log_bytes),
        recovered_bytes_(recovered_bytes),
        on_snapshot_(std::move(on_snapshot)) {}

  void Append(LogPosition position, const Command& command) override {
    record_.clear();
    codec::Writer writer(&record_);
    writer(command);
    writer_->Append(position, record_);
  }
  LogPosition committed() const override { return writer_->durable(); }
  LogQueue queue() const override {
    return {.bytes = writer_->pending_bytes(), .bytes_max = writer_->pending_bytes_max()};
  }

  void Look(absl::AnyInvocable<void()> done) override {
    writer_->LookForFile();
    marker_->Mark(writer_->durable(), std::move(done));
  }

  void Applied(LogPosition position) override {
    applied_ = position;
    if (LogBytes() - snapshot_at_ < snapshot_log_bytes_ || snapshots_->busy()) return;
    Write(position);
  }
  void Snapshot(LogPosition position, SnapshotDone done) override {
    applied_ = position;
    if (position == LogPosition()) return done(SnapshotPlace());
    asked_.push_back(std::move(done));
    // One that is under way may be older than the question.
    if (!snapshots_->busy()) WriteAsked();
  }

 private:
  static double SecondsSince(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  // As stored, with padding. What was recovered counts, or a process that never lives long would
  // let the log grow for ever.
  uint64_t LogBytes() const { return recovered_bytes_ + writer_->use().bytes; }

  void Write(LogPosition position) {
    snapshot_at_ = LogBytes();
    const auto begin = std::chrono::steady_clock::now();
    auto parts = std::make_shared<codec::Parts>();
    state_.Snapshot(parts->writer());
    snapshots_->Write(
        position, [parts] { return parts->Next(); },
        [this, position, begin, copies = parts->copies()](auto keep_from) {
          Snapshotted(keep_from, {.position = position,
                                  .bytes = snapshots_->last_bytes(),
                                  .pause_seconds = pause_seconds_,
                                  .seconds = SecondsSince(begin),
                                  .copied_bytes = copies->bytes});
        });
    pause_seconds_ = SecondsSince(begin);
  }
  void WriteAsked() {
    answering_ = std::exchange(asked_, {});
    Write(applied_);
  }

  // One that failed leaves the log as long as it is; the next comes in its time.
  void Snapshotted(const absl::StatusOr<LogPosition>& keep_from, const SnapshotTaken& taken) {
    if (keep_from.ok()) writer_->TruncateBefore(*keep_from);
    if (on_snapshot_ && keep_from.ok()) on_snapshot_(taken);
    if (on_snapshot_ && !keep_from.ok()) on_snapshot_(keep_from.status());
    Answer(taken.position, keep_from.status());
    if (!asked_.empty()) WriteAsked();
  }
  void Answer(LogPosition position, const absl::Status& status) {
    for (SnapshotDone& done : std::exchange(answering_, {})) {
      if (!status.ok()) {
        done(status);
      } else {
        done(SnapshotPlace{position, snapshots_->last_bytes(), snapshots_->PathOf(position)});
      }
    }
  }

  const State& state_;
  const std::unique_ptr<storage::LogWriter> writer_;
  const std::unique_ptr<storage::SnapshotWriter> snapshots_;
  const std::unique_ptr<storage::LogMarker> marker_;
  const uint64_t snapshot_log_bytes_;
  const uint64_t recovered_bytes_;  // after the snapshot that the machine began with
  const OnSnapshot on_snapshot_;
  uint64_t snapshot_at_ = 0;  // LogBytes() when the last one began
  double pause_seconds_ = 0;  // of the last one
  std::string record_;        // keeps its memory
  LogPosition applied_;
  std::vector<SnapshotDone> asked_;      // wait for the next snapshot
  std::vector<SnapshotDone> answering_;  // ... and for the one that is under way
};

}  // namespace forebay::node
