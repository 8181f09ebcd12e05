// What an operator's acts do to the keys of a cluster, and which of them are refused.
#include "node/cluster_operator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sync.h"
#include "io/disk.h"
#include "node/cluster_events.h"
#include "node/cluster_node.h"
#include "node/local_coordinator.h"

namespace forebay::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kPatience = absl::Seconds(30);
const Operator kAnn{"ann@desk", "because"};

cluster::NodeId N(uint32_t id) { return cluster::NodeId(id); }

cluster::Configuration Config(uint64_t epoch, uint32_t primary, std::vector<uint32_t> in_sync,
                              std::vector<uint32_t> placed, uint32_t min_in_sync = 2) {
  cluster::Configuration c;
  c.epoch = cluster::Epoch(epoch);
  c.primary = N(primary);
  for (const uint32_t node : in_sync) c.in_sync.push_back(N(node));
  for (const uint32_t node : placed) c.incarnations[N(node)] = cluster::Incarnation(10 + node);
  c.min_in_sync = min_in_sync;
  return c;
}

class ClusterOperatorTest : public ::testing::Test {
 protected:
  ClusterOperatorTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "operator-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::string why;
    disk_ = io::NewDisk({.allow_uring = false}, &why);
    coordinator_ = *LocalCoordinator::Open(disk_.get(), folder_);
    operator_.emplace(coordinator_.get(), "it", 3, kPatience);
  }
  ~ClusterOperatorTest() override {
    coordinator_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Put(const std::string& name, std::optional<std::string> value) {
    Notification over;
    coordinator_->Commit({.conditions = {}, .changes = {{"/forebay/it/" + name, std::move(value)}}},
                         kPatience, [&](const TransactionResult& result) {
                           EXPECT_EQ(result.outcome, Outcome::kDone) << result.why;
                           over.Notify();
                         });
    over.Wait();
  }
  void Machine(const std::string& name, const cluster::Configuration& c) {
    Put("machines/" + name, cluster::EncodeConfiguration(c));
  }
  // Nodes 1, 2, 3, which all are there; node 1 leads, all are in sync.
  void Begin() {
    for (const uint32_t node : {1, 2, 3}) {
      const std::string address = EncodeNodeAddress({absl::StrCat("host", node, ":1"), ""});
      Put(absl::StrCat("nodes/", node), address);
      Put(absl::StrCat("present/", node), address);
    }
    Machine("ledger", Config(4, 1, {1, 2, 3}, {1, 2, 3}));
    Machine("shard-0", Config(6, 1, {1, 2, 3}, {1, 2, 3}));
  }
  ClusterState Read() { return *operator_->Read(); }
  cluster::Configuration Of(const std::string& name) {
    return Read().machines.at(name).configuration;
  }
  std::vector<std::string> Events() {
    std::vector<std::string> texts;
    for (const auto& [key, event] : Read().events) {
      texts.push_back(absl::StrCat(event.who, ": ", event.what, " (", event.why, ")"));
    }
    return texts;
  }

  std::string folder_;
  std::unique_ptr<io::Disk> disk_;
  std::unique_ptr<LocalCoordinator> coordinator_;
  std::optional<ClusterOperator> operator_;
};

TEST(ClusterEvents, WhatOneProcessTellsStaysInItsOrder) {
  std::vector<std::string> keys;
  for (int i = 0; i < 1000; ++i) keys.push_back(NewEvent("c/", "ann@desk", "it happened").key);
  EXPECT_TRUE(std::ranges::is_sorted(keys));
}

TEST_F(ClusterOperatorTest, PausesAndResumesOnceEachAndSaysWho) {
  Begin();
  const auto paused = operator_->Pause(kAnn);
  ASSERT_TRUE(paused.ok()) << paused.status();
  EXPECT_TRUE(paused->changed);
  EXPECT_EQ(Read().paused, "ann@desk: because");
  EXPECT_FALSE(operator_->Pause(kAnn)->changed);
  EXPECT_TRUE(operator_->Resume(kAnn)->changed);
  EXPECT_EQ(Read().paused, std::nullopt);
  EXPECT_FALSE(operator_->Resume(kAnn)->changed);
  EXPECT_THAT(Events(), ElementsAre("ann@desk: automatic failover is paused (because)",
                                    "ann@desk: automatic failover goes on (because)"));
}

TEST_F(ClusterOperatorTest, DrainsANodeThatThereIs) {
  Begin();
  EXPECT_EQ(operator_->Drain(N(7), kAnn).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(operator_->Drain(N(2), kAnn)->changed);
  EXPECT_FALSE(operator_->Drain(N(2), kAnn)->changed);
  EXPECT_TRUE(Read().drained.contains(N(2)));
  EXPECT_TRUE(operator_->Undrain(N(2), kAnn)->changed);
  EXPECT_TRUE(Read().drained.empty());
}

TEST_F(ClusterOperatorTest, ASwitchoverIsAWishOfTheNodeThatLeads) {
  Begin();
  EXPECT_FALSE(operator_->SwitchOver(N(1), kAnn)->changed);
  const auto wished = operator_->SwitchOver(N(3), kAnn);
  ASSERT_TRUE(wished.ok()) << wished.status();
  EXPECT_EQ(Read().wish, (SwitchoverWish{N(1), N(3), "ann@desk", "because"}));
  EXPECT_EQ(Of("ledger"), Config(4, 1, {1, 2, 3}, {1, 2, 3}));
  EXPECT_FALSE(operator_->SwitchOver(N(3), kAnn)->changed);
}

TEST_F(ClusterOperatorTest, NoSwitchoverToWhoIsOutOfSyncOrNotThereAndNoneWithoutALeader) {
  Begin();
  Machine("shard-0", Config(6, 1, {1, 3}, {1, 2, 3}));
  EXPECT_THAT(operator_->SwitchOver(N(2), kAnn).status().message(),
              HasSubstr("not in sync with shard-0"));
  Put("present/3", std::nullopt);
  EXPECT_THAT(operator_->SwitchOver(N(3), kAnn).status().message(), HasSubstr("is not there"));
  EXPECT_FALSE(operator_->SwitchOver(N(0), kAnn).ok());
  Put("present/1", std::nullopt);
  EXPECT_THAT(operator_->SwitchOver(N(2), kAnn).status().message(), HasSubstr("no node leads"));
  EXPECT_EQ(Read().wish, std::nullopt);
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(ClusterOperatorTest, AFailoverPromotesAReplicaInSyncOfEveryMachineAtOnce) {
  Begin();
  Put("present/1", std::nullopt);
  Machine("shard-0", Config(6, 1, {1, 3}, {1, 2, 3}));
  EXPECT_THAT(operator_->FailOver(N(2), kAnn).status().message(),
              HasSubstr("not in sync with shard-0"));
  const auto done = operator_->FailOver(N(0), kAnn);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->node, N(3));
  EXPECT_EQ(Of("ledger"), Config(5, 3, {2, 3}, {1, 2, 3}));
  EXPECT_EQ(Of("shard-0"), Config(7, 3, {1, 3}, {1, 2, 3}));  // no fewer than must be in sync
  EXPECT_FALSE(operator_->FailOver(N(3), kAnn)->changed);
  EXPECT_THAT(Events(), ElementsAre("ann@desk: failover from node 1 to node 3 (because)"));
}

TEST_F(ClusterOperatorTest, AnUnsafeFailoverLeavesTheNamedNodeAloneInSyncOfTheNamedMachine) {
  Begin();
  Machine("shard-0", Config(6, 1, {1, 3}, {1, 2, 3}));
  const std::vector<ReplicaClaim> claims = {{"shard-0", cluster::Incarnation(20)}};
  const auto done = operator_->UnsafeFailOver(N(2), "shard-0", claims, kAnn);
  ASSERT_TRUE(done.ok()) << done.status();
  cluster::Configuration next = Config(7, 2, {2}, {1, 2, 3});
  next.incarnations[N(2)] = cluster::Incarnation(20);
  EXPECT_EQ(Of("shard-0"), next);
  EXPECT_EQ(Of("ledger"), Config(4, 1, {1, 2, 3}, {1, 2, 3}));
  EXPECT_FALSE(operator_->UnsafeFailOver(N(2), "shard-0", claims, kAnn)->changed);
  EXPECT_EQ(operator_->UnsafeFailOver(N(2), "shard-9", claims, kAnn).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ClusterOperatorTest, ALogThatIsNotKnownIsNotPromoted) {
  Begin();
  cluster::Configuration never = Config(6, 1, {1, 3}, {1, 2, 3});
  never.incarnations[N(2)] = cluster::Incarnation();
  Machine("shard-0", never);
  EXPECT_THAT(operator_->UnsafeFailOver(N(2), "shard-0", {}, kAnn).status().message(),
              HasSubstr("it is not known which log node 2 has"));
  EXPECT_EQ(Of("shard-0"), never);
}

TEST_F(ClusterOperatorTest, AClusterWhoseKeysAreLostBeginsAnewWithWhatANodeHas) {
  Put("nodes/1", "host1:1 ");
  Put("nodes/2", "host2:1 ");
  EXPECT_FALSE(operator_->UnsafeFailOver(N(2), "", {}, kAnn).ok());
  const std::vector<ReplicaClaim> claims = {
      {"ledger", cluster::Incarnation(5), cluster::Epoch(9), 2},
      {"shard-0", cluster::Incarnation(6), cluster::Epoch(0), 2}};
  const auto done = operator_->UnsafeFailOver(N(2), "", claims, kAnn);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(Of("ledger").epoch, cluster::Epoch(10));  // later than all that any log holds
  EXPECT_EQ(Of("ledger").primary, N(2));
  EXPECT_THAT(Of("ledger").in_sync, ElementsAre(N(2)));
  EXPECT_EQ(Of("ledger").incarnation(N(2)), cluster::Incarnation(5));
  EXPECT_TRUE(Of("ledger").placed(N(1)));
  EXPECT_EQ(Of("shard-0").epoch, cluster::Epoch(1));
}

TEST_F(ClusterOperatorTest, AReplicaThatThePlacementWouldPutBackIsNotRemoved) {
  Begin();
  EXPECT_THAT(operator_->RemoveReplica(N(3), "shard-0", kAnn).status().message(),
              HasSubstr("drain node 3"));
  ASSERT_TRUE(operator_->Drain(N(3), kAnn).ok());
  ASSERT_TRUE(operator_->RemoveReplica(N(3), "shard-0", kAnn)->changed);
  EXPECT_THAT(Of("shard-0").leaving, ElementsAre(N(3)));
  EXPECT_THAT(Of("ledger").leaving, IsEmpty());
  EXPECT_THAT(operator_->AddReplica(N(3), "shard-0", kAnn).status().message(),
              HasSubstr("is drained"));
  ASSERT_TRUE(operator_->Undrain(N(3), kAnn).ok());
  EXPECT_TRUE(operator_->AddReplica(N(3), "", kAnn)->changed);
  EXPECT_THAT(Of("shard-0").leaving, IsEmpty());
  EXPECT_FALSE(operator_->AddReplica(N(3), "", kAnn)->changed);
}

TEST_F(ClusterOperatorTest, RebalanceDoesWhatThePlacementWouldAndNothingWhenAllIsWell) {
  Begin();
  EXPECT_FALSE(operator_->Rebalance(kAnn)->changed);
  Machine("shard-0", Config(6, 1, {1, 2}, {1, 2}));
  EXPECT_THAT(operator_->Plan(Read()), ElementsAre(HasSubstr("shard-0: placed on 3")));
  EXPECT_TRUE(operator_->Rebalance(kAnn)->changed);
  EXPECT_TRUE(Of("shard-0").placed(N(3)));
  EXPECT_THAT(operator_->Plan(Read()), IsEmpty());
}

TEST_F(ClusterOperatorTest, CountsTheFailuresOfTheMachineThatBearsTheFewest) {
  EXPECT_EQ(ClusterOperator::Tolerated(Read()), -1);
  Begin();
  EXPECT_EQ(ClusterOperator::Tolerated(Read()), 1);
  EXPECT_EQ(operator_->Tolerable(Read()), 1);
  Machine("shard-0", Config(6, 1, {1}, {1, 2, 3}));
  EXPECT_EQ(ClusterOperator::Tolerated(Read()), 0);
  Put("present/2", std::nullopt);
  Put("present/3", std::nullopt);
  EXPECT_EQ(ClusterOperator::Tolerated(Read()), -1);
}

TEST_F(ClusterOperatorTest, OldEventsGoWithNewActs) {
  Begin();
  for (size_t i = 0; i < kEventsMax + 3; ++i) {
    Put(absl::StrCat("events/", absl::Dec(i, absl::kZeroPad13)), "1\nnode 1\nold\n");
  }
  ASSERT_TRUE(operator_->Pause(kAnn).ok());
  const ClusterState state = Read();
  EXPECT_EQ(state.events.size(), kEventsMax + 1);  // the next act counts this one
  EXPECT_FALSE(state.events.contains("events/0000000000002"));
  EXPECT_TRUE(state.events.contains("events/0000000000003"));
}

TEST(ClusterEvents, AreReadAsTheyWereWrittenWhateverTheyHold) {
  const ClusterEvent event{5, "ann\nbob", "what\n", ""};
  EXPECT_EQ(DecodeEvent(EncodeEvent(event)), (ClusterEvent{5, "ann bob", "what ", ""}));
  EXPECT_EQ(DecodeEvent("no number"), (ClusterEvent{0, "", "", ""}));
  const SwitchoverWish wish{N(1), N(2), "ann", "why"};
  EXPECT_EQ(DecodeWish(EncodeWish(wish)), wish);
}

TEST(ClusterEvents, SayWhatHasChangedInASet) {
  const auto before = Config(4, 1, {1, 2, 3}, {1, 2, 3});
  EXPECT_EQ(DescribeChange("ledger", before, before), "");
  EXPECT_EQ(DescribeChange("ledger", before, Config(5, 2, {2, 3}, {1, 2, 3})),
            "ledger: node 2 leads, epoch 5 (before: node 1), left the set: 1, now in sync: 2 3");
  EXPECT_EQ(DescribeChange("ledger", Config(5, 2, {2, 3}, {2, 3}), Config(5, 2, {2, 3}, {1, 2, 3})),
            "ledger: placed on 1, now in sync: 2 3");
}

TEST(ClusterEvents, AreForgottenBeyondTheirBytesToo) {
  std::map<std::string, ClusterEvent> events;
  for (int i = 0; i < 300; ++i) {
    events[absl::StrCat("events/", absl::Dec(i, absl::kZeroPad4))] = {1, "", std::string(1024, 'x'),
                                                                      ""};
  }
  EXPECT_EQ(Superfluous(events, 2), (std::vector<std::string>{"events/0000", "events/0001"}));
  for (const std::string& name : Superfluous(events, 300)) events.erase(name);
  EXPECT_THAT(Superfluous(events, 300), IsEmpty());
  EXPECT_GT(events.size(), 200u);
}

}  // namespace
}  // namespace forebay::node
