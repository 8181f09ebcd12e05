// A step that takes from one source only, while others fill the memory for payloads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/unit/server_control/daemon_client.h"

namespace forebay::server {
namespace {

using ::testing::HasSubstr;

class Standstill : public DaemonTest {
 protected:
  // 7 rollouts of 130 KB fit, and an eighth with the reserve.
  static constexpr uint32_t kTokens = 26'000;

  void StartSmall() {
    node::Config config;
    config.memory_payload_bytes_max = 1 << 20;
    config.memory_relief_after_ms = 200;
    Start(config);
    OpenSession();
    // A wait ends with a tick, and then the shard knows how much memory there is.
    Acquire(1, 1);
  }
  void StartFull() {
    StartSmall();
    for (const char* source : {"other", "wanted"}) {
      PutSource(source, 2, 0);
      AddTasks(source, 8);
    }
    for (int group = 0; group < 3; ++group) {
      const auto acquired = AcquireOf("other", 2);
      ASSERT_EQ(acquired.assignments_size(), 2);
      for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(PushOne(Frame(acquired.assignments(i), kTokens, i)).accepted(), 1u);
      }
    }
  }
  v1::AcquireResponse AcquireOf(const std::string& source, uint32_t max, uint32_t wait_ms = 0) {
    v1::AcquireRequest acquire;
    acquire.set_session(1);
    acquire.set_request_id(++request_id_);
    acquire.set_max(max);
    acquire.set_wait_ms(wait_ms);
    acquire.set_loads_any_version(true);
    acquire.add_sources(source);
    return Good<v1::AcquireResponse>("ActorService/Acquire", acquire);
  }
  v1::OpenStepRequest StepOfWanted(uint32_t wait_ms) {
    auto open = Step(generation_, 1, 1, wait_ms);
    open.mutable_spec()->add_sources("wanted");
    return open;
  }
  uint64_t DroppedForBudget(const std::string& name) {
    const auto sources =
        Good<v1::ListSourcesResponse>("AdminService/ListSources", v1::ListSourcesRequest());
    for (const auto& source : sources.sources()) {
      if (source.settings().name() != name) continue;
      const auto dropped = source.dropped().find("budget");
      return dropped == source.dropped().end() ? 0 : dropped->second;
    }
    return 0;
  }
  uint64_t generation_ = 0;
};

TEST_F(Standstill, ReadyGroupsThatAStepCannotTakeMakeRoomForThoseItCan) {
  StartFull();
  const auto acquired = AcquireOf("wanted", 2);
  ASSERT_EQ(acquired.assignments_size(), 2);
  generation_ = AttachTrainer();
  Good<v1::OpenStepResponse>("TrainerService/OpenStep", StepOfWanted(0));
  grpc::ClientContext context;
  auto stream = Push(&context);
  std::thread writer([&] {
    for (int i = 0; i < 2; ++i) {
      stream->Write(SerializeBody(Frame(acquired.assignments(i), kTokens, i)));
    }
    stream->WritesDone();
  });
  const auto step = Good<v1::OpenStepResponse>("TrainerService/OpenStep", StepOfWanted(20'000));
  EXPECT_EQ(step.state(), v1::STEP_STATE_SEALED) << step.waiting();
  context.TryCancel();
  writer.join();
  EXPECT_GT(DroppedForBudget("other"), 0u);
  EXPECT_EQ(DroppedForBudget("wanted"), 0u);
}

TEST_F(Standstill, ActorsOfTheWantedSourceNeedNotPushToBeSeenWaiting) {
  StartFull();
  // A group of the other source that nobody works on any more keeps new ones from being begun.
  const auto acquired = AcquireOf("other", 2);
  ASSERT_EQ(acquired.assignments_size(), 2);
  ASSERT_EQ(PushOne(Frame(acquired.assignments(0), 8, 1)).accepted(), 1u);
  v1::ReleaseRequest release;
  release.set_session(1);
  release.add_attempt_ids(acquired.assignments(1).attempt_id());
  release.add_tokens(acquired.assignments(1).token());
  Good<v1::ReleaseResponse>("ActorService/Release", release);
  ASSERT_EQ(AcquireOf("wanted", 2).reason(), "memory");
  generation_ = AttachTrainer();
  Good<v1::OpenStepResponse>("TrainerService/OpenStep", StepOfWanted(0));
  EXPECT_EQ(AcquireOf("wanted", 2, 20'000).assignments_size(), 2);
  EXPECT_GT(DroppedForBudget("other"), 0u);
}

TEST_F(Standstill, TheWaitOfAStepFollowsWhatOperatorsAndActorsDo) {
  Start();
  OpenSession();
  PutSource("math", 2, 4);
  const uint64_t generation = AttachTrainer();
  const auto waiting = [&](const std::string& text) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    std::string seen;
    do {
      const auto step = Step(generation, 1, 2, 0);
      seen = Good<v1::OpenStepResponse>("TrainerService/OpenStep", step).waiting();
    } while (seen.find(text) == std::string::npos && std::chrono::steady_clock::now() < until);
    EXPECT_THAT(seen, HasSubstr(text));
  };
  waiting("0 attempts in flight; no_actors: source 'math'");
  Acquire(2);
  waiting("2 attempts in flight");
  v1::PutSourceRequest put;
  put.mutable_settings()->set_name("math");
  put.mutable_settings()->set_group_size(2);
  put.mutable_settings()->set_paused(true);
  Good<v1::PutSourceResponse>("AdminService/PutSource", put);
  waiting("paused: source 'math'");
}

// 8 of the rollouts fit, and the step wants 10: nothing that could be dropped would help.
TEST_F(Standstill, AStepThatMemoryCannotHoldSaysSoAndLosesNothing) {
  StartSmall();
  PutSource("math", 2, 8);
  const auto acquired = Acquire(2);
  for (int i = 0; i < 2; ++i) PushOne(Frame(acquired.assignments(i), kTokens, i));
  const uint64_t generation = AttachTrainer();
  Good<v1::OpenStepResponse>("TrainerService/OpenStep", Step(generation, 1, 5, 0));
  grpc::ClientContext context;
  auto stream = Push(&context);
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (int attempts = 0; attempts < 8 && !over;) {
      const auto next = AcquireOf("math", 2, 1'000);
      attempts += next.assignments_size();
      for (int i = 0; i < next.assignments_size(); ++i) {
        stream->Write(SerializeBody(Frame(next.assignments(i), kTokens, i)));
      }
    }
    stream->WritesDone();
  });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  v1::GetStatusResponse status;
  do {
    status = Good<v1::GetStatusResponse>("AdminService/GetStatus", v1::GetStatusRequest());
  } while (status.verdict() != v1::VERDICT_UNAVAILABLE && std::chrono::steady_clock::now() < until);
  EXPECT_EQ(status.verdict(), v1::VERDICT_UNAVAILABLE);
  const auto step =
      Good<v1::OpenStepResponse>("TrainerService/OpenStep", Step(generation, 1, 5, 2'000));
  EXPECT_THAT(step.waiting(), HasSubstr("the step needs about 1.2 MiB of payload memory, "
                                        "memory.payload_bytes_max is 1.0 MiB"));
  EXPECT_EQ(DroppedForBudget("math"), 0u);
  // The operator does as told, and all goes on with what was pushed.
  v1::SetConfigRequest set;
  (*set.mutable_values())["memory.payload_bytes_max"] = "4MiB";
  Good<v1::SetConfigResponse>("AdminService/SetConfig", set);
  const auto sealed =
      Good<v1::OpenStepResponse>("TrainerService/OpenStep", Step(generation, 1, 5, 20'000));
  EXPECT_EQ(sealed.state(), v1::STEP_STATE_SEALED) << sealed.waiting();
  over = true;
  writer.join();
}

}  // namespace
}  // namespace forebay::server
