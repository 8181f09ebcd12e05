// What waits under a generation of trainers that is over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/unit/server_control/daemon_client.h"

namespace forebay::server {
namespace {

using ::testing::HasSubstr;

class Fencing : public DaemonTest {
 protected:
  void AttachAnother() {
    v1::AttachTrainerRequest attach;
    attach.set_trainer("another");
    attach.set_process(100);
    attach.mutable_mesh()->set_dp(1);
    Good<v1::AttachTrainerResponse>("TrainerService/AttachTrainer", attach);
  }
  static std::string IsOver(uint64_t generation) {
    return absl::StrCat("10 generation ", generation, " is over; ", generation + 1, " began");
  }
  bool StepIsOpen() {
    return Good<v1::ListStepsResponse>("AdminService/ListSteps", v1::ListStepsRequest())
               .steps_size() > 0;
  }
};

TEST_F(Fencing, EndsTheWaitForAStep) {
  Start();
  PutSource("math", 2, 4);
  const uint64_t generation = AttachTrainer();
  std::string refused;
  const auto began = std::chrono::steady_clock::now();
  std::thread waiting([&] {
    refused =
        Refused<v1::OpenStepResponse>("TrainerService/OpenStep", Step(generation, 1, 2, 50'000));
  });
  Await([this] { return StepIsOpen(); });
  AttachAnother();
  waiting.join();
  EXPECT_THAT(refused, HasSubstr(IsOver(generation)));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(40));
}

TEST_F(Fencing, EndsTheWaitForScalars) {
  Start();
  PutSource("math", 2, 4);
  const uint64_t generation = AttachTrainer();
  Good<v1::OpenStepResponse>("TrainerService/OpenStep", Step(generation, 1, 2, 0));
  std::string refused;
  std::thread waiting([&] {
    v1::FetchScalarsRequest fetch;
    fetch.set_generation(generation);
    fetch.set_step(1);
    fetch.set_wait_ms(50'000);
    refused = Refused<v1::FetchScalarsResponse>("TrainerService/FetchScalars", fetch);
  });
  AttachAnother();
  waiting.join();
  EXPECT_THAT(refused, HasSubstr(IsOver(generation)));
}

}  // namespace
}  // namespace forebay::server
