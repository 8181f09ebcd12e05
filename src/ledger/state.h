// The replicated half of the ledger: sources, versions, trainers' places and the table of steps.
//
// Not thread-safe: one loop drives it. Apply is deterministic: states that were given the same
// commands are equal, byte for byte. Check says whether Apply would refuse a command now, and
// changes nothing. Requirements: Apply only what the log has committed. Messages to a shard go out
// in order; at the start and after a reconnect the driver sends what `outbox(shard)` holds, for a
// new State has greetings for its shards in it already.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "codec/archive.h"
#include "codec/peer_channel.h"
#include "ledger/counters.h"
#include "ledger/drift_state.h"
#include "ledger/messages.h"
#include "ledger/options.h"
#include "ledger/records.h"
#include "ledger/step.h"

namespace forebay::ledger {

// The answer to `command` that carries `why`, of the kind that its success would have.
Reply Refusal(const Command& command, absl::Status why);

class State {
 public:
  explicit State(const Options& options);

  // A refused command changes nothing and is answered with why. Replies carry `tag` unless it is 0.
  void Apply(const Command& command, Tag tag, Effects* effects);
  // OK, or the status with which Apply would answer (but for a replan that proves impossible to
  // pack).
  absl::Status Check(const Command& command) const;

  void Snapshot(codec::Writer& writer) const;
  // False for bytes that are no snapshot of this run's ledger with as many shards; the state is
  // then unusable.
  bool Restore(codec::Reader& reader);
  uint64_t Hash() const;
  // What must hold between any two commands; InvariantsHold names the one that does not.
  absl::Status InvariantsHold() const;
  void CheckInvariants() const;

  // ---- steps
  const Step* step(StepId step) const;
  std::vector<const Step*> StepsNewestFirst() const;
  StepId next_step() const { return next_step_; }  // to commit
  StepId next_to_open() const;
  // The version that the last committed step made.
  PolicyVersion committed_version() const { return committed_version_; }
  // The payloads that the ledger owns (columns written to steps), and those of rollouts, the
  // shards' own, that steps not yet committed hold.
  void ForEachPayload(absl::FunctionRef<void(PayloadId)> written,
                      absl::FunctionRef<void(PayloadId)> held) const;
  const Checkpoint& checkpoint() const { return checkpoint_; }
  // Of committed steps.
  uint64_t retained_bytes() const;
  uint64_t retained_steps() const;
  uint64_t retained_rollouts() const;
  // The oldest step after which all can be served again.
  StepId oldest_replay() const;
  // O(slots). FailedPrecondition if the step is not sealed, Aborted for an old revision.
  absl::StatusOr<MicroBatchView> ViewMicroBatch(StepId step, Revision revision,
                                                const MicroBatchRef& ref) const;

  // ---- sources; their ids are dense
  const std::vector<Source>& sources() const { return sources_; }
  const Source* source(SourceId id) const;
  const Source* FindSource(absl::string_view name) const;

  // ---- versions
  uint32_t branch() const { return versions_.branch; }
  const codec::VersionState& versions() const { return versions_; }  // as the shards know it
  const Announcement& published() const { return published_; }
  const std::optional<Announcement>& pending() const { return pending_; }
  // Oldest first; bounded.
  const std::deque<Announcement>& announcements() const { return announcements_; }

  // ---- trainers
  Generation generation() const { return generation_; }
  const Mesh& mesh() const { return mesh_; }
  const std::vector<TrainerPlace>& places() const { return places_; }  // by (dp_rank, peer)
  // Aborted for an older generation, InvalidArgument for one that never was.
  absl::Status CheckGeneration(Generation generation) const;
  // FailedPrecondition if it is not among the next `most` steps to commit.
  absl::Status CheckOpenSteps(StepId step, uint32_t most) const;

  const std::map<std::string, Adoption>& adoptions() const { return adoptions_; }
  const Counters& counters() const { return counters_; }
  const Drift& drift() const { return drift_; }
  const Options& options() const { return options_; }
  const codec::PeerOutbox& outbox(ShardId shard) const { return channels_[shard.value].outbox; }
  const codec::PeerInbox& inbox(ShardId shard) const { return channels_[shard.value].inbox; }
  // Whether steps are planned without it.
  bool absent(ShardId shard) const { return channels_[shard.value].absent; }

 private:
  absl::Status Run(const PutSource& c, Tag tag, Effects* effects);
  absl::Status Run(const AttachTrainer& c, Tag tag, Effects* effects);
  absl::Status Run(const OpenStep& c, Tag tag, Effects* effects);
  absl::Status Run(const RequestGroups& c, Tag tag, Effects* effects);
  absl::Status Run(const FromShard& c, Tag tag, Effects* effects);
  absl::Status Run(const ShardAcknowledged& c, Tag tag, Effects* effects);
  absl::Status Run(const PutAdvantages& c, Tag tag, Effects* effects);
  absl::Status Run(const PutColumns& c, Tag tag, Effects* effects);
  absl::Status Run(const CommitStep& c, Tag tag, Effects* effects);
  absl::Status Run(const AbortStep& c, Tag tag, Effects* effects);
  absl::Status Run(const PublishVersion& c, Tag tag, Effects* effects);
  absl::Status Run(const ReportAdoption& c, Tag tag, Effects* effects);
  absl::Status Run(const DropDamaged& c, Tag tag, Effects* effects);
  absl::Status Run(const CheckpointStep& c, Tag tag, Effects* effects);
  absl::Status Run(const Rewind& c, Tag tag, Effects* effects);
  absl::Status Run(const TrimRetained& c, Tag tag, Effects* effects);
  absl::Status Run(const ReportSequences& c, Tag tag, Effects* effects);
  absl::Status Run(const LiftHold& c, Tag tag, Effects* effects);
  absl::Status Run(const MarkShard& c, Tag tag, Effects* effects);

  absl::Status CheckOne(const PutSource& c) const;
  absl::Status CheckOne(const AttachTrainer& c) const;
  absl::Status CheckOne(const OpenStep& c) const;
  absl::Status CheckOne(const RequestGroups& c) const;
  absl::Status CheckOne(const FromShard& c) const;
  absl::Status CheckOne(const ShardAcknowledged& c) const;
  absl::Status CheckOne(const PutAdvantages& c) const;
  absl::Status CheckOne(const PutColumns& c) const;
  absl::Status CheckOne(const CommitStep& c) const;
  absl::Status CheckOne(const AbortStep& c) const;
  absl::Status CheckOne(const PublishVersion& c) const;
  absl::Status CheckOne(const ReportAdoption& c) const;
  absl::Status CheckOne(const DropDamaged& c) const;
  absl::Status CheckOne(const CheckpointStep& c) const;
  absl::Status CheckOne(const Rewind& c) const;
  absl::Status CheckOne(const TrimRetained& c) const;
  absl::Status CheckOne(const ReportSequences& c) const;
  absl::Status CheckOne(const LiftHold& c) const;
  absl::Status CheckOne(const MarkShard& c) const;

  Step* FindStep(StepId step);
  absl::Status CheckSpec(const StepSpec& spec) const;
  absl::Status CheckReplan(const Step& step, const StepSpec& spec) const;
  absl::Status CheckChannels() const;
  // That the step is live and that `revision` is its own.
  absl::Status CheckRevision(StepId step, Revision revision) const;
  // And that its plan stands.
  absl::Status CheckSealed(StepId step, Revision revision) const;
  absl::Status CheckMicroBatch(const Step& step, const MicroBatchRef& ref) const;
  bool LastLive(StepId step) const;
  const TrainerPlace* FindPlace(uint32_t dp_rank, uint32_t peer) const;
  bool HoldsPlace(const AttachTrainer& c) const;
  void Begin(const OpenStep& c, const StepSpec& spec);
  absl::Status Replan(Step& step, Generation generation, const StepSpec& spec, Effects* effects);
  void Take(ShardId shard, const codec::Reserved& reserved, Effects* effects);
  void Take(ShardId shard, const codec::RolloutsLost& lost, Effects* effects);
  // Under a new revision the step reserves again; what is lost does not come back.
  void PlanWithoutLost(Step& step, Effects* effects);
  void PlanWithoutWritten(Step& step, Effects* effects);
  // The open step gives up what the shard holds for it, and what it was asked for.
  void GiveUp(Step& step, ShardId shard, Effects* effects);
  void DropOfAbsent(Step& step, const std::vector<PayloadId>& lost, Effects* effects);
  void EndRevision(Step& step, Effects* effects);
  // Seals the step if it holds enough, or lets it wait for advantages.
  void SealIfComplete(Step& step, Effects* effects);
  void Seal(Step& step, Effects* effects);
  // Ends the step and the live ones after it; their groups go back.
  void Abort(StepId step, const std::string& why, Effects* effects);
  // Gives back all that an open step holds or has asked for.
  void Return(Step& step, Effects* effects);
  void DropWritten(Step& step, Effects* effects);
  std::vector<ShardId> ShardsOf(const Step& step) const;
  // Whether the step that is about to be committed keeps its payloads; older ones may lose theirs.
  bool MakeRoom(const Step& step, uint64_t bytes_max, Effects* effects);
  // Of the committed steps up to this one.
  void Release(StepId last, Effects* effects);
  void ReleasePlan(Step& step);
  void SetKeep(const codec::KeepRule& rule);
  const PastRewind* FindRewind(uint64_t request_id) const;
  // The version that the step made, wherever a rewind can go back to.
  PolicyVersion VersionAfter(StepId step) const;
  // Removes what was taken back, but for what is served again; answers how many steps that is.
  uint64_t TakeBack(StepId step, StepId served_again, Effects* effects);

  void DriftCommitted(const Step& step, const drift::Rules& rules);

  static void Answer(Tag tag, Reply reply, Effects* effects);
  void SendToAll(const codec::ToShard& message, Effects* effects);
  void Send(ShardId shard, const codec::ToShard& message, Effects* effects);
  // Tells the shards, if anything in VersionState is not as they know it.
  void SendVersionState(Effects* effects);
  codec::VersionState CurrentVersionState() const;
  uint64_t RolloutsWanted(const Step& step) const;
  uint32_t ShardsPresent() const;  // that divide admission among them; at least 1

  absl::Status StepsHold() const;
  absl::Status VersionsHold() const;
  absl::Status RewindsHold() const;
  absl::Status PlacesHold() const;

  template <class A>
  void Fields(A& a);

  const Options options_;
  std::vector<Source> sources_;
  std::vector<ShardChannel> channels_;

  Generation generation_;
  Mesh mesh_;
  std::vector<TrainerPlace> places_;
  std::deque<uint64_t> displaced_;  // processes that lost their place to another; oldest first

  std::map<StepId, Step> steps_;
  StepId next_step_{1};
  PolicyVersion committed_version_;
  uint64_t last_request_ = 0;
  Checkpoint checkpoint_;
  codec::KeepRule keep_;            // a shard's part of what was said last
  PolicyVersion branch_begin_;      // the version that the current branch began with
  Revision newest_revision_;        // ever given to a step
  Revision fenced_revision_;        // of the old branches: later plans have a later one
  std::deque<PastRewind> rewinds_;  // oldest first

  codec::VersionState versions_;
  Announcement published_;
  std::optional<Announcement> pending_;
  std::deque<Announcement> announcements_;
  uint64_t rollouts_since_published_ = 0;  // committed
  uint64_t measured_rollouts_ = 0;  // per published version, smoothed; 0 before the first commit

  std::map<std::string, Adoption> adoptions_;
  uint64_t adoption_reports_ = 0;
  Counters counters_;
  Drift drift_;
};

}  // namespace forebay::ledger
