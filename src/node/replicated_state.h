// What a replica needs of a machine's state while it follows: commands, snapshots, a new beginning.
//
// Belongs to the loop that applies; not thread-safe.
#pragma once

#include <memory>
#include <string_view>

#include "base/ids.h"
#include "codec/archive.h"
#include "ledger/messages.h"
#include "ledger/state.h"
#include "shard/messages.h"
#include "shard/state.h"

namespace forebay::node {

class ReplicatedState {
 public:
  virtual ~ReplicatedState() = default;
  // The command at `position` is committed; positions rise. False if it cannot be decoded: it was
  // written by another version of this program.
  virtual bool Apply(LogPosition position, std::string_view command) = 0;
  // See codec/snapshot_parts.h.
  virtual void Snapshot(codec::Writer& writer) const = 0;
  // Becomes what a snapshot holds, whatever it was. False if it cannot be decoded; then it is
  // whatever it is.
  virtual bool Restore(std::string_view snapshot) = 0;
};

// Of a machine whose effects nobody waits for: a backup's.
template <class Command, class State, class Options, class Effects>
class FollowingState final : public ReplicatedState {
 public:
  // `options`: of a new state.
  FollowingState(State* state, const Options& options) : state_(state), options_(options) {}
  bool Apply(LogPosition, std::string_view command) override {
    if (!codec::Decode(command, &command_)) return false;
    state_->Apply(command_, 0, &effects_);
    effects_.Clear();
    return true;
  }
  void Snapshot(codec::Writer& writer) const override { state_->Snapshot(writer); }
  bool Restore(std::string_view snapshot) override {
    std::destroy_at(state_);
    std::construct_at(state_, options_);
    codec::Reader reader(snapshot);
    return state_->Restore(reader) && reader.Done();
  }

 private:
  State* const state_;
  const Options options_;
  Command command_;
  Effects effects_;
};
using FollowingShard = FollowingState<shard::Command, shard::State, shard::Options, shard::Effects>;
using FollowingLedger =
    FollowingState<ledger::Command, ledger::State, ledger::Options, ledger::Effects>;

}  // namespace forebay::node
