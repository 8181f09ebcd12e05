// Where a node's machines keep what they must not forget: for each a log, and snapshots of what the
// log no longer holds.
//
// Recover each machine once, then open its log. One thread; the logs belong to their loops.
#pragma once

#include <functional>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "ledger/messages.h"
#include "ledger/state.h"
#include "node/log.h"
#include "shard/messages.h"
#include "shard/state.h"

namespace forebay::node {

// The loop that a log belongs to.
struct LogOwner {
  // Runs a closure in the loop, later.
  std::function<void(absl::AnyInvocable<void()>)> post;
  // Called in the loop when more is committed.
  std::function<void()> committed;
};

class Journal {
 public:
  virtual ~Journal() = default;
  // Of a node that may have to wait until it leads: the state is kept up to date from now on, until
  // it is recovered.
  virtual absl::Status Follow(shard::State* state) {
    (void)state;
    return absl::OkStatus();
  }
  virtual absl::Status Follow(ledger::State* state) {
    (void)state;
    return absl::OkStatus();
  }
  // Brings a new state to where the journal ends; the position of its last command. DataLoss,
  // naming file and offset, when what was synced cannot be read.
  virtual absl::StatusOr<LogPosition> Recover(shard::State* state) = 0;
  virtual absl::StatusOr<LogPosition> Recover(ledger::State* state) = 0;
  // The log that goes on after `applied`. The state is read for snapshots, within the loop, and
  // outlives the log.
  virtual absl::StatusOr<std::unique_ptr<Log<shard::Command>>> OpenLog(const shard::State& state,
                                                                       LogPosition applied,
                                                                       LogOwner owner) = 0;
  virtual absl::StatusOr<std::unique_ptr<Log<ledger::Command>>> OpenLog(const ledger::State& state,
                                                                        LogPosition applied,
                                                                        LogOwner owner) = 0;
};

}  // namespace forebay::node
