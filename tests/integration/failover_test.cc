// Clients that follow a cluster: whatever happens to its nodes, calls end well as long as some node
// comes to lead before their deadline, and nothing is lost or doubled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/fake_cluster.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;

const absl::Duration kLong = absl::Seconds(30) * Slowness();

bool Eventually(const std::function<bool()>& condition) {
  const absl::Time until = absl::Now() + kLong;
  while (!condition()) {
    if (absl::Now() > until) return false;
    absl::SleepFor(absl::Milliseconds(5));  // poll: what is waited for is no event here
  }
  return true;
}

class FailoverTest : public ::testing::Test {
 protected:
  World world_;
  FakeCluster cluster_{world_.daemon.address()};

  // The one node that the client watches, once it is settled; 0 if it never is.
  size_t Watched(size_t leader) {
    size_t watched = 0;
    Eventually([&] {
      uint64_t all = 0;
      for (size_t node = 1; node <= 3; ++node) {
        all += cluster_.watches(node);
        if (cluster_.watches(node) > 0) watched = node;
      }
      return all == 1 && watched != leader;
    });
    return watched;
  }
};

TEST_F(FailoverTest, ARefusalLeadsToTheLeader) {
  cluster_.Lead(2);
  auto client = Connect(cluster_.address(1));
  // Even a call that is not to be repeated: it was not begun.
  const auto status = client::Admin(client.get()).Status({.timeout = kLong, .retry = false});
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(cluster_.served(2), 1u);
  EXPECT_EQ(cluster_.served(1), 0u);
}

TEST_F(FailoverTest, DeadAndFrozenSeedsArePassedOver) {
  cluster_.Freeze(1);
  cluster_.Kill(2);
  cluster_.Lead(3);
  for (const std::string& seeds :
       {cluster_.seeds(), absl::StrCat("127.0.0.1:1, ", cluster_.seeds())}) {
    auto client = Connect(seeds);
    const auto status = client::Admin(client.get()).Status({.timeout = kLong});
    EXPECT_TRUE(status.ok()) << status.status();
  }
  // As buffer-ctl calls.
  auto client = Connect(absl::StrCat("127.0.0.1:1,", cluster_.address(3)));
  const auto once = client::Admin(client.get()).Status({.timeout = kLong, .retry = false});
  EXPECT_TRUE(once.ok()) << once.status();
}

TEST_F(FailoverTest, WatchesANodeThatDoesNotLead) {
  cluster_.Lead(1);
  auto client = Connect(cluster_.seeds());
  client::Admin admin(client.get());
  ASSERT_TRUE(admin.Status().ok());
  EXPECT_NE(Watched(1), 0u);
  // Also when the watched one comes to lead.
  const size_t next = Watched(1);
  cluster_.Lead(next);
  ASSERT_TRUE(admin.Status().ok());
  EXPECT_NE(Watched(next), 0u);
  EXPECT_GT(cluster_.served(next), 0u);
}

TEST_F(FailoverTest, ASilentWatchIsGivenUpForAnother) {
  cluster_.Lead(1);
  auto client = Connect(cluster_.seeds());
  client::Admin admin(client.get());
  ASSERT_TRUE(admin.Status().ok());
  const size_t silent = Watched(1);
  ASSERT_NE(silent, 0u);
  const size_t third = 5 - silent;  // of 2 and 3
  cluster_.Freeze(silent);
  ASSERT_TRUE(Eventually([&] { return cluster_.watches(third) > 0; }));
  // Which then says that the leader is another.
  cluster_.Freeze(1);
  cluster_.Lead(third);
  const auto status = admin.Status({.timeout = kLong});
  EXPECT_TRUE(status.ok()) << status.status();
}

TEST_F(FailoverTest, WaitsWhileNobodyLeads) {
  cluster_.Lead(1);
  auto client = Connect(cluster_.seeds());
  client::Admin admin(client.get());
  ASSERT_TRUE(admin.Status().ok());
  cluster_.Lead(0);
  std::thread elect([this] {
    absl::SleepFor(absl::Seconds(1));  // poll: any time within the deadline will do
    cluster_.Lead(3);
  });
  const auto status = admin.Status({.timeout = kLong});
  elect.join();
  EXPECT_TRUE(status.ok()) << status.status();
}

TEST_F(FailoverTest, SaysWhomItAskedWhenNobodyLeadsInTime) {
  auto client = Connect(cluster_.seeds());
  const auto status = client::Admin(client.get()).Status({.timeout = absl::Milliseconds(500)});
  EXPECT_EQ(status.status().code(), absl::StatusCode::kUnavailable) << status.status();
  const std::string message(status.status().message());
  EXPECT_THAT(message, HasSubstr("no node is known that does"));
  for (size_t node = 1; node <= 3; ++node) EXPECT_THAT(message, HasSubstr(cluster_.address(node)));
}

TEST_F(FailoverTest, ANodeThatIsBehindLeadsNobodyBack) {
  cluster_.Lead(1);
  const uint64_t old = cluster_.epoch();
  cluster_.Lead(2);
  auto client = Connect(cluster_.seeds());
  client::Admin admin(client.get());
  ASSERT_TRUE(admin.Status().ok());
  // Both others live in the past, and whoever is watched says so.
  cluster_.Tell(1, 1, old);
  cluster_.Tell(3, 1, old);
  ASSERT_NE(Watched(2), 0u);
  const uint64_t before = cluster_.served(1);
  for (int i = 0; i < 20; ++i) {
    const auto status = admin.Status();
    ASSERT_TRUE(status.ok()) << status.status();
  }
  EXPECT_EQ(cluster_.served(1), before);
}

TEST_F(FailoverTest, ADaemonAloneIsNotWatched) {
  cluster_.BeAlone(1);
  auto client = Connect(cluster_.address(1));
  client::Admin admin(client.get());
  ASSERT_TRUE(admin.Status().ok());
  EXPECT_TRUE(Eventually([&] { return cluster_.watches(1) == 0; }));
  EXPECT_TRUE(admin.Status().ok());
  EXPECT_EQ(cluster_.watches(1), 0u);
}

TEST_F(FailoverTest, AnyNodeTellsOfTheClusterWhenNobodyLeads) {
  cluster_.Kill(1);
  auto client = Connect(cluster_.seeds());
  const auto view =
      client->Call("/forebay.v1.ClusterService/Get", "", {.timeout = absl::Seconds(20)});
  EXPECT_TRUE(view.ok()) << view.status();
}

TEST_F(FailoverTest, ACallThatHangsInAFrozenLeaderIsMadeAnewElsewhere) {
  world_.AddSource("late", 2, 0);
  cluster_.Lead(1);
  auto client = Connect(cluster_.seeds());
  auto actor = client::Actor::Open(client.get(), {.actor = "a"});
  ASSERT_TRUE(actor.ok()) << actor.status();
  const uint64_t before = cluster_.served(1);
  absl::StatusOr<client::AcquireResult> acquired = absl::UnknownError("not yet");
  std::thread waiter([&] { acquired = (*actor)->Acquire(2, {.timeout = kLong}); });
  // It waits there; the tasks come, but no answer from there.
  EXPECT_TRUE(Eventually([&] { return cluster_.served(1) > before; }));
  cluster_.Freeze(1);
  EXPECT_TRUE(world_.admin.AddTasks("late", {{.external_id = "a"}}).ok());
  cluster_.Lead(2);
  waiter.join();
  ASSERT_TRUE(acquired.ok()) << acquired.status();
  EXPECT_EQ(acquired->assignments.size(), 2u);
  auto sources = world_.admin.ListSources();
  ASSERT_TRUE(sources.ok());
  EXPECT_EQ((*sources)[0].leases, 2u);
}

// Actors and a trainer at work; no call of theirs may fail.
class Work {
 public:
  static constexpr uint32_t kGroups = 4;

  explicit Work(const std::string& seeds) : client_(Connect(seeds)) {
    for (int i = 0; i < 3; ++i) threads_.emplace_back([this, i] { Act(i); });
    threads_.emplace_back([this] { Train(); });
    threads_.emplace_back([this] { Administrate(); });
  }
  ~Work() { Stop(); }
  void Stop() {
    stop_ = true;
    stopped_.Cancel();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  uint64_t steps() const { return steps_; }
  uint64_t pushed() const { return pushed_; }
  uint64_t published_seen() const { return published_seen_; }
  std::string failures() const {
    const std::lock_guard lock(mutex_);
    return failures_;
  }
  std::multiset<uint32_t> trained() const {
    const std::lock_guard lock(mutex_);
    return trained_;
  }

 private:
  // True if the work goes on.
  bool Fine(const char* what, const absl::Status& status) {
    if (status.ok()) return true;
    if (stop_ && absl::IsCancelled(status)) return false;
    const std::lock_guard lock(mutex_);
    absl::StrAppend(&failures_, what, ": ", status.ToString(), "\n");
    return false;
  }
  void Act(int number) {
    auto actor =
        client::Actor::Open(client_.get(), {.actor = absl::StrCat("actor-", number), .slots = 4});
    if (!Fine("OpenSession", actor.status())) return;
    while (!stop_) {
      auto assignment = (*actor)->Next({.timeout = kLong, .cancellation = &stopped_});
      if (!Fine("Next", assignment.status())) return;
      const uint32_t seed = next_seed_.fetch_add(100);
      OwnRollout own(16, seed, seed % 200 == 0 ? 1 : 0);
      if (seed % 300 == 0) {
        // Its reward comes late.
        own.rollout.rewards.clear();
      }
      auto receipt = assignment->Push(own.rollout, {.timeout = kLong});
      if (!Fine("Push", receipt.status())) return;
      if (own.rollout.rewards.empty()) {
        auto late = (*actor)->SetRewards(
            std::vector<client::Actor::LateReward>{
                {.attempt_id = assignment->info().attempt_id, .rewards = {{"reward", 1}}}},
            {.timeout = kLong});
        if (!Fine("SetRewards", late.status())) return;
      }
      ++pushed_;
      if ((*actor)->published().has_value()) {
        published_seen_ =
            std::max<uint64_t>(published_seen_, (*actor)->published()->version.number);
      }
    }
  }
  void Train() {
    auto trainer = client::Trainer::Attach(client_.get(), {.trainer = "t"}, {.timeout = kLong});
    if (!Fine("Attach", trainer.status())) return;
    for (uint64_t number = 1; !stop_; ++number) {
      auto step = (*trainer)->OpenStep(number, {.groups = kGroups, .token_budget = 32}, {},
                                       {.timeout = kLong, .cancellation = &stopped_});
      if (!Fine("OpenStep", step.status())) return;
      auto reader = (*step)->Read({.prefetch = 2});
      client::MicroBatch batch;
      while (true) {
        auto more = reader->Next(&batch, {.timeout = kLong});
        if (!Fine("Fetch", more.status())) return;
        if (!*more) break;
        const std::lock_guard lock(mutex_);
        const auto* tokens = batch.Find("tokens");
        for (size_t s = 0; s < batch.sequences(); ++s) {
          trained_.insert(tokens->values<uint32_t>()[static_cast<size_t>(batch.cu_seqlens[s])]);
        }
      }
      auto next = (*step)->Commit({.timeout = kLong});
      if (!Fine("Commit", next.status())) return;
      if (!Fine("Publish",
                (*trainer)->Publish(*next, "/weights", "", std::nullopt, {.timeout = kLong}))) {
        return;
      }
      ++steps_;
    }
  }
  void Administrate() {
    client::Admin admin(client_.get());
    for (int i = 0; !stop_; ++i) {
      const auto added = admin.AddTasks("math", {{.external_id = absl::StrCat("new-", i)}},
                                        {.timeout = kLong, .cancellation = &stopped_});
      if (!Fine("AddTasks", added.status())) return;
      if (stopped_.Wait(absl::Milliseconds(10))) return;
    }
  }

  std::unique_ptr<client::Client> client_;
  std::atomic<bool> stop_{false};
  client::Cancellation stopped_;
  std::atomic<uint32_t> next_seed_{100};
  std::atomic<uint64_t> steps_{0}, pushed_{0}, published_seen_{0};
  mutable std::mutex mutex_;
  std::string failures_;
  std::multiset<uint32_t> trained_;
  std::vector<std::thread> threads_;
};

enum class Fault { kKill, kFreeze, kSwitch, kFlip };

class WorkTest : public FailoverTest, public ::testing::WithParamInterface<Fault> {
 protected:
  void Strike(size_t leader, size_t next) {
    switch (GetParam()) {
      case Fault::kKill:
        cluster_.Kill(leader);
        break;
      case Fault::kFreeze:
        cluster_.Freeze(leader);
        break;
      case Fault::kSwitch:
        break;
      case Fault::kFlip:
        cluster_.Lead(next);
        cluster_.Lead(leader);
        break;
    }
  }
};

TEST_P(WorkTest, GoesOnWhileTheLeadMoves) {
  ASSERT_TRUE(world_.admin
                  .PutSource({.name = "math",
                              .group_size = 2,
                              .reward_timeout_ms = 600'000,
                              .keep_equal_rewards = true,
                              .max_lag = 4})
                  .ok());
  cluster_.Lead(1);
  Work work(cluster_.seeds());
  size_t leader = 1;
  for (int round = 0; round < 4; ++round) {
    const uint64_t steps = work.steps();
    ASSERT_TRUE(Eventually([&] { return work.steps() >= steps + 2 || !work.failures().empty(); }));
    ASSERT_EQ(work.failures(), "");
    const size_t next = leader % 3 + 1;
    Strike(leader, next);
    cluster_.Lead(next);
    const uint64_t after = work.steps();
    ASSERT_TRUE(Eventually([&] { return work.steps() > after || !work.failures().empty(); }));
    ASSERT_EQ(work.failures(), "");
    cluster_.Revive(leader);
    leader = next;
  }
  work.Stop();
  EXPECT_EQ(work.failures(), "");
  EXPECT_GT(work.published_seen(), 0u);
  // Each rollout at most once, and all that the steps asked for.
  const std::multiset<uint32_t> trained = work.trained();
  EXPECT_EQ(std::set<uint32_t>(trained.begin(), trained.end()).size(), trained.size());
  EXPECT_GE(trained.size(), work.steps() * Work::kGroups * 2);
}

std::string FaultName(const ::testing::TestParamInfo<Fault>& info) {
  constexpr const char* kNames[] = {"Kill", "Freeze", "Switch", "Flip"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Faults, WorkTest,
                         ::testing::Values(Fault::kKill, Fault::kFreeze, Fault::kSwitch,
                                           Fault::kFlip),
                         FaultName);

}  // namespace
}  // namespace forebay::integration
