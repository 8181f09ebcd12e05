// The state machines of one node, made safe for threads: shard loops and the ledger loop, each in a
// Serial of its own.
//
// A shard that is damaged, or that nobody brought here, is absent: the ledger plans without it, and
// calls that need it are answered Unavailable. For those that only look it is empty. Thread-safe.
// `done` callbacks run inside the loop that answers: they must not block, and may call the engine
// again. The stores outlive the engine. Every call is answered once, unless the engine goes first.
// While a machine's log is full (LogQueue), pushes to it wait, and other calls that need it are
// answered Unavailable; what needs no log goes on, renewals above all.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "base/check.h"
#include "base/sync.h"
#include "node/absent_machines.h"
#include "node/calls.h"
#include "node/dead_bytes.h"
#include "node/journal.h"
#include "node/ledger_loop.h"
#include "node/replies.h"
#include "node/serial.h"
#include "node/shard_loop.h"

namespace forebay::node {

class Engine {
 public:
  struct Options {
    uint32_t shards = 1;
    uint64_t run = 0, run_seed = 0;  // by `run` tokens and generations begin; 0: with 1
    uint32_t open_steps_max = 2;
    uint64_t absent_after_ms = ledger::kAbsentAfterMs;
  };
  template <class R>
  using Done = absl::AnyInvocable<void(R&&)>;
  // Looks at a step each time it changes; true when it has answered and waits no more.
  using StepWatcher = absl::AnyInvocable<bool(LedgerLoop&, bool timed_out)>;
  using PolicyWatcher = absl::AnyInvocable<void(const ledger::Announcement&)>;

  Engine(Options options, DeadBytes* dead);
  ~Engine();
  absl::Status Follow(Journal* journal);  // before Begin: see Journal::Follow
  // Takes up what the journal holds, and serves from then on; call it once, before anything else.
  // Without a journal the engine begins empty, and forgets everything with the process. `absent`:
  // what it begins without.
  absl::Status Begin(Journal* journal, const AbsentMachines& absent = {});

  uint32_t shards() const { return static_cast<uint32_t>(shards_.size()); }
  // The shard that owns a task of this id.
  ShardId ShardOf(uint64_t external_hash) const;
  // OK, or why it is absent. Pushes and rewards are for shards that are not.
  const absl::Status& Presence(ShardId shard) const { return shards_[shard.value]->presence; }

  // Names an Acquire that waits. Made by the caller, thread-safe.
  struct Ticket {
    uint64_t request_id = 0;  // set by Acquire
    std::atomic<bool> cancelled{false};
    std::atomic<uint32_t> shard{0};
    std::atomic<uint64_t> tag{0};  // 0: not there yet
  };
  // Assignments from the shards in turn; waits up to wait_ms for the first. The session's newest
  // request repeated ends the call that asks it still, and gets what that one got or would have.
  void Acquire(shard::Assign request, uint32_t wait_ms, Done<shard::AssignReply> done,
               std::shared_ptr<Ticket> ticket = std::make_shared<Ticket>());
  // Nobody wants the answer any more: a wait ends, and hands out nothing.
  void CancelAcquire(std::shared_ptr<Ticket> ticket);
  // Asks one shard; the answer must be an R.
  template <class R>
  void Ask(ShardId shard, shard::Command command, Done<R> done) {
    AskWith<R>(
        shard,
        [command = std::move(command)](const shard::State&) mutable { return std::move(command); },
        std::move(done));
  }
  // As Ask, with a command that `make` builds inside the loop, from the state as it is then.
  template <class R, class F>
  void AskWith(ShardId shard, F make, Done<R> done) {
    auto& s = *shards_[shard.value];
    s.serial.Post([&s, make = std::move(make), done = std::move(done)]() mutable {
      const bool full = s.log->queue().full();
      if constexpr (requires(R reply) { reply.status; }) {
        if (!s.presence.ok()) return done(Refused<R>(s.presence));
        if (full) return done(Refused<R>(s.LogFull()));
      } else if (full || !s.held.empty()) {
        s.engine->pushes_held_ += 1;
        s.held.push_back([&s, make = std::move(make), done = std::move(done)]() mutable {
          s.Propose<R>(std::move(make), std::move(done));
        });
        return;
      }
      s.Propose<R>(std::move(make), std::move(done));
    });
  }
  template <class R>
  void AskLedger(ledger::Command command, Done<R> done) {
    ledger_.serial.Post([this, command = std::move(command), done = std::move(done)]() mutable {
      if (ledger_.log->queue().full())
        return done(Refused<R>(LogFull("ledger", ledger_.log->queue())));
      const auto tag = ledger_.calls.Add([done = std::move(done)](ledger::Reply&& reply) mutable {
        done(ReplyAs<R>(std::move(reply)));
      });
      ledger_.loop->Propose(NowMs(), tag, std::move(command));
    });
  }

  // Snapshots every machine now, one after another: the ledger, then the shards.
  void Snapshot(SnapshotsDone done);

  uint64_t pushes_held() const { return pushes_held_; }  // that wait for a log

  // Runs `f` inside the loop, between commands; for queries and renewals. It must not block.
  template <class F>
  void OnShard(ShardId shard, F&& f) {
    auto& s = *shards_[shard.value];
    s.serial.Post([this, &s, f = std::forward<F>(f)]() mutable { f(*s.loop, NowMs()); });
  }
  template <class F>
  void OnLedger(F&& f) {
    ledger_.serial.Post([this, f = std::forward<F>(f)]() mutable { f(*ledger_.loop, NowMs()); });
  }

  // Calls `watcher` now, whenever the step changes, and at the end of the wait.
  void WatchStep(StepId step, uint32_t wait_ms, StepWatcher watcher);
  // At a clean end: notes how far each log is durable, so that the next start misses what is cut
  // off. `done` is called when all are at it; never if a log has failed.
  void LookAtLogs(std::function<void()> done);
  // Ends all waits for steps, and those that come later at once: the daemon goes down.
  void EndStepWaits();
  // Calls `watcher` with the newest announcements now, and with each new one, until it is removed.
  uint64_t WatchPolicy(PolicyWatcher watcher);
  void UnwatchPolicy(uint64_t id);

  static uint64_t NowMs();  // process_clock.h

 private:
  struct Shard;
  struct Ledger final : LedgerPort {
    Ledger(Engine* engine, const Options& options);
    void OnReply(ledger::Tag tag, ledger::Reply&& reply) override;
    void OnDead(const std::vector<PayloadId>& payloads) override;
    void SendToShard(ShardId shard, const codec::NumberedMessage& message) override;
    void AcknowledgeShard(ShardId shard, uint64_t number) override;
    void OnStepChanged(StepId step) override;
    void OnAnnouncement(const ledger::Announcement& announcement) override;
    absl::Status Begin(Journal* journal, LogPosition applied);
    void OnCommitted();
    void EndWaits(uint64_t now_ms);

    struct StepWait {
      StepId step;
      uint64_t until_ms;
      StepWatcher watcher;
    };
    Engine* const engine;
    // The log's disk may answer after the engine has gone.
    const std::shared_ptr<Serial> shared_serial = std::make_shared<Serial>();
    Serial& serial = *shared_serial;
    ledger::State state;
    std::unique_ptr<Log<ledger::Command>> log;
    std::optional<LedgerLoop> loop;  // from Begin on
    Calls<ledger::Reply> calls;
    std::vector<StepWait> step_waits;
    bool waits_ended = false;
    std::vector<std::pair<uint64_t, PolicyWatcher>> policy_watchers;
  };
  struct Shard final : ShardPort {
    Shard(Engine* engine, ShardId id, const Options& options);
    void OnReply(shard::Tag tag, shard::Reply&& reply) override;
    void OnDead(const std::vector<PayloadId>& payloads,
                const std::vector<PayloadId>& contents) override;
    void OnCold(const std::vector<PayloadId>& payloads) override;
    void SendToLedger(const codec::NumberedMessage& message) override;
    void AcknowledgeLedger(uint64_t number) override;
    void OnSummary(const codec::ReadySummary& summary) override;
    absl::Status Begin(Journal* journal, LogPosition applied);
    void OnCommitted();
    void Acquire(shard::Assign request, uint32_t wait_ms, std::shared_ptr<Ticket> ticket,
                 Done<shard::AssignReply> done);
    template <class R, class F>
    void Propose(F make, Done<R> done) {
      const auto tag = calls.Add([done = std::move(done)](shard::Reply&& reply) mutable {
        done(std::get<R>(std::move(reply)));
      });
      FOREBAY_CHECK(presence.ok());
      loop->Propose(NowMs(), tag, make(*state));
    }
    absl::Status LogFull() const;
    // Whether the request may have been made before. It is the session's newest from then on.
    bool NoteCall(const shard::Assign& request, const std::shared_ptr<Ticket>& ticket);

    Engine* const engine;
    const ShardId id;
    const std::shared_ptr<Serial> shared_serial = std::make_shared<Serial>();
    Serial& serial = *shared_serial;
    absl::Status presence;  // from Begin on; see Presence
    std::unique_ptr<shard::State> state;
    std::unique_ptr<shard::State> followed;  // of one that is absent: what its replica keeps
    std::unique_ptr<Log<shard::Command>> log;
    std::optional<ShardLoop> loop;  // from Begin on
    Calls<shard::Reply> calls;
    std::deque<absl::AnyInvocable<void()>> held;  // pushes that wait for the log
    absl::flat_hash_map<SessionId, std::shared_ptr<Ticket>> newest_calls;  // that begin here
    std::atomic<uint64_t> kept_bytes{0};                                   // at the last tick
  };

  // An Acquire that goes round the shards.
  struct Round;
  struct Snapshots;
  void NextSnapshot(std::unique_ptr<Snapshots> snapshots);
  void AskWhoAnswered(std::unique_ptr<Round> round);
  void NextInRound(std::unique_ptr<Round> round);
  void Visit(Shard& shard, uint32_t wait_ms, std::unique_ptr<Round> round);
  absl::Status Recover(Journal* journal, LogPosition* ledger, std::vector<LogPosition>* shards);
  void LeaveOut(Shard& shard, std::string why);
  DeadBytes::Named NamedByState() const;
  // Each machine lets go of those that it names, or at the next start if this one ends before.
  void DropLost(const std::vector<PayloadId>& lost);
  static absl::Status LogFull(const std::string& machine, const LogQueue& queue);
  void TimerThread();
  void TickAll();
  void TickShards(uint64_t free_bytes, const std::vector<SourceId>& held_back);

  const Options options_;
  DeadBytes* const dead_;
  Ledger ledger_;
  std::vector<std::unique_ptr<Shard>> shards_;
  bool follows_ = false;
  uint64_t look_due_ms_ = 0;  // at the logs; the timer's
  std::atomic<bool> closing_{false};
  std::atomic<uint64_t> pushes_held_{0};
  Mutex timer_mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(timer_mutex_) = false;
  std::thread timer_;
};

}  // namespace forebay::node
