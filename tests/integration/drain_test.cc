// The end of the daemon while calls wait, and an end cut short by a second signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "absl/time/clock.h"
#include "forebay/v1/trainer.pb.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Far longer than any test takes: what ends within it did not wait for it.
constexpr char kLongDrain[] = "--shutdown.drain_ms=300000";
constexpr uint32_t kWaitMs = 15'000;
constexpr absl::Duration kPromptly = absl::Seconds(10);

class DrainTest : public ::testing::Test {
 protected:
  explicit DrainTest(std::vector<std::string> flags = {kLongDrain}) : world_(std::move(flags)) {}

  void AwaitWait(const std::string& of) {
    const absl::Time until = absl::Now() + absl::Seconds(10) * Slowness();
    while (absl::Now() < until) {
      auto status = world_.admin.Status();
      ASSERT_TRUE(status.ok()) << status.status();
      for (const auto& wait : status->waits) {
        if (wait.find(of) != std::string::npos) return;
      }
      absl::SleepFor(absl::Milliseconds(10));  // poll: the call has arrived
    }
    FAIL() << "nobody waits in " << of;
  }
  void AwaitLog(const std::string& text) {
    const absl::Time until = absl::Now() + absl::Seconds(10) * Slowness();
    while (world_.daemon.Log().find(text) == std::string::npos && absl::Now() < until) {
      absl::SleepFor(absl::Milliseconds(10));  // poll: the daemon writes its log
    }
    ASSERT_THAT(world_.daemon.Log(), HasSubstr(text));
  }
  // A stream that was answered once, and goes on.
  std::unique_ptr<client::MessageStream> WatchPolicy() {
    auto stream = world_.client->connection()->OpenStream("/forebay.v1.ActorService/WatchPolicy");
    const auto bytes =
        std::make_shared<const std::string>(v1::WatchPolicyRequest().SerializeAsString());
    const client::Piece piece{*bytes, bytes};
    EXPECT_TRUE(stream->Write({&piece, 1}));
    client::Incoming message;
    EXPECT_TRUE(stream->Read(&message));
    return stream;
  }
  absl::StatusOr<v1::OpenStepResponse> OpenStep() {
    v1::AttachTrainerRequest attach;
    attach.set_trainer("waiting");
    attach.set_process(1);
    attach.mutable_mesh()->set_dp(1);
    auto attached = world_.Call<v1::AttachTrainerResponse>("TrainerService/AttachTrainer", attach);
    if (!attached.ok()) return attached.status();
    v1::OpenStepRequest open;
    open.set_generation(attached->generation());
    open.set_step(1);
    open.set_wait_ms(kWaitMs);
    open.mutable_spec()->set_groups(1);
    open.mutable_spec()->mutable_mesh()->set_dp(1);
    open.mutable_spec()->set_token_budget(1'000);
    return world_.Call<v1::OpenStepResponse>("TrainerService/OpenStep", open);
  }

  World world_;
};

TEST_F(DrainTest, WaitingStepsAndWatchersAreToldAtOnce) {
  world_.AddSource("math", 2, 0);
  auto watch = WatchPolicy();
  absl::StatusOr<v1::OpenStepResponse> opened = absl::UnknownError("not yet");
  std::thread trainer([&] { opened = OpenStep(); });
  AwaitWait("OpenStep 1");
  world_.daemon.Signal(SIGTERM);
  EXPECT_EQ(world_.daemon.Wait(kPromptly * Slowness()), 0) << world_.daemon.Log();
  trainer.join();
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable) << opened.status();
  EXPECT_THAT(std::string(opened.status().message()),
              AllOf(HasSubstr("step 1"), HasSubstr("draining")));
  client::Incoming message;
  EXPECT_FALSE(watch->Read(&message));
  const absl::Status status = watch->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("shutting down"));
}

class DrainOfThreeShards : public DrainTest {
 protected:
  DrainOfThreeShards() : DrainTest({kLongDrain, "--shards=3"}) {}
};

TEST_F(DrainOfThreeShards, WaitingActorsGoHomeAtOnce) {
  world_.AddSource("math", 2, 0);
  auto actor = world_.OpenActor();
  absl::StatusOr<client::AcquireResult> acquired = absl::UnknownError("not yet");
  std::thread waiter(
      [&] { acquired = actor->Acquire(1, {.timeout = absl::Milliseconds(kWaitMs)}); });
  AwaitWait("in Acquire");
  world_.daemon.Signal(SIGTERM);
  EXPECT_EQ(world_.daemon.Wait(kPromptly * Slowness()), 0) << world_.daemon.Log();
  actor->Close();
  waiter.join();
}

TEST_F(DrainTest, ASecondSignalCutsTheEndShortAndSaysWhatRan) {
  world_.AddSource("math", 2, 2);
  v1::OpenSessionRequest open;
  open.set_session(1);
  ASSERT_TRUE(world_.Call<v1::OpenSessionResponse>("ActorService/OpenSession", open).ok());
  v1::AcquireRequest acquire;
  acquire.set_session(1);
  acquire.set_request_id(1);
  acquire.set_max(1);
  acquire.set_loads_any_version(true);
  auto held = world_.Call<v1::AcquireResponse>("ActorService/Acquire", acquire);
  ASSERT_TRUE(held.ok() && held->assignments_size() == 1) << held.status();
  auto watch = WatchPolicy();
  world_.daemon.Signal(SIGTERM);
  AwaitLog("draining");
  EXPECT_EQ(world_.daemon.Wait(absl::Milliseconds(200)), -1) << "it does not wait for the lease";
  world_.daemon.Signal(SIGINT);
  EXPECT_EQ(world_.daemon.Wait(kPromptly * Slowness()), 4) << world_.daemon.Log();
  EXPECT_THAT(world_.daemon.Log(), AllOf(HasSubstr("a second signal"), HasSubstr("1 WatchPolicy"),
                                         HasSubstr("leases=1")));
}

}  // namespace
}  // namespace forebay::integration
