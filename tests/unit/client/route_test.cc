#include "client/route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::ClusterView View(uint32_t node, uint32_t leader, uint64_t epoch, uint32_t nodes = 3) {
  v1::ClusterView view;
  view.set_cluster(7);
  view.set_node(node);
  view.set_leader(leader);
  view.set_leader_epoch(epoch);
  for (uint32_t id = 1; id <= nodes; ++id) {
    v1::ClusterNode* member = view.add_nodes();
    member->set_id(id);
    member->set_address("n" + std::to_string(id) + ":1");
    member->set_up(true);
  }
  return view;
}

class RouteTest : public ::testing::Test {
 protected:
  Route route_{{"n1:1", "n2:1", "n3:1"}, 1};
};

TEST(ParseSeeds, TakesAListWithoutRepetitions) {
  EXPECT_THAT(*ParseSeeds("a:1, b:2,a:1,unix:/c"), ElementsAre("a:1", "b:2", "unix:/c"));
  for (const char* wrong : {"", " ", "a:1,,b:2", "a:1,"}) {
    const auto seeds = ParseSeeds(wrong);
    EXPECT_EQ(seeds.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(seeds.status().message()), HasSubstr("address"));
  }
}

TEST_F(RouteTest, AViewAndARefusalNameTheLeader) {
  const uint64_t before = route_.revision();
  ASSERT_TRUE(route_.TakeView("n2:1", View(2, 3, 5)).ok());
  EXPECT_EQ(route_.current(), "n3:1");
  EXPECT_GT(route_.revision(), before);
  route_.TakeRefusal("n3:1", "n1:1", 6, "node 3 does not lead");
  EXPECT_EQ(route_.current(), "n1:1");
}

TEST_F(RouteTest, WhoIsBehindLeadsNobodyBack) {
  ASSERT_TRUE(route_.TakeView("n2:1", View(2, 3, 5)).ok());
  const uint64_t revision = route_.revision();
  ASSERT_TRUE(route_.TakeView("n1:1", View(1, 1, 4)).ok());
  route_.TakeRefusal("n3:1", "n1:1", 4, "");
  // There is one leader in an epoch.
  route_.TakeRefusal("n3:1", "n2:1", 5, "");
  EXPECT_EQ(route_.current(), "n3:1");
  EXPECT_EQ(route_.revision(), revision);
}

TEST_F(RouteTest, CallsStayWhileNobodyLeadsAndGoRoundWhenTheyFail) {
  ASSERT_TRUE(route_.TakeView("n2:1", View(2, 1, 5)).ok());
  ASSERT_TRUE(route_.TakeView("n2:1", View(2, 0, 5)).ok());
  const uint64_t revision = route_.revision();
  std::vector<std::string> asked;
  for (int i = 0; i < 4; ++i) {
    asked.push_back(route_.current());
    route_.TakeFailure(route_.current(), "away");
  }
  EXPECT_THAT(asked, ElementsAre("n1:1", "n2:1", "n3:1", "n1:1"));
  EXPECT_EQ(route_.revision(), revision);  // no reason to hurry
  route_.TakeFailure("n3:1", "of a call that began before");
  EXPECT_EQ(route_.current(), "n2:1");
  // Also where calls go already: they wait for it.
  ASSERT_TRUE(route_.TakeView("n3:1", View(3, 2, 5)).ok());
  EXPECT_GT(route_.revision(), revision);
}

TEST_F(RouteTest, AnotherNodeThanTheLeaderIsWatched) {
  v1::ClusterView view = View(2, 1, 5);
  view.mutable_nodes(2)->set_up(false);
  ASSERT_TRUE(route_.TakeView("n2:1", view).ok());
  EXPECT_EQ(route_.NextWatch(), "n2:1");
  route_.WatchFailed("n2:1", "silent");
  EXPECT_EQ(route_.NextWatch(), "n3:1");
  route_.WatchFailed("n3:1", "silent");
  EXPECT_EQ(route_.NextWatch(), "n1:1");
  EXPECT_FALSE(route_.WatchesLeader("n1:1"));  // no better one
  route_.Forgive();
  EXPECT_TRUE(route_.WatchesLeader("n1:1"));
}

TEST(Route, ADaemonAloneIsStayedWith) {
  Route route({"a:1", "b:1"}, 1);
  v1::ClusterView view;
  view.add_nodes()->set_up(true);
  ASSERT_TRUE(route.TakeView("b:1", view).ok());
  EXPECT_TRUE(route.alone());
  route.TakeFailure("b:1", "away");
  EXPECT_EQ(route.current(), "b:1");
}

TEST_F(RouteTest, WhatIsNotOfTheClusterIsNotBelieved) {
  ASSERT_TRUE(route_.TakeView("n2:1", View(2, 1, 5)).ok());
  v1::ClusterView strange = View(2, 3, 9);
  strange.set_cluster(8);
  EXPECT_FALSE(route_.TakeView("n2:1", strange).ok());
  EXPECT_FALSE(route_.TakeView("n2:1", v1::ClusterView()).ok());
  EXPECT_EQ(route_.current(), "n1:1");
}

TEST(Route, ASocketOfTheLeadersHostIsKept) {
  Route route({"unix:/s"}, 1);
  ASSERT_TRUE(route.TakeView("unix:/s", View(1, 1, 5)).ok());
  EXPECT_EQ(route.current(), "unix:/s");
  ASSERT_TRUE(route.TakeView("n2:1", View(2, 3, 6)).ok());
  EXPECT_EQ(route.current(), "n3:1");
}

TEST_F(RouteTest, NodesThatAreNoMembersAnyMoreAreForgotten) {
  ASSERT_TRUE(route_.TakeView("n1:1", View(1, 1, 5, 9)).ok());
  EXPECT_EQ(route_.addresses().size(), 9u);
  ASSERT_TRUE(route_.TakeView("n1:1", View(1, 1, 5, 2)).ok());
  EXPECT_THAT(route_.addresses(), ElementsAre("n1:1", "n2:1", "n3:1"));  // the seeds stay
}

TEST_F(RouteTest, SaysWhomItAsked) {
  ASSERT_TRUE(route_.TakeView("n2:1", View(2, 0, 5)).ok());
  route_.TakeFailure("n1:1", "no connection");
  EXPECT_EQ(route_.Asked(), "n1:1 (no connection), n2:1 (knows no leader), n3:1 (not asked yet)");
  EXPECT_EQ(Route({"a:1"}, 1).Asked(), "");
}

}  // namespace
}  // namespace forebay::client
