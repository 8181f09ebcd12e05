// One replica of one machine, primary or backup: events in, what is to be done out (output.h).
// docs/replication.md explains the protocol.
//
// Not thread-safe; no clock: times come in with the events, and no rule that keeps entries safe
// looks at them. Callers feed every event, then take the output and do what it says. What the
// coordinator and the own disk say is believed; peers may lose, repeat, delay and reorder, and what
// they could not have said is dropped or ends the replica (Output::failure), but they are not
// adversaries.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/configuration.h"
#include "cluster/transitions.h"
#include "replication/entry_log.h"
#include "replication/messages.h"
#include "replication/options.h"
#include "replication/output.h"

namespace forebay::replication {

class Replica {
 public:
  Replica(const Options& options, const Mutations& mutations, Identity self, Recovered recovered,
          uint64_t now_ms);

  // --- Events ---

  // The coordinator's value; an old one changes nothing.
  void OnConfiguration(ConfigurationRevision revision, const Configuration& configuration,
                       uint64_t now_ms);
  void OnSwapAnswer(const SwapAnswer& answer, uint64_t now_ms);
  void OnMessage(const Message& message, uint64_t now_ms);
  // The own log is synced up to here, with all writes of this generation and before.
  void OnSynced(LogGeneration generation, LogPosition position, uint64_t now_ms);
  // The state is at `position`; its hash where all replicas take one (the same positions).
  void OnApplied(LogPosition position, std::optional<uint64_t> hash);
  // A snapshot of a peer, which WantsSnapshot, is durable here, and the state is the snapshot's.
  void OnSnapshotInstalled(LogPlace base, uint64_t now_ms);
  // The peer took the snapshot that was asked for, or not; until then no other one is asked for.
  void OnSnapshotEnded(NodeId to);
  void OnTick(uint64_t now_ms);

  // Of the serving primary: the command's position, before it is committed. UNAVAILABLE: not here,
  // or not now. RESOURCE_EXHAUSTED: too much waits to be committed.
  absl::StatusOr<LogPosition> Propose(std::string command, uint64_t now_ms);
  // Ok if a command of so many bytes would be taken now, or why not.
  absl::Status MayPropose(size_t bytes) const;
  // Asks a backup that is in sync to take over; until it has, or for a while, nothing is proposed.
  absl::Status HandOver(NodeId to, uint64_t now_ms);
  // Of a backup whose process ends soon: asks its primary, if one is known, to go on without it.
  // Messages are lost: again until the set is without it.
  void Leave();
  // An operator wants nobody to take over by itself: suspicion leads to nothing. A primary that
  // asks for it, or an operator who has named this replica, is followed all the same.
  void SetPaused(bool paused) { paused_ = paused; }

  // What the events since the last call ask for. What was proposed since goes out together.
  Output Take();

  // --- What is known ---

  // Asked before a snapshot is taken, and again before the state is replaced by it.
  bool WantsSnapshot(LogPlace base) const {
    return !failed_ && role_ == Role::kBackup && base.position > committed_;
  }

  Role role() const { return role_; }
  // The state holds all that earlier reigns have committed.
  bool serving() const { return role_ == Role::kPrimary && applied_ >= reign_start_; }
  Epoch epoch() const { return epoch_; }
  NodeId leader() const { return leader_; }  // where clients should go; 0: not known
  LogPosition committed() const { return committed_; }
  LogPosition synced() const { return synced_; }
  const EntryLog& log() const { return log_; }
  const Configuration& configuration() const { return configuration_; }
  ConfigurationRevision revision() const { return revision_; }
  const Identity& self() const { return self_; }
  bool failed() const { return failed_; }

 private:
  // What the primary knows of a replica.
  struct Peer {
    Incarnation incarnation;
    LogPosition synced;            // it has said so in this epoch
    LogPosition end;               // it has this, synced or not
    LogPosition next;              // to be sent
    bool matched = false;          // until then one message at a time
    uint64_t leaves_until_ms = 0;  // has said that its process ends; then it may be back
    uint64_t heard_ms = 0;
    uint64_t moved_ms = 0;     // when it was not behind, or came closer
    uint64_t snapshot_ms = 0;  // when the last one was asked for
    LogPosition snapshot_at;   // of that
    bool snapshot_on_way = false;
  };
  // A compare-and-swap that was asked for and is not known to be impossible yet.
  struct Pending {
    uint64_t id = 0;
    ConfigurationRevision base;
    Configuration next;
    bool asked = false;  // its answer is to come
    uint64_t retry_ms = 0;
    bool from_cut_log = false;
  };
  struct Heard {
    Incarnation incarnation;
    Hello hello;
    uint64_t at_ms = 0;
  };

  // replica.cc
  void NoteEpoch(Epoch epoch);
  void Fail(const std::string& what);
  void Send(NodeId to, decltype(Message::body) body);
  void Write(decltype(LogWrite::what) what);
  void NoteReign(uint64_t now_ms);
  void AskSwap(Configuration next, uint64_t now_ms);
  void SetCommitted(LogPosition position);
  void CheckHash(const StateHash& theirs);
  LogPosition NeededByPeers() const;
  void TrimApplied();

  // backup.cc
  void OnAppend(NodeId from, const Append& append, uint64_t now_ms);
  bool TakeEntries(const Append& append);
  void TruncateFrom(LogPosition from);
  void Answer(NodeId to, bool matched, LogPosition end);
  void OnHello(NodeId from, Incarnation incarnation, const Hello& hello, uint64_t now_ms);
  void OnTakeOver(NodeId from, uint64_t now_ms);
  void TickAsBackup(uint64_t now_ms);
  void Campaign(uint64_t now_ms);
  bool MayLeadFromCutLog(uint64_t now_ms) const;

  // primary.cc
  void BeginReign(uint64_t now_ms);
  void MatchPeersToConfiguration(uint64_t now_ms);
  Peer NewPeer(Incarnation incarnation, uint64_t now_ms) const;
  void AppendOwn(std::string command);
  void OnAppended(NodeId from, Incarnation incarnation, const Appended& answer, uint64_t now_ms);
  void OnGoodbye(NodeId from, Incarnation incarnation, uint64_t now_ms);
  void SendEntries(NodeId to, Peer& peer, uint64_t now_ms);
  void SendProposed();
  void SendAppend(NodeId to, const Peer& peer, std::vector<Entry> entries);
  void TryCommit(uint64_t now_ms);
  bool HasSynced(NodeId node, Incarnation incarnation, LogPosition position) const;
  bool AllHaveSynced(const Configuration& set, LogPosition position, uint64_t now_ms) const;
  bool Suspected(const Peer& peer, uint64_t now_ms) const;
  bool MayJoin(const Peer& peer, uint64_t now_ms) const;
  void ConsiderAdmission(uint64_t now_ms);
  void ConsiderChange(uint64_t now_ms);
  void ConsiderHandOver(uint64_t now_ms);
  void TickAsPrimary(uint64_t now_ms);

  const Options options_;
  const Mutations mutations_;
  const Identity self_;

  // Of the log.
  EntryLog log_;
  LogGeneration generation_ = 0;
  LogPosition synced_;
  LogPosition committed_;
  LogPosition applied_;
  std::deque<StateHash> hashes_;       // of the own state, the latest ones
  std::optional<StateHash> expected_;  // of a position that is not applied yet

  // Of the configuration.
  ConfigurationRevision revision_;
  Configuration configuration_;
  std::optional<Pending> pending_;
  uint64_t next_swap_id_ = 1;

  Role role_ = Role::kBackup;
  Epoch epoch_;
  NodeId leader_;
  uint64_t tick_ms_;
  uint64_t beat_ms_ = 0;  // of the last heartbeat or Hello
  bool failed_ = false;

  // Of a backup.
  LogPosition matched_;  // up to here the log is the primary's of this epoch
  uint64_t heard_ms_;
  bool take_over_ = false;
  bool paused_ = false;
  std::optional<uint64_t> reign_ms_;  // when the configuration's epoch was first heard of
  uint32_t short_reigns_ = 0;         // in a row, before that
  std::map<NodeId, Heard> heard_;

  // Of a primary.
  LogPosition reign_start_;
  std::map<NodeId, Peer> peers_;
  // Nearly has everything: commits wait for it for a moment, so that it can join.
  NodeId admitting_;
  uint64_t admission_ms_ = 0;  // of its end, or before which nobody is admitted
  NodeId hand_over_to_;
  uint64_t hand_over_until_ms_ = 0;
  bool proposed_ = false;  // and not sent yet
  uint64_t proposed_ms_ = 0;

  Output output_;
};

}  // namespace forebay::replication
