#include "node/replicated_log.h"

#include <chrono>

#include "codec/snapshot_parts.h"
#include "node/send_parts.h"

namespace forebay::node {

LeadingLog::LeadingLog(std::shared_ptr<MachineReplica> replica, LogOwner owner,
                       SnapshotState snapshot, LogPosition applied)
    : replica_(std::move(replica)),
      owner_(std::move(owner)),
      snapshot_state_(std::move(snapshot)),
      snapshots_(std::make_unique<storage::SnapshotWriter>(
          replica_->disk(), replica_->options().log, owner_.post, replica_->ports().encode)),
      last_(applied),
      applied_(applied) {}

// What one turn of the loop appends goes out together.
void LeadingLog::Append(LogPosition position, std::string command) {
  FOREBAY_CHECK(position.value == last_.value + 1);
  last_ = position;
  batch_bytes_ += command.size();
  batch_.push_back(std::move(command));
  if (batch_.size() > 1) return;
  owner_.post([self = shared_from_this()] { self->Flush(); });
}

void LeadingLog::Flush() {
  batch_bytes_ = 0;
  replica_->Propose(std::exchange(batch_, {}));
}

void LeadingLog::Applied(LogPosition position) {
  applied_ = position;
  replica_->Applied(position);
  if (!taking_ && replica_->WantsSnapshot()) Take(position);
}

void LeadingLog::Snapshot(LogPosition position, SnapshotDone done) {
  applied_ = position;
  asked_.push_back(std::move(done));
  if (!taking_) Take(position);
}

void LeadingLog::Take(LogPosition position) {
  taking_ = true;
  answering_ = std::exchange(asked_, {});
  const auto begin = std::chrono::steady_clock::now();
  auto parts = std::make_shared<codec::Parts>();
  snapshot_state_(parts->writer());
  const std::chrono::duration<double> pause = std::chrono::steady_clock::now() - begin;
  taken_ = {.position = position, .pause_seconds = pause.count()};
  replica_->AskPlace(position, [self = shared_from_this(), parts](replication::LogPlace base,
                                                                  LogPosition record) mutable {
    self->owner_.post([self, record, parts = std::move(parts), base]() mutable {
      self->Write(record, std::move(parts), EncodeSnapshotHead(base));
    });
  });
}

void LeadingLog::Write(LogPosition record, std::shared_ptr<codec::Parts> parts, std::string head) {
  if (ended_) return;
  const auto begin = std::chrono::steady_clock::now();
  auto pieces = [parts, head = std::move(head)]() mutable -> codec::Piece {
    if (head.empty()) return parts->Next();
    return [head = std::exchange(head, {})](std::string* to) { to->append(head); };
  };
  snapshots_->Write(
      record, std::move(pieces),
      [this, record, begin, copies = parts->copies()](absl::StatusOr<LogPosition> keep_from) {
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        taken_.bytes = snapshots_->last_bytes();
        taken_.seconds = took.count();
        taken_.copied_bytes = copies->bytes;
        taking_ = false;
        if (!keep_from.ok()) {
          replica_->ports().snapshot(keep_from.status());
          Answer(keep_from.status());
        } else {
          replica_->OnSnapshotTaken(*keep_from, record, taken_.position);
          replica_->ports().snapshot(taken_);
          Answer(SnapshotPlace{taken_.position, taken_.bytes, snapshots_->PathOf(record)});
        }
        if (!asked_.empty()) Take(applied_);
      });
}

void LeadingLog::Answer(const absl::StatusOr<SnapshotPlace>& place) {
  for (SnapshotDone& done : std::exchange(answering_, {})) done(place);
}

void LeadingLog::Send(cluster::NodeId to) {
  if (ended_) return replica_->OnSnapshotEnded(to);
  auto parts = std::make_shared<codec::Parts>();
  snapshot_state_(parts->writer());
  replica_->AskPlace(applied_, [self = shared_from_this(), to, parts](replication::LogPlace base,
                                                                      LogPosition) mutable {
    self->owner_.post([self, to, base, parts = std::move(parts)]() mutable {
      SendParts(self->replica_->ports().peers, to, self->replica_->name(), EncodeSnapshotHead(base),
                std::move(parts), self->owner_.post,
                [replica = self->replica_, to] { replica->OnSnapshotEnded(to); });
    });
  });
}

}  // namespace forebay::node
