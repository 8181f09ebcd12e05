// A cluster whose nodes are killed, frozen, emptied and damaged: clients go on without an error,
// and what was acknowledged is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "etcd/coordinator.h"
#include "forebay/actor.h"
#include "forebay/admin.h"
#include "forebay/trainer.h"
#include "tests/integration/cluster.h"
#include "tests/integration/coordinator_calls.h"
#include "tests/integration/run_ctl.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

using client::Assignment;
using ::testing::HasSubstr;

// Two sources' worth of traffic through whatever leads: what a run does, a step at a time.
class Traffic {
 public:
  explicit Traffic(const std::string& seeds, int tasks = 400) : client_(Connect(seeds)) {
    client::Admin admin(client_.get());
    EXPECT_TRUE(
        admin
            .PutSource(
                {.name = "math", .group_size = 2, .keep_equal_rewards = true, .max_lag = 1'000'000})
            .ok());
    std::vector<client::TaskSpec> all;
    for (int i = 0; i < tasks; ++i) {
      all.push_back({.external_id = absl::StrCat("t", i), .payload = absl::StrCat("task ", i)});
    }
    EXPECT_TRUE(admin.AddTasks("math", all).ok());
    auto actor = client::Actor::Open(client_.get(), {.actor = "env-0", .sources = {"math"}});
    EXPECT_TRUE(actor.ok()) << actor.status();
    actor_ = *std::move(actor);
    auto trainer = client::Trainer::Attach(client_.get(), {.trainer = "rank-0"});
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    trainer_ = *std::move(trainer);
  }

  std::vector<Assignment> Acquire(int count) {
    std::vector<Assignment> all;
    while (static_cast<int>(all.size()) < count) {
      auto acquired = actor_->Acquire(static_cast<uint32_t>(count) - all.size(),
                                      {.timeout = absl::Seconds(30)});
      EXPECT_TRUE(acquired.ok()) << acquired.status();
      if (!acquired.ok() || acquired->assignments.empty()) return all;
      for (auto& assignment : acquired->assignments) all.push_back(std::move(assignment));
    }
    return all;
  }
  void Push(Assignment& assignment) {
    ++pushed_;
    const OwnRollout own(24, pushed_, pushed_ % 2);
    auto receipt = assignment.Push(own.rollout, {.timeout = absl::Seconds(30)});
    ASSERT_TRUE(receipt.ok()) << receipt.status();
    EXPECT_EQ(receipt->result, client::PushResult::kAccepted) << receipt->message;
  }
  void Push(std::vector<Assignment>& assignments) {
    for (Assignment& assignment : assignments) Push(assignment);
  }
  std::unique_ptr<client::Step> Open(uint64_t number) {
    auto step = trainer_->OpenStep(number, {.groups = 2, .token_budget = 64}, {},
                                   {.timeout = absl::Seconds(30)});
    EXPECT_TRUE(step.ok()) << step.status();
    return step.ok() ? *std::move(step) : nullptr;
  }
  // A whole step of two groups.
  void Step() {
    auto assignments = Acquire(4);
    ASSERT_EQ(assignments.size(), 4u);
    Push(assignments);
    auto step = Open(++steps_);
    ASSERT_NE(step, nullptr);
    EXPECT_FALSE(Fetch(*step).empty());
    ASSERT_TRUE(step->Commit({.timeout = absl::Seconds(30)}).ok());
    const auto version = trainer_->train_version();
    ASSERT_TRUE(trainer_
                    ->Publish({.branch = version.branch, .number = static_cast<uint32_t>(steps_)},
                              "nowhere", "", std::nullopt, {.timeout = absl::Seconds(30)})
                    .ok());
  }
  uint64_t steps() const { return steps_; }
  client::Admin admin() { return client::Admin(client_.get()); }
  client::Trainer& trainer() { return *trainer_; }

 private:
  std::unique_ptr<client::Client> client_;
  std::unique_ptr<client::Actor> actor_;
  std::unique_ptr<client::Trainer> trainer_;
  uint32_t pushed_ = 0;
  uint64_t steps_ = 0;
};

TEST(NodeLossTest, LeasesRolloutsAndStepsOutliveALeaderThatIsKilled) {
  Cluster cluster(3, {"--shards=2"});
  Traffic run(cluster.seeds());
  auto assignments = run.Acquire(4);
  ASSERT_EQ(assignments.size(), 4u);
  run.Push(assignments[0]);
  const uint32_t first = cluster.AwaitLeader();
  cluster.node(first).Kill();
  for (size_t i = 1; i < 4; ++i) run.Push(assignments[i]);
  const uint32_t second = cluster.AwaitLeader(first);
  ASSERT_NE(second, 0u);

  cluster.node(first).StartAgain();
  ASSERT_TRUE(cluster.AwaitInSync());
  auto step = run.Open(1);
  ASSERT_NE(step, nullptr);
  const std::string bytes = Fetch(*step);
  cluster.node(second).Kill();
  EXPECT_EQ(Fetch(*step), bytes);
  auto made = step->Commit({.timeout = absl::Seconds(30)});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->number, 1u);
}

TEST(NodeLossTest, AFrozenLeaderIsLeftAndComesBackAsAFollower) {
  Cluster cluster;
  Traffic run(cluster.seeds());
  run.Step();
  const uint32_t first = cluster.AwaitLeader();
  cluster.node(first).Signal(SIGSTOP);
  run.Step();
  const uint32_t second = cluster.AwaitLeader(first);
  cluster.node(first).Signal(SIGCONT);
  EXPECT_TRUE(cluster.AwaitInSync());
  run.Step();
  EXPECT_EQ(cluster.AwaitLeader(), second);
  EXPECT_THAT(cluster.node(first).Log(), HasSubstr("begins anew"));
}

TEST(NodeLossTest, AFollowerThatIsAwayCostsNothingAndCatchesUp) {
  Cluster cluster;
  Traffic run(cluster.seeds());
  const uint32_t leader = cluster.AwaitLeader();
  const uint32_t follower = leader == 1 ? 2 : 1;
  cluster.node(follower).Kill();
  ASSERT_TRUE(cluster.AwaitOutOfSync(follower));
  for (int i = 0; i < 5; ++i) run.Step();
  cluster.node(follower).StartAgain();
  EXPECT_TRUE(cluster.AwaitInSync());
  EXPECT_EQ(cluster.AwaitLeader(), leader);
}

TEST(NodeLossTest, ANodeThatLostItsDiskGetsEverythingFromItsPeers) {
  // Small logs: what a node that was started anew has in memory does not reach back to the begin.
  Cluster cluster(3, {"--storage.snapshot_log_bytes=65536"});
  Traffic run(cluster.seeds());
  for (int i = 0; i < 20; ++i) run.Step();
  for (uint32_t id = 1; id <= 3; ++id) {
    cluster.node(id).Kill();
    ASSERT_TRUE(cluster.AwaitOutOfSync(id));
    cluster.node(id).StartAgain();
    ASSERT_TRUE(cluster.AwaitInSync());
  }
  const uint32_t leader = cluster.AwaitLeader();
  const uint32_t lost = leader == 1 ? 2 : 1;
  cluster.node(lost).Kill();
  ASSERT_TRUE(cluster.AwaitOutOfSync(lost));
  std::filesystem::remove_all(cluster.directory(lost));
  cluster.node(lost).StartAgain();
  ASSERT_TRUE(cluster.AwaitInSync());
  const std::string log = cluster.node(lost).Log();
  EXPECT_THAT(log.substr(log.rfind("following")), HasSubstr("snapshot machine=ledger"))
      << cluster.Logs();
  cluster.node(leader).Kill();
  EXPECT_NE(cluster.AwaitLeader(leader), 0u);
  run.Step();
  auto status = run.admin().Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->next_step, run.steps() + 1);
}

TEST(NodeLossTest, ADamagedLogIsMovedAsideAndRebuilt) {
  Cluster cluster;
  Traffic run(cluster.seeds());
  for (int i = 0; i < 5; ++i) run.Step();
  const uint32_t leader = cluster.AwaitLeader();
  const uint32_t damaged = leader == 1 ? 2 : 1;
  cluster.node(damaged).Kill();
  ASSERT_TRUE(cluster.AwaitOutOfSync(damaged));
  // A byte of a batch that was synced long ago.
  for (const auto& file :
       std::filesystem::directory_iterator(cluster.directory(damaged) + "/ledger")) {
    if (file.path().extension() != ".log" || file.file_size() < 9'000) continue;
    std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(4'096 + 20);
    bytes.put('\x55');
  }
  cluster.node(damaged).StartAgain();
  EXPECT_TRUE(cluster.AwaitInSync());
  EXPECT_THAT(cluster.node(damaged).Log(), HasSubstr("damaged and was moved to"));
  run.Step();
}

// A shard that no node holds whole any more, until copies of it are brought back.
class AbsentShard {
 public:
  AbsentShard()
      : cluster_(3, {"--shards=2", absl::StrCat("--steps.shard_absent_after_ms=",
                                                static_cast<int>(2'000 * Slowness()))}) {}
  Cluster& cluster() { return cluster_; }
  // Of a node that is down.
  void Lose(uint32_t id) {
    std::filesystem::copy(Folder(id), Copy(id), std::filesystem::copy_options::recursive);
    bool damaged = false;
    for (const auto& file : std::filesystem::directory_iterator(Folder(id))) {
      if (file.path().extension() != ".log" || file.file_size() < 4'200) continue;
      std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekp(4'096 + 20);
      bytes.put('\x55');
      damaged = true;
    }
    ASSERT_TRUE(damaged);
  }
  void BringBack(uint32_t id) {
    cluster_.node(id).Kill();
    EXPECT_TRUE(cluster_.AwaitMember("ledger", id, false));
    std::filesystem::remove_all(Folder(id));
    std::filesystem::rename(Copy(id), Folder(id));
    cluster_.node(id).StartAgain();
    EXPECT_TRUE(cluster_.AwaitMember("ledger", id, true));
  }
  Said Ctl(const std::string& command) {
    return RunCtl({"--address", cluster_.seeds(), "--timeout", "30", command});
  }
  // Whether `status` names it.
  bool AwaitAbsent(bool absent) {
    const absl::Time until = absl::Now() + absl::Seconds(60) * Slowness();
    while (absl::Now() < until) {
      const Said said = Ctl("status");
      const bool named = said.out.find("shard-1 is absent") != std::string::npos;
      if ((said.code == 0 || said.code == 10) && named == absent) return true;
      absl::SleepFor(absl::Milliseconds(50));  // poll: nothing tells of it
    }
    std::fprintf(stderr, "%s\n%s\n", Ctl("status").out.c_str(), cluster_.Logs().c_str());
    return false;
  }

 private:
  std::string Folder(uint32_t id) const { return cluster_.directory(id) + "/shard-1"; }
  std::string Copy(uint32_t id) const { return cluster_.directory(id) + "/copy-of-shard-1"; }

  Cluster cluster_;
};

TEST(NodeLossTest, TheRunGoesOnWithoutAShardThatNoNodeHoldsAndTakesItBack) {
  AbsentShard shard;
  Cluster& cluster = shard.cluster();
  Traffic run(cluster.seeds());
  for (int i = 0; i < 4; ++i) run.Step();
  // Requests begin at one shard after the other.
  for (int i = 0; i < 6; ++i) {
    auto group = run.Acquire(2);
    run.Push(group);
  }
  const auto ready = [&] {
    const auto status = run.admin().Status({.timeout = absl::Seconds(30) * Slowness()});
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? status->groups_ready : 0;
  };
  ASSERT_EQ(ready(), 6u);
  for (uint32_t id = 1; id <= 3; ++id) cluster.node(id).Kill();
  for (uint32_t id = 1; id <= 3; ++id) ASSERT_NO_FATAL_FAILURE(shard.Lose(id));
  for (uint32_t id = 1; id <= 3; ++id) cluster.node(id).StartAgain();

  ASSERT_TRUE(shard.AwaitAbsent(true));
  EXPECT_THAT(shard.Ctl("status").out, HasSubstr("whose log was lost or cut"));
  EXPECT_THAT(shard.Ctl("shards").out, HasSubstr("absent"));
  const uint64_t left = ready();
  EXPECT_GT(left, 0u);
  EXPECT_LT(left, 6u) << "shard 1 had nothing: the test shows nothing";
  for (int i = 0; i < 4; ++i) run.Step();
  EXPECT_EQ(ready(), left);

  const uint32_t leader = cluster.AwaitLeader();
  for (uint32_t id = 1; id <= 3; ++id) {
    if (id != leader) shard.BringBack(id);
  }
  ASSERT_TRUE(shard.AwaitAbsent(false));
  EXPECT_EQ(ready(), 6u);
  for (int i = 0; i < 4; ++i) run.Step();
  EXPECT_TRUE(cluster.AwaitInSync());
}

TEST(NodeLossTest, AllNodesMayEndAndTheRunGoesOn) {
  Cluster cluster;
  Traffic run(cluster.seeds());
  for (int i = 0; i < 3; ++i) run.Step();
  auto assignments = run.Acquire(2);
  ASSERT_EQ(assignments.size(), 2u);
  for (uint32_t id = 1; id <= 3; ++id) cluster.node(id).Kill();
  for (uint32_t id = 1; id <= 3; ++id) cluster.node(id).StartAgain();
  EXPECT_NE(cluster.AwaitLeader(), 0u);
  run.Push(assignments);
  run.Step();
}

TEST(NodeLossTest, ATerminatedLeaderHandsOver) {
  Cluster cluster;
  Traffic run(cluster.seeds());
  run.Step();
  const uint32_t first = cluster.AwaitLeader();
  cluster.node(first).Signal(SIGTERM);
  EXPECT_EQ(cluster.node(first).Wait(absl::Seconds(20)), 0);
  EXPECT_THAT(cluster.node(first).Log(), HasSubstr("another node leads; stopped"));
  run.Step();
}

TEST(NodeLossTest, ACoordinatorThatForgotEverythingBeginsNoClusterBesideOldLogs) {
  Cluster cluster;
  Traffic run(cluster.seeds());
  run.Step();
  for (uint32_t id = 1; id <= 3; ++id) cluster.node(id).Kill();
  auto coordinator = etcd::Coordinator::Open({.endpoints = cluster.etcd().endpoints()});
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  const std::string prefix = "/forebay/forebay/";
  const auto state = GetPrefix(coordinator->get(), prefix, absl::Seconds(10) * Slowness());
  ASSERT_TRUE(state.ok()) << state.status();
  for (const auto& entry : state->entries) {
    const auto gone = Commit(coordinator->get(), {.changes = {{entry.key, std::nullopt}}},
                             absl::Seconds(10) * Slowness());
    ASSERT_EQ(gone.outcome, node::Outcome::kDone) << gone.why;
  }
  std::filesystem::remove_all(cluster.directory(1));
  // Those with logs say whose run it is, before one without could begin another one.
  for (uint32_t id = 3; id >= 1; --id) cluster.node(id).StartAgain();
  const auto said = [&] {
    return cluster.node(1).Log().find("there are logs on node 2, 3") != std::string::npos;
  };
  const absl::Time until = absl::Now() + absl::Seconds(20) * Slowness();
  while (!said() && absl::Now() < until) absl::SleepFor(absl::Milliseconds(50));  // poll: it looks
  EXPECT_TRUE(said()) << cluster.Logs();
  for (uint32_t id = 1; id <= 3; ++id) {
    EXPECT_EQ(cluster.View(id).machines().size(), 0) << id;
  }
}

TEST(NodeLossTest, WhatANodeHoldsCanBeLookedAt) {
  Cluster cluster;
  Traffic run(cluster.seeds());
  for (int i = 0; i < 3; ++i) run.Step();
  auto held = run.Acquire(2);
  run.Push(held);
  const uint32_t leader = cluster.AwaitLeader();
  const uint32_t follower = leader == 1 ? 2 : 1;
  for (uint32_t id = 1; id <= 3; ++id) cluster.node(id).Kill();
  for (const uint32_t id : {leader, follower}) {
    const Said said = RunCtl({"verify", cluster.directory(id), "--segments", cluster.store()});
    EXPECT_EQ(said.code, 0) << said.out << said.err;
    EXPECT_THAT(said.out, HasSubstr("shard-0"));
  }
  for (const auto& file :
       std::filesystem::directory_iterator(cluster.directory(follower) + "/shard-0")) {
    if (file.path().extension() != ".log") continue;
    const Said said = RunCtl({"inspect", "log", file.path(), "-n", "1000"});
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_THAT(said.out, HasSubstr("the begin of a reign"));
    EXPECT_THAT(said.out, HasSubstr(": PutRollouts"));
  }
}

TEST(NodeLossTest, TheRunGoesOnWithoutEtcd) {
  Cluster cluster;
  Traffic run(cluster.seeds());
  const uint32_t leader = cluster.AwaitLeader();
  cluster.etcd().Freeze(0);
  for (int i = 0; i < 3; ++i) run.Step();
  cluster.etcd().Thaw(0);
  EXPECT_EQ(cluster.AwaitLeader(), leader);
}

}  // namespace
}  // namespace forebay::integration
