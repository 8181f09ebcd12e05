#include "node/replicated_journal.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "node/replicated_log.h"
#include "node/replicated_state.h"

namespace forebay::node {

absl::Status ReplicatedJournal::FollowMachine(const std::string& name, const void* state,
                                              std::unique_ptr<ReplicatedState> following) {
  auto replica = open_(name, following.get());
  if (!replica.ok()) return replica.status();
  machines_.push_back({state, std::move(following), *std::move(replica)});
  return absl::OkStatus();
}

absl::Status ReplicatedJournal::Follow(shard::State* state) {
  const shard::Options options{.shard = state->shard(), .run_seed = run_seed_};
  return FollowMachine(absl::StrCat("shard-", state->shard().value), state,
                       std::make_unique<FollowingShard>(state, options));
}

absl::Status ReplicatedJournal::Follow(ledger::State* state) {
  return FollowMachine("ledger", state, std::make_unique<FollowingLedger>(state, state->options()));
}

const std::shared_ptr<MachineReplica>& ReplicatedJournal::ReplicaOf(const void* state) const {
  const auto found = std::ranges::find(machines_, state, &Machine::state);
  FOREBAY_CHECK(found != machines_.end());
  return found->replica;
}

absl::StatusOr<LogPosition> ReplicatedJournal::Recover(shard::State* state) {
  return ReplicaOf(state)->TakeState();
}
absl::StatusOr<LogPosition> ReplicatedJournal::Recover(ledger::State* state) {
  return ReplicaOf(state)->TakeState();
}

template <class Command, class State>
absl::StatusOr<std::unique_ptr<Log<Command>>> ReplicatedJournal::OpenMachine(const State& state,
                                                                             LogPosition applied,
                                                                             LogOwner owner) {
  const std::shared_ptr<MachineReplica>& replica = ReplicaOf(&state);
  auto log = std::make_shared<LeadingLog>(
      replica, owner, [&state](codec::Writer& writer) { state.Snapshot(writer); }, applied);
  replica->SetLeader(
      {.owner = std::move(owner), .send_snapshot = [log](cluster::NodeId to) { log->Send(to); }});
  return std::make_unique<ReplicatedLog<Command>>(std::move(log));
}

absl::StatusOr<std::unique_ptr<Log<shard::Command>>> ReplicatedJournal::OpenLog(
    const shard::State& state, LogPosition applied, LogOwner owner) {
  return OpenMachine<shard::Command>(state, applied, std::move(owner));
}
absl::StatusOr<std::unique_ptr<Log<ledger::Command>>> ReplicatedJournal::OpenLog(
    const ledger::State& state, LogPosition applied, LogOwner owner) {
  return OpenMachine<ledger::Command>(state, applied, std::move(owner));
}

}  // namespace forebay::node
