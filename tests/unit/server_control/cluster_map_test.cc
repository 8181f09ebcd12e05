#include "server/cluster_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>

#include "server/grpc/status.h"
#include "tests/unit/server/rpc_client.h"

namespace forebay::server {
namespace {

using ::testing::HasSubstr;

v1::ClusterView View(uint32_t leader, uint64_t epoch) {
  v1::ClusterView view;
  view.set_cluster(77);
  view.set_node(2);
  view.set_leader(leader);
  view.set_leader_epoch(epoch);
  for (uint32_t id = 1; id <= 3; ++id) {
    v1::ClusterNode* node = view.add_nodes();
    node->set_id(id);
    node->set_address("10.0.0." + std::to_string(id) + ":7411");
  }
  return view;
}

std::map<std::string, std::string> Trailers(const absl::Status& status) {
  std::map<std::string, std::string> trailers;
  ForEachTrailer(status, [&](std::string_view key, std::string_view value) {
    trailers[std::string(key)] = value;
  });
  return trailers;
}

// A server with the service, and one watch of it.
class ClusterServiceTest : public ::testing::Test {
 protected:
  ClusterServiceTest() {
    AddClusterService(&map_, &ticker_, &methods_);
    ticker_.Start();
    server_.emplace(&methods_);
  }
  ~ClusterServiceTest() override { ticker_.Stop(); }

  void Watch() {
    watch_ = server_->OpenStream("/forebay.v1.ClusterService/Watch", &context_);
    ASSERT_TRUE(watch_->Write(Body("")));
    watch_->WritesDone();
  }
  v1::ClusterNews Next() {
    grpc::ByteBuffer body;
    v1::ClusterNews news;
    EXPECT_TRUE(watch_->Read(&body));
    EXPECT_TRUE(news.ParseFromString(Text(body)));
    return news;
  }
  v1::ClusterView NextView() {
    v1::ClusterNews news = Next();
    while (!news.has_view() && news.revision() > 0) news = Next();
    return news.view();
  }

  ClusterMap map_;
  Ticker ticker_;
  MethodTable methods_;
  std::optional<TestServer> server_;
  grpc::ClientContext context_;
  std::unique_ptr<TestServer::ClientStream> watch_;
};

TEST_F(ClusterServiceTest, TellsTheViewAtOnceAndEachChange) {
  map_.Set(View(1, 5));
  Watch();
  v1::ClusterView view = NextView();
  EXPECT_EQ(view.leader(), 1u);
  EXPECT_EQ(view.nodes_size(), 3);
  const uint64_t first = view.revision();
  map_.Set(View(0, 5));
  EXPECT_EQ(NextView().leader(), 0u);
  map_.Set(View(3, 6));
  view = NextView();
  EXPECT_EQ(view.leader(), 3u);
  EXPECT_EQ(view.leader_epoch(), 6u);
  EXPECT_GT(view.revision(), first);
}

TEST_F(ClusterServiceTest, AWatchThatComesBeforeTheFirstViewHearsOfIt) {
  Watch();
  map_.Set(View(1, 5));
  EXPECT_EQ(NextView().leader(), 1u);
}

TEST_F(ClusterServiceTest, BeatsWhileNothingChanges) {
  map_.Set(View(1, 5));
  Watch();
  const uint64_t revision = NextView().revision();
  for (int i = 0; i < 2; ++i) {
    map_.Set(View(1, 5));  // nothing new
    const v1::ClusterNews news = Next();
    EXPECT_FALSE(news.has_view());
    EXPECT_EQ(news.revision(), revision);
  }
}

TEST_F(ClusterServiceTest, GetGivesTheSame) {
  map_.Set(View(3, 9));
  std::string answer;
  ASSERT_TRUE(server_->Unary("/forebay.v1.ClusterService/Get", "", &answer).ok());
  v1::ClusterView view;
  ASSERT_TRUE(view.ParseFromString(answer));
  EXPECT_EQ(view.leader(), 3u);
  EXPECT_EQ(view.revision(), map_.Get()->revision());
}

TEST_F(ClusterServiceTest, RefusesWhatIsNoRequest) {
  watch_ = server_->OpenStream("/forebay.v1.ClusterService/Watch", &context_);
  ASSERT_TRUE(watch_->Write(Body("\xff\xff")));
  grpc::ByteBuffer body;
  EXPECT_FALSE(watch_->Read(&body));
  EXPECT_EQ(watch_->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(DoesNotLead, NamesWhoDoes) {
  const absl::Status status = DoesNotLead(View(1, 5));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("node 2 does not lead: node 1 at 10.0.0.1:7411 does"));
  const std::map<std::string, std::string> trailers = Trailers(status);
  EXPECT_EQ(trailers.at(kLeaderKey), "10.0.0.1:7411");
  EXPECT_EQ(trailers.at(kLeaderEpochKey), "5");
}

TEST(DoesNotLead, SaysThatNobodyIsKnown) {
  // Nobody; a node that is no member; the node itself, which is not ready to lead.
  for (const uint32_t leader : {0u, 9u, 2u}) {
    const absl::Status status = DoesNotLead(View(leader, 5));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("no node is known that does"));
    EXPECT_TRUE(Trailers(status).empty());
    // Such a one soon is.
    EXPECT_EQ(RetryAfterMs(status) > 0, leader == 2);
  }
}

TEST(ServedByAnyNode, IsWhatNeedsNoState) {
  EXPECT_TRUE(ServedByAnyNode("/forebay.v1.ClusterService/Watch"));
  EXPECT_TRUE(ServedByAnyNode("/forebay.v1.PeerService/Replicate"));
  EXPECT_TRUE(ServedByAnyNode("/grpc.health.v1.Health/Check"));
  EXPECT_FALSE(ServedByAnyNode("/forebay.v1.ActorService/Acquire"));
  EXPECT_FALSE(ServedByAnyNode("/forebay.v1.AdminService/GetStatus"));
  EXPECT_FALSE(ServedByAnyNode("/forebay.v1.ClusterServices/Watch"));
}

TEST(AloneView, HasNoClusterAndNoAddress) {
  const v1::ClusterView view = AloneView(42);
  EXPECT_EQ(view.cluster(), 0u);
  EXPECT_EQ(view.run(), 42u);
  ASSERT_EQ(view.nodes_size(), 1);
  EXPECT_EQ(view.nodes(0).address(), "");
}

}  // namespace
}  // namespace forebay::server
