#include "bench/load/load_client.h"

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include <thread>

#include "bench/limits/limit_server.h"
#include "bench/load/limit_actor.h"
#include "bench/load/script.h"

namespace forebay::bench {
namespace {

class LoadClientTest : public testing::Test {
 protected:
  void SetUp() override {
    LimitServerOptions options;
    options.addresses = {"127.0.0.1:0"};
    auto server = LimitServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    thread_ = std::thread([this] { server_->Run(); });
  }

  void TearDown() override {
    server_->Shutdown();
    thread_.join();
  }

  absl::StatusOr<LoadResult> Run(const std::string& script, int channels, int lanes, int window) {
    LoadOptions options;
    options.target = absl::StrCat("127.0.0.1:", server_->port());
    options.channels = channels;
    options.lanes = lanes;
    options.warm_up_seconds = 0;
    options.seconds = 60;
    options.operations = 20;  // ends the run, however slow the machine is
    options.server_pid = getpid();
    const auto steps = *ParseScript(script);
    return RunLoad(options, [&](int) {
      return std::make_unique<ScriptConversation>(
          ScriptOptions{steps, static_cast<uint32_t>(window), 1});
    });
  }

  std::unique_ptr<LimitServer> server_;
  std::thread thread_;
};

TEST_F(LoadClientTest, CountsUnaryCallsAndBothSidesCpu) {
  auto result = Run("unary:100>100", 1, 16, 1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->operations, 20u);
  EXPECT_EQ(result->payload_bytes, result->operations * 100);
  EXPECT_GT(result->client_cpu_seconds, 0);
  EXPECT_GT(result->server_peak_rss_bytes, 1u << 20);
}

TEST_F(LoadClientTest, RunsAStepThatNeedsTheAnswerOfAnother) {
  auto result = Run("stream:40>5000 stream:7000>900", 2, 2, 4);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->operations, 20u);
}

TEST_F(LoadClientTest, PushesAndFetchesInFrames) {
  auto push = Run("store:1048576x3>24", 1, 1, 4);
  ASSERT_TRUE(push.ok()) << push.status();
  EXPECT_GE(push->payload_bytes, 20 * 3000000u);
  auto fetch = Run("stream:64>3000000/1048576", 2, 1, 2);
  ASSERT_TRUE(fetch.ok()) << fetch.status();
  EXPECT_GE(fetch->payload_bytes, 20 * 3000000u);
}

TEST_F(LoadClientTest, LoadsTheLimitAsAnActorDoes) {
  const auto columns = PlainColumns();
  ActorLoad load;
  load.batch = 8;
  load.rollouts.emplace_back(16, columns, SharedPayload(16 * BytesPerToken(columns)), 1);
  const auto steps = *ParseScript("unary:40>900 store:2000>6");
  LoadOptions options;
  options.target = absl::StrCat("127.0.0.1:", server_->port());
  options.lanes = 2;
  options.warm_up_seconds = 0;
  options.operations = 80;
  options.seconds = 60;
  auto result = RunLoad(options, [&](int) -> std::unique_ptr<Conversation> {
    return *LimitActorConversation::Make(&load, steps);
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->operations, 80u);
  EXPECT_EQ(result->payload_bytes, result->operations * 16 * 9);
  for (const char* other : {"unary:40>900", "store:40>900 store:2000>6", "unary:1>1 stream:1>1"}) {
    EXPECT_FALSE(LimitActorConversation::Make(&load, *ParseScript(other)).ok()) << other;
  }
}

TEST_F(LoadClientTest, EndsAfterTheOperationsThatItWasAskedFor) {
  LoadOptions options;
  options.target = absl::StrCat("127.0.0.1:", server_->port());
  options.operations = 10;
  options.seconds = 60;
  auto result = RunLoad(options, [&](int) {
    return std::make_unique<ScriptConversation>(ScriptOptions{*ParseScript("unary:100>100"), 1, 1});
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_LT(result->seconds, 30);
  EXPECT_EQ(result->script, "unary:100>100");
}

TEST(LoadClient, SaysSoWhenNobodyListens) {
  LoadOptions options;
  options.target = "unix:/nonexistent/forebay.sock";
  options.connect_seconds = 0.2;
  auto result = RunLoad(options, [](int) -> std::unique_ptr<Conversation> { return nullptr; });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace forebay::bench
