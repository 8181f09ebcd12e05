#include "tests/simulation/trace.h"

#include "absl/strings/str_cat.h"

namespace forebay::simulation {
namespace {

constexpr const char* kShardCommands[] = {
    "OpenSession",   "AddTasks",      "Assign",        "PutRollouts",    "PutGroup",
    "Release",       "Fail",          "Expire",        "GroupsTimedOut", "SetRewards",
    "SetQuarantine", "StartEval",     "DropForBudget", "FromLedger",     "LedgerAcknowledged",
    "DropDamaged",   "DropByOperator"};
static_assert(std::size(kShardCommands) == std::variant_size_v<shard::Command>);
constexpr const char* kLedgerCommands[] = {
    "PutSource",         "AttachTrainer",   "OpenStep",    "RequestGroups",  "FromShard",
    "ShardAcknowledged", "PutAdvantages",   "PutColumns",  "CommitStep",     "AbortStep",
    "PublishVersion",    "ReportAdoption",  "DropDamaged", "CheckpointStep", "Rewind",
    "TrimRetained",      "ReportSequences", "LiftHold",    "MarkShard"};
static_assert(std::size(kLedgerCommands) == std::variant_size_v<ledger::Command>);
constexpr const char* kToShard[] = {"SourceChanged", "VersionState",  "Reserve",
                                    "Unreserve",     "StepCommitted", "StepReplanned",
                                    "StepsReleased", "StepsCovered",  "Rewound"};
static_assert(std::size(kToShard) == std::variant_size_v<codec::ToShard>);

}  // namespace

template <class... Parts>
void Trace::Add(const Parts&... parts) {
  if (queue_->events() < from_) return;
  lines_->push_back(
      absl::StrCat("event ", queue_->events(), " at ", queue_->now_ms(), " ms: ", parts...));
}

void Trace::OnShardCommand(ShardId shard, const shard::Command& command) {
  const auto* message = std::get_if<shard::FromLedger>(&command);
  Add("shard ", shard.value, " applies ", kShardCommands[command.index()],
      message == nullptr
          ? ""
          : absl::StrCat(" ", message->number, " ", kToShard[message->message.index()]));
}
void Trace::OnLedgerCommand(const ledger::Command& command) {
  Add("ledger applies ", kLedgerCommands[command.index()]);
}
void Trace::OnAssigned(SessionId session, const shard::Assignment& a) {
  Add("attempt ", a.attempt.value, " token ", a.token, " of group ", a.group.value, " to session ",
      session.value, ", version ", a.version.number,
      a.partial == PayloadId() ? "" : absl::StrCat(", continues ", a.partial.value));
}
void Trace::OnPushed(SessionId session, const shard::RolloutMeta& meta,
                     const shard::PushOutcome& outcome) {
  Add("session ", session.value, " pushes attempt ", meta.lease.attempt.value, " token ",
      meta.lease.token, meta.partial ? " (partial)" : "", " status ", static_cast<int>(meta.status),
      " rewards ", static_cast<int>(meta.rewards_present), " payload ", meta.payload.value,
      ": result ", static_cast<int>(outcome.result), " ", outcome.field, " ", outcome.message);
}
void Trace::OnGroupPushed(const shard::PutGroup& group, const shard::PutRolloutsReply& reply) {
  Add("group ", group.request_id, " of ", group.rollouts.size(), " pushed: ", reply.accepted,
      " accepted");
}
void Trace::OnRewarded(const shard::LateReward& reward, shard::PushResult result) {
  Add("reward of attempt ", reward.attempt.value, ": result ", static_cast<int>(result));
}
void Trace::OnTrainerAnswer(const ledger::Command& command, const ledger::Reply& reply) {
  const absl::Status status = std::visit([](const auto& r) { return r.status; }, reply);
  Add(kLedgerCommands[command.index()], ": ", status.ToString());
}
void Trace::OnFetched(Generation generation, StepId step, Revision revision,
                      const ledger::MicroBatchRef& ref,
                      const absl::StatusOr<ledger::MicroBatchView>& view) {
  Add("generation ", generation.value, " fetches step ", step.value, " revision ", revision.value,
      " ", ref.dp_rank, "/", ref.mini_batch, "/", ref.micro_batch, ": ", view.status().ToString());
}
void Trace::OnPayloadDead(PayloadId payload) { Add("payload ", payload.value, " is dead"); }
void Trace::OnReserved(ShardId shard, const codec::Reserved& reserved) {
  Add("shard ", shard.value, " reserved ", reserved.groups.size(), " groups for step ",
      reserved.step.value);
}
void Trace::OnStepChanged(const ledger::Step& step) {
  Add("step ", step.step.value, " revision ", step.revision.value, " is in state ",
      static_cast<int>(step.state), " with ", step.groups.size(), " groups",
      step.failure.empty() ? "" : absl::StrCat(": ", step.failure));
}

}  // namespace forebay::simulation
