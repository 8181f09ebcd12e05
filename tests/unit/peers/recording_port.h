// A node::PeerPort that remembers what came, and holds it up when it is told to.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/sync.h"
#include "node/peer_transport.h"

namespace forebay::peers {

constexpr absl::Duration kPatience = absl::Seconds(60);

struct TakenSnapshot {
  std::string machine, head, bytes;
  bool ended = false;  // all of it is there
  bool gone = false;   // the receiver is destroyed
};

// What a port does with snapshots that are offered.
struct SnapshotRules {
  bool wanted = true;
  size_t bytes_max = SIZE_MAX;  // after more the rest is not wanted
  absl::Status end;             // what their end is answered with
};

// Remembers all that comes. Thread-safe.
class RecordingPort : public node::PeerPort {
 public:
  using Message = std::pair<std::string, std::string>;

  void OnMessage(std::string_view machine, std::string_view bytes) override {
    MutexLock lock(&mutex_);
    while (held_) changed_.Wait(&mutex_);
    messages_.emplace_back(machine, bytes);
    changed_.NotifyAll();
  }
  std::unique_ptr<node::SnapshotReceiver> OnSnapshot(std::string_view machine,
                                                     std::string_view head) override {
    MutexLock lock(&mutex_);
    if (!rules_.wanted) return nullptr;
    auto snapshot = std::make_shared<TakenSnapshot>();
    snapshot->machine = machine;
    snapshot->head = head;
    snapshots_.push_back(snapshot);
    return std::make_unique<Receiver>(this, snapshot);
  }

  void SetRules(const SnapshotRules& rules) {
    MutexLock lock(&mutex_);
    rules_ = rules;
  }
  // Chunks and ends of snapshots block from now on, or go on.
  void HoldSnapshots(bool held) {
    MutexLock lock(&mutex_);
    snapshots_held_ = held;
    changed_.NotifyAll();
  }
  // In the order in which they were offered.
  std::vector<TakenSnapshot> snapshots() {
    MutexLock lock(&mutex_);
    std::vector<TakenSnapshot> all;
    for (const auto& snapshot : snapshots_) all.push_back(*snapshot);
    return all;
  }

  // Messages block from now on, or go on.
  void Hold(bool held) {
    MutexLock lock(&mutex_);
    held_ = held;
    changed_.NotifyAll();
  }
  std::vector<Message> messages() {
    MutexLock lock(&mutex_);
    return messages_;
  }
  // All that have come once there are so many.
  std::vector<Message> Await(size_t count) {
    const Deadline deadline = DeadlineIn(kPatience);
    MutexLock lock(&mutex_);
    while (messages_.size() < count && changed_.WaitUntil(&mutex_, deadline)) {
    }
    return messages_;
  }

 private:
  class Receiver final : public node::SnapshotReceiver {
   public:
    Receiver(RecordingPort* port, std::shared_ptr<TakenSnapshot> snapshot)
        : port_(port), snapshot_(std::move(snapshot)) {}
    ~Receiver() override {
      MutexLock lock(&port_->mutex_);
      snapshot_->gone = true;
    }
    bool Chunk(std::string_view chunk) override {
      MutexLock lock(&port_->mutex_);
      port_->AwaitRelease();
      snapshot_->bytes += chunk;
      return snapshot_->bytes.size() <= port_->rules_.bytes_max;
    }
    absl::Status End() override {
      MutexLock lock(&port_->mutex_);
      port_->AwaitRelease();
      snapshot_->ended = true;
      return port_->rules_.end;
    }

   private:
    RecordingPort* const port_;
    const std::shared_ptr<TakenSnapshot> snapshot_;
  };

  void AwaitRelease() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (snapshots_held_) changed_.Wait(&mutex_);
  }

  Mutex mutex_;
  CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  bool snapshots_held_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Message> messages_ ABSL_GUARDED_BY(mutex_);
  SnapshotRules rules_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<TakenSnapshot>> snapshots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::peers
