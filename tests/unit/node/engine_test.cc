// Acquires that go round several shards.
#include "node/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "base/sync.h"
#include "codec/archive.h"

namespace forebay::node {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr absl::Duration kDeadline = absl::Seconds(30);
constexpr SessionId kActor{11};
constexpr SourceId kSource{0};
constexpr uint32_t kLongWaitMs = 20'000;

class NoBytes final : public DeadBytes {
 public:
  void FreePayloads(const std::vector<PayloadId>&) override {}
  void FreeContents(const std::vector<PayloadId>&) override {}
  uint64_t FreePayloadBytes() const override { return uint64_t{1} << 40; }
  absl::StatusOr<std::vector<PayloadId>> Recovered(const Named& named) override {
    all = named.all;
    return lost;
  }
  bool all = true;              // machines said what they name
  std::vector<PayloadId> lost;  // that the next start does not find
  void Want(StepId, std::vector<PayloadId>) override {}
  void Cool(const std::vector<PayloadId>&) override {}
};

// Commits at once, but for shards whose log is held.
class HeldJournal final : public Journal {
 public:
  template <class Command>
  class HeldLog final : public Log<Command> {
   public:
    explicit HeldLog(LogOwner owner) : owner_(std::move(owner)) {}
    void Append(LogPosition position, const Command&) override {
      appended_ = position;
      if (!held_) committed_ = position;
    }
    LogPosition committed() const override { return committed_; }
    LogQueue queue() const override {
      return {.bytes = appended_.value - committed_.value, .bytes_max = 3};
    }
    void Hold(bool held) {
      owner_.post([this, held] {
        held_ = held;
        if (held) return;
        committed_ = appended_;
        owner_.committed();
      });
    }

   private:
    const LogOwner owner_;
    bool held_ = false;
    LogPosition appended_, committed_;
  };

  absl::StatusOr<LogPosition> Recover(shard::State* state) override {
    if (snapshots.empty()) return LogPosition(0);
    codec::Reader reader(snapshots[state->shard().value]);
    if (!state->Restore(reader)) return absl::DataLossError("the snapshot");
    return LogPosition(1);
  }
  absl::StatusOr<LogPosition> Recover(ledger::State* state) override {
    if (ledger_snapshot.empty()) return LogPosition(0);
    codec::Reader reader(ledger_snapshot);
    if (!state->Restore(reader)) return absl::DataLossError("the snapshot");
    return LogPosition(1);
  }
  absl::StatusOr<std::unique_ptr<Log<shard::Command>>> OpenLog(const shard::State&, LogPosition,
                                                               LogOwner owner) override {
    auto log = std::make_unique<HeldLog<shard::Command>>(std::move(owner));
    shards.push_back(log.get());
    return log;
  }
  absl::StatusOr<std::unique_ptr<Log<ledger::Command>>> OpenLog(const ledger::State&, LogPosition,
                                                                LogOwner owner) override {
    auto log = std::make_unique<HeldLog<ledger::Command>>(std::move(owner));
    ledger = log.get();
    return log;
  }

  std::vector<HeldLog<shard::Command>*> shards;
  HeldLog<ledger::Command>* ledger = nullptr;
  std::vector<std::string> snapshots;  // of shards, to begin with
  std::string ledger_snapshot;
};

// An answer that comes later.
template <class R>
struct Later {
  R reply;
  Notification done;
  auto Take() {
    return [this](R&& answer) {
      reply = std::move(answer);
      done.Notify();
    };
  }
  R& Wait() {
    EXPECT_TRUE(done.WaitFor(kDeadline));
    return reply;
  }
};

class EngineTest : public ::testing::Test {
 protected:
  void Start(uint32_t shards) {
    engine.reset();
    journal.shards.clear();
    engine = std::make_unique<Engine>(Engine::Options{.shards = shards, .run_seed = 5}, &bytes);
    ASSERT_TRUE(engine->Begin(&journal).ok());
    codec::SourceSettings settings;
    settings.name = "math";
    settings.group_size = settings.attempts_per_task = settings.complete_at = 2;
    Later<ledger::PutSourceReply> put;
    engine->AskLedger<ledger::PutSourceReply>(ledger::PutSource{settings}, put.Take());
    ASSERT_TRUE(put.Wait().status.ok()) << put.reply.status;
    for (uint32_t i = 0; i < shards; ++i) {
      Later<shard::CountReply> opened;
      engine->Ask<shard::CountReply>(Shard(i), shard::OpenSession{kActor, "a", "e", "s", "c"},
                                     opened.Take());
      ASSERT_TRUE(opened.Wait().status.ok());
    }
  }
  void Restart() {
    Stop();
    ASSERT_TRUE(Begin().ok());
  }
  // Keeps the states for the next start.
  void Stop() {
    Notification done;
    engine->OnLedger([&](LedgerLoop& loop, uint64_t) {
      journal.ledger_snapshot.clear();
      codec::Writer writer(&journal.ledger_snapshot);
      loop.state().Snapshot(writer);
      done.Notify();
    });
    ASSERT_TRUE(done.WaitFor(kDeadline));
    journal.snapshots.clear();
    for (uint32_t i = 0; i < engine->shards(); ++i) {
      OnLoop(i, [this](ShardLoop& loop) {
        codec::Writer writer(&journal.snapshots.emplace_back());
        loop.state().Snapshot(writer);
      });
    }
    engine.reset();
  }
  absl::Status Begin(const AbsentMachines& absent = {}) {
    const auto shards = static_cast<uint32_t>(journal.snapshots.size());
    journal.shards.clear();
    engine = std::make_unique<Engine>(Engine::Options{.shards = shards, .run_seed = 5}, &bytes);
    return engine->Begin(&journal, absent);
  }
  void OnLoop(uint32_t shard, absl::FunctionRef<void(ShardLoop&)> look) {
    Notification done;
    engine->OnShard(Shard(shard), [&](ShardLoop& loop, uint64_t) {
      look(loop);
      done.Notify();
    });
    ASSERT_TRUE(done.WaitFor(kDeadline));
  }
  static ShardId Shard(uint32_t shard) { return ShardId(static_cast<uint8_t>(shard)); }

  void AddTasks(uint32_t shard, uint32_t count) {
    shard::AddTasks add{kSource, {}};
    for (uint32_t i = 0; i < count; ++i, ++task)
      add.tasks.push_back({task, task, PayloadId(task), 1});
    Later<shard::AddTasksReply> added;
    engine->Ask<shard::AddTasksReply>(Shard(shard), std::move(add), added.Take());
    ASSERT_TRUE(added.Wait().status.ok()) << added.reply.status;
  }

  void Ask(uint64_t request_id, uint32_t max, uint32_t wait_ms, Later<shard::AssignReply>* later) {
    shard::Assign assign;
    assign.session = kActor;
    assign.request_id = request_id;
    assign.max = max;
    engine->Acquire(std::move(assign), wait_ms, later->Take());
  }
  shard::AssignReply Acquire(uint64_t request_id, uint32_t max = 2) {
    Later<shard::AssignReply> later;
    Ask(request_id, max, 0, &later);
    return std::move(later.Wait());
  }
  // The shards that the attempts are of.
  std::set<ShardId> AcquiredOf(uint64_t request_id) {
    std::set<ShardId> shards;
    for (const auto& a : Acquire(request_id).assignments) shards.insert(a.attempt.shard());
    return shards;
  }
  static std::vector<std::pair<uint64_t, uint32_t>> Leases(const shard::AssignReply& reply) {
    std::vector<std::pair<uint64_t, uint32_t>> leases;
    for (const auto& a : reply.assignments) leases.emplace_back(a.attempt.value, a.token);
    return leases;
  }
  // Of all shards.
  uint64_t LeasesOut() {
    uint64_t leases = 0;
    for (uint32_t i = 0; i < engine->shards(); ++i) {
      OnLoop(i, [&](ShardLoop& loop) {
        for (const auto& source : loop.state().Sources()) leases += source.in_flight;
      });
    }
    return leases;
  }
  // Until the ledger knows that the shard has taken all its messages.
  void AwaitAcknowledged(uint32_t shard) {
    bool found = false;
    for (const absl::Time end = absl::Now() + kDeadline; !found && absl::Now() < end;) {
      Notification done;
      engine->OnLedger([&](LedgerLoop& loop, uint64_t) {
        found = loop.state().outbox(Shard(shard)).Unacknowledged().empty();
        done.Notify();
      });
      ASSERT_TRUE(done.WaitFor(kDeadline));
      if (!found) absl::SleepFor(absl::Milliseconds(1));  // poll: the loops get there
    }
    ASSERT_TRUE(found);
  }
  static std::string EmptyShard(uint32_t shard) {
    std::string bytes;
    codec::Writer writer(&bytes);
    shard::State(shard::Options{.shard = Shard(shard), .run_seed = 5}).Snapshot(writer);
    return bytes;
  }
  void AwaitUncommitted(uint32_t shard) {
    bool found = false;
    for (const absl::Time end = absl::Now() + kDeadline; !found && absl::Now() < end;) {
      OnLoop(shard, [&](ShardLoop& loop) { found = loop.uncommitted() > 0; });
      if (!found) absl::SleepFor(absl::Milliseconds(1));  // poll: the loop gets there
    }
    ASSERT_TRUE(found);
  }

  NoBytes bytes;
  HeldJournal journal;
  uint64_t task = 1;
  std::unique_ptr<Engine> engine;
};

TEST_F(EngineTest, ARepeatedRequestIsAnsweredByTheShardThatAnsweredItFirst) {
  for (const uint32_t request : {1, 2, 3}) {
    Start(3);
    AddTasks((request + 2) % 3, 1);  // at the last of its round
    const auto first = Acquire(request);
    ASSERT_THAT(first.assignments, SizeIs(2));
    for (uint32_t shard = 0; shard < 3; ++shard) AddTasks(shard, 4);
    EXPECT_EQ(Leases(Acquire(request)), Leases(first));
    EXPECT_EQ(LeasesOut(), 2u);
    EXPECT_THAT(Acquire(request + 1).assignments, SizeIs(2));
    EXPECT_EQ(LeasesOut(), 4u);
  }
}

TEST_F(EngineTest, ARepeatedRequestIsAnsweredByAllShardsThatAnsweredIt) {
  Start(3);
  AddTasks(0, 1);
  AddTasks(2, 1);
  const auto first = Acquire(1, 4);
  ASSERT_THAT(first.assignments, SizeIs(4));
  AddTasks(1, 4);
  EXPECT_EQ(Leases(Acquire(1, 4)), Leases(first));
  EXPECT_EQ(Leases(Acquire(1, 3)), Leases(first));
  EXPECT_EQ(LeasesOut(), 4u);
}

TEST_F(EngineTest, ARepeatedRequestIsKnownAfterARestart) {
  Start(2);
  AddTasks(0, 1);
  const auto first = Acquire(1);
  ASSERT_THAT(first.assignments, SizeIs(2));
  AddTasks(1, 4);
  Restart();
  EXPECT_EQ(Leases(Acquire(1)), Leases(first));
  EXPECT_EQ(LeasesOut(), 2u);
  EXPECT_THAT(Acquire(2).assignments, SizeIs(2));
}

TEST_F(EngineTest, AMachineThatLacksWhatAnotherKnowsOfIsNotStarted) {
  Start(2);
  AddTasks(1, 1);  // the shard has applied the source, so it has taken the ledger's message
  Stop();
  const std::string ledger = std::exchange(journal.ledger_snapshot, "");
  absl::Status status = Begin();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), StartsWith("the log of ledger lacks"));

  journal.ledger_snapshot = ledger;
  ASSERT_TRUE(Begin().ok());
  AwaitAcknowledged(1);
  Stop();
  // Of the shards one is enough.
  journal.snapshots[1] = EmptyShard(1);
  ASSERT_TRUE(Begin().ok());
  EXPECT_TRUE(engine->Presence(Shard(0)).ok());
  EXPECT_THAT(std::string(engine->Presence(Shard(1)).message()),
              StartsWith("shard-1 is absent, for it is damaged: the log of shard-1 lacks"));
  AwaitAcknowledged(0);
  engine.reset();
  journal.snapshots[0] = EmptyShard(0);
  status = Begin();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), StartsWith("the log of shard-1 lacks"));
}

TEST_F(EngineTest, AShardThatIsAbsentIsGoneRoundAndRefusesAndIsTakenBackAsItWas) {
  Start(2);
  AddTasks(0, 2);
  AddTasks(1, 2);
  Stop();
  ASSERT_TRUE(Begin({{"shard-1", "nobody has it"}}).ok());
  EXPECT_FALSE(bytes.all) << "what it names would be garbage";
  EXPECT_EQ(engine->Presence(Shard(1)).message(), "nobody has it");
  // Whichever shard a request begins at.
  for (const uint64_t request : {1, 2}) EXPECT_EQ(AcquiredOf(request), std::set{Shard(0)});
  Later<shard::AddTasksReply> refused;
  engine->Ask<shard::AddTasksReply>(Shard(1), shard::AddTasks{kSource, {}}, refused.Take());
  EXPECT_TRUE(absl::IsUnavailable(refused.Wait().status));
  const std::string as_it_was = journal.snapshots[1];
  Stop();
  journal.snapshots[1] = as_it_was;
  ASSERT_TRUE(Begin().ok());
  EXPECT_TRUE(bytes.all);
  EXPECT_EQ(AcquiredOf(3), std::set{Shard(1)});
}

TEST_F(EngineTest, ARequestThatIsRepeatedWhileItsAnswerIsLoggedGetsIt) {
  Start(2);
  AddTasks(0, 1);
  journal.shards[0]->Hold(true);
  Later<shard::AssignReply> first, again;
  Ask(1, 2, 0, &first);
  AwaitUncommitted(0);
  AddTasks(1, 4);
  Ask(1, 2, 0, &again);
  journal.shards[0]->Hold(false);
  EXPECT_THAT(first.Wait().assignments, SizeIs(2));
  EXPECT_EQ(Leases(again.Wait()), Leases(first.reply));
  EXPECT_EQ(LeasesOut(), 2u);
}

TEST_F(EngineTest, ARepeatedRequestEndsTheOneThatWaits) {
  Start(2);
  Later<shard::AssignReply> first, again;
  Ask(1, 2, kLongWaitMs, &first);
  Ask(1, 2, kLongWaitMs, &again);
  EXPECT_THAT(first.Wait().assignments, IsEmpty());
  EXPECT_STREQ(first.reply.reason, "superseded");
  AddTasks(0, 4);
  EXPECT_THAT(again.Wait().assignments, SizeIs(2));
  EXPECT_EQ(LeasesOut(), 2u);
}

TEST_F(EngineTest, ARequestThatFoundNothingMayFindSomethingWhenItIsRepeated) {
  Start(2);
  EXPECT_THAT(Acquire(1).assignments, IsEmpty());
  AddTasks(0, 1);
  EXPECT_THAT(Acquire(1).assignments, SizeIs(2));
}

TEST_F(EngineTest, AnOlderRequestGetsNothing) {
  Start(3);
  AddTasks(0, 1);
  const auto first = Acquire(1);
  ASSERT_THAT(first.assignments, SizeIs(2));
  AddTasks(2, 4);
  ASSERT_THAT(Acquire(2).assignments, SizeIs(2));
  const auto late = Acquire(1);
  EXPECT_THAT(late.assignments, IsEmpty());
  EXPECT_STREQ(late.reason, "superseded");
  EXPECT_EQ(LeasesOut(), 4u);
}

// A log that holds three commands is full.
class FullLog : public EngineTest {
 protected:
  void Push(const shard::Assignment& a, Later<shard::PutRolloutsReply>* later) {
    shard::RolloutMeta meta;
    meta.lease = {a.attempt, a.token};
    meta.payload = PayloadId(a.attempt.value);
    meta.payload_bytes = 100;
    meta.rewards_present = 1;
    meta.first = {20, 5, 10, std::nullopt, {}};
    engine->Ask<shard::PutRolloutsReply>(a.attempt.shard(), shard::PutRollouts{kActor, {meta}},
                                         later->Take());
  }
  absl::Status Open(uint64_t session) {
    Later<shard::CountReply> opened;
    engine->Ask<shard::CountReply>(Shard(0), shard::OpenSession{SessionId(session), "", "", "", ""},
                                   opened.Take());
    return opened.Wait().status;
  }
};

TEST_F(FullLog, PushesWaitOthersAreRefusedAndLeasesGoOn) {
  Start(1);
  AddTasks(0, 10);
  const auto leases = Acquire(1, 6).assignments;
  ASSERT_THAT(leases, SizeIs(6));
  journal.shards[0]->Hold(true);
  std::vector<Later<shard::PutRolloutsReply>> pushed(6);
  for (size_t i = 0; i < 6; ++i) Push(leases[i], &pushed[i]);
  OnLoop(0, [&](ShardLoop& loop) {
    EXPECT_EQ(engine->pushes_held(), 3u);
    EXPECT_EQ(loop.uncommitted(), 3u);
    const std::vector<shard::LeaseRef> held = {{leases[5].attempt, leases[5].token}};
    const shard::RenewReply renewed = loop.primary().Renew(Engine::NowMs(), kActor, held, {});
    EXPECT_THAT(renewed.actions, IsEmpty());
    EXPECT_GT(renewed.lease_ms, 0u);
  });
  const absl::Status refused = Open(99);
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              ::testing::HasSubstr("storage.log_pending_bytes_max"));
  EXPECT_TRUE(absl::IsUnavailable(Acquire(2).status));
  journal.shards[0]->Hold(false);
  for (auto& push : pushed) EXPECT_EQ(push.Wait().accepted, 1u);
  EXPECT_EQ(engine->pushes_held(), 0u);
  EXPECT_TRUE(Open(99).ok());
  EXPECT_THAT(Acquire(2).assignments, SizeIs(2));
}

TEST_F(FullLog, TheLedgerRefuses) {
  Start(1);
  journal.ledger->Hold(true);
  const auto attach = [this](Later<ledger::AttachReply>* later) {
    engine->AskLedger<ledger::AttachReply>(
        ledger::AttachTrainer{.trainer = "rank-0", .process = 1, .mesh = {}, .dp_rank = 0},
        later->Take());
  };
  std::vector<Later<ledger::AttachReply>> waiting(3);
  for (auto& later : waiting) attach(&later);
  Later<ledger::AttachReply> refused, good;
  attach(&refused);
  EXPECT_TRUE(absl::IsUnavailable(refused.Wait().status)) << refused.reply.status;
  journal.ledger->Hold(false);
  for (auto& later : waiting) EXPECT_TRUE(later.Wait().status.ok()) << later.reply.status;
  attach(&good);
  EXPECT_TRUE(good.Wait().status.ok()) << good.reply.status;
}

}  // namespace
}  // namespace forebay::node
