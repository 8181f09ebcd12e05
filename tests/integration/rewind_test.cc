// Checkpoints and rewinds over the wire, and with a daemon that is killed in the middle of one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "forebay/v1/admin.pb.h"
#include "tests/integration/run_ctl.h"
#include "tests/integration/run_directory.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const client::StepSpec kSpec{.groups = 2, .token_budget = 60};

std::string FetchRevised(const client::Step& step) {
  std::string bytes;
  auto reader = step.Read({});
  client::MicroBatch batch;
  auto more = reader->Next(&batch);
  for (; more.ok() && *more; more = reader->Next(&batch)) {
    absl::StrAppend(&bytes, batch.revision, ":");
    for (const auto& column : batch.columns) bytes.append(column.bytes);
  }
  EXPECT_TRUE(more.ok()) << more.status();
  return bytes;
}

class RewindTest : public testing::Test {
 protected:
  explicit RewindTest(std::vector<std::string> flags = {}) : world(All(std::move(flags))) {
    world.AddSource("math", 2, 40);
    actor = world.OpenActor({.actor = "env-0", .sources = {"math"}, .slots = 4});
    Attach();
  }
  std::vector<std::string> All(std::vector<std::string> flags) const {
    for (std::string& flag : directory.Flags()) flags.push_back(std::move(flag));
    return flags;
  }
  void Attach() {
    auto attached = client::Trainer::Attach(world.client.get(), {.trainer = "rank-0"});
    ASSERT_TRUE(attached.ok()) << attached.status();
    trainer = *std::move(attached);
  }
  std::vector<client::Assignment> Acquire(size_t count) {
    std::vector<client::Assignment> all;
    while (all.size() < count) {
      auto acquired = actor->Acquire(static_cast<uint32_t>(count - all.size()),
                                     {.timeout = absl::Seconds(20) * Slowness()});
      if (!acquired.ok() || acquired->assignments.empty()) {
        ADD_FAILURE() << acquired.status();
        break;
      }
      for (auto& assignment : acquired->assignments) all.push_back(std::move(assignment));
    }
    return all;
  }
  void PushGroups(uint32_t groups) {
    auto assignments = Acquire(2 * groups);
    for (auto& assignment : assignments) {
      ++seed;
      OwnRollout own(20, 1000 * seed, seed % 2);
      auto receipt = assignment.Push(own.rollout);
      ASSERT_TRUE(receipt.ok()) << receipt.status();
      EXPECT_EQ(receipt->result, client::PushResult::kAccepted) << receipt->message;
    }
  }
  // Opens, fetches, commits and publishes the step; its bytes.
  std::string Train(uint64_t number, bool generate = true) {
    if (generate) PushGroups(2);
    auto step = trainer->OpenStep(number, kSpec);
    EXPECT_TRUE(step.ok()) << step.status();
    if (!step.ok()) return "";
    std::string bytes = FetchRevised(**step);
    auto made = (*step)->Commit();
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) Publish(*made);
    return bytes;
  }
  void Publish(const client::PolicyVersion& version) {
    EXPECT_TRUE(trainer->Publish(version, absl::StrCat("/weights/", version.number)).ok());
  }
  client::RunStatus Status() {
    auto status = world.admin.Status();
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? *status : client::RunStatus();
  }
  client::SourceState Source() {
    auto sources = world.admin.ListSources();
    EXPECT_TRUE(sources.ok() && sources->size() == 1) << sources.status();
    return sources.ok() && sources->size() == 1 ? (*sources)[0] : client::SourceState();
  }

  // Rollouts that the shard counts as trained, once that is as it will be: it hears of a commit a
  // moment later than the trainer.
  uint64_t Trained(uint64_t expected) {
    const absl::Time until = absl::Now() + absl::Seconds(20) * Slowness();
    uint64_t trained = Source().trained;
    while (trained != expected && absl::Now() < until) {
      absl::SleepFor(absl::Milliseconds(2));  // poll: nobody tells when a shard has heard
      trained = Source().trained;
    }
    return trained;
  }

  const RunDirectory directory;
  World world;
  std::unique_ptr<client::Actor> actor;
  std::unique_ptr<client::Trainer> trainer;
  uint32_t seed = 0;
};

TEST_F(RewindTest, WhatIsKeptOfCommittedStepsIsListedIfItIsAskedFor) {
  Train(1);
  PushGroups(1);
  const auto run = [this](std::vector<std::string> words) {
    words.insert(words.begin(), {"--address", world.daemon.address(), "-o", "json"});
    return RunCtl(words);
  };
  const auto count = [](const std::string& text, const std::string& what) {
    size_t found = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
      ++found;
    }
    return found;
  };
  const std::string held = run({"rollouts"}).out;
  EXPECT_EQ(count(held, "\"state\""), 2u) << held;
  EXPECT_EQ(count(held, "\"trained\""), 0u) << held;
  const std::string trained = run({"rollouts", "--state", "trained"}).out;
  EXPECT_EQ(count(trained, "\"state\""), 4u) << trained;
  EXPECT_EQ(count(trained, "\"trained\""), 4u) << trained;
  // ... and can be read.
  uint64_t id = 0;
  const size_t at = trained.find("\"rollout_id\": \"");
  ASSERT_NE(at, std::string::npos) << trained;
  ASSERT_TRUE(absl::SimpleAtoi(trained.substr(at + 15, trained.find('"', at + 15) - at - 15), &id));
  const Said read = run({"inspect", "rollout", absl::StrCat(absl::Hex(id, absl::kZeroPad16))});
  EXPECT_EQ(read.code, 0) << read.err;
}

TEST_F(RewindTest, ReplayServesTheSameBytesAndFreshGeneratesNewOnes) {
  std::vector<std::string> bytes;
  for (uint64_t step = 1; step <= 3; ++step) bytes.push_back(Train(step));
  auto covered = trainer->Checkpoint(1);
  ASSERT_TRUE(covered.ok()) << covered.status();
  EXPECT_EQ(*covered, 1u);
  EXPECT_EQ(Status().checkpoint, 1u);
  EXPECT_GT(Status().retained_bytes, 0u);
  EXPECT_EQ(Trained(12), 12u);

  ASSERT_TRUE(trainer->Rewind(1, true, "a look at what went wrong").ok());
  EXPECT_EQ(trainer->next_step(), 2u);
  EXPECT_EQ(trainer->train_version().branch, 1u);
  EXPECT_EQ(trainer->train_version().number, 1u);
  EXPECT_EQ(Trained(4), 4u);
  Publish(trainer->train_version());
  EXPECT_EQ(Train(2, false), bytes[1]);
  EXPECT_EQ(Train(3, false), bytes[2]);
  EXPECT_EQ(Trained(12), 12u);

  ASSERT_TRUE(trainer->Rewind(1).ok());
  EXPECT_EQ(trainer->train_version().branch, 2u);
  EXPECT_EQ(Trained(4), 4u);
  EXPECT_EQ(Source().dropped["rewound"], 8u);
  Publish(trainer->train_version());
  EXPECT_NE(Train(2), bytes[1]);
  EXPECT_EQ(Status().next_step, 3u);
}

TEST_F(RewindTest, LimitsAreNamed) {
  for (uint64_t step = 1; step <= 2; ++step) Train(step);
  EXPECT_EQ(trainer->Checkpoint(3).status().message(),
            "step: 3 is not committed; the last one that is: 2");
  ASSERT_TRUE(trainer->Checkpoint(1).ok());
  EXPECT_EQ(trainer->Rewind(0).message(), "step: 0, at least 1, which the last checkpoint covers");
  EXPECT_EQ(trainer->Rewind(7).message(), "step: 7 is not committed; the last one that is: 2");
  const auto unasked = world.Call<v1::RewindResponse>("TrainerService/Rewind", v1::RewindRequest());
  EXPECT_THAT(unasked.status().message(), HasSubstr("generation: is 0"));
  v1::RewindRequest request;
  request.set_request_id(1);
  request.set_mode(static_cast<v1::RewindMode>(9));
  EXPECT_THAT(world.Call<v1::RewindResponse>("AdminService/Rewind", request).status().message(),
              HasSubstr("mode: is 9; fresh (1) or replay (2)"));
  request.set_mode(v1::REWIND_MODE_FRESH);
  request.set_generation(1);
  EXPECT_THAT(world.Call<v1::RewindResponse>("AdminService/Rewind", request).status().message(),
              HasSubstr("generation: is 1, must be 0 for an operator"));
  EXPECT_EQ(Status().next_step, 3u);
}

TEST_F(RewindTest, ActorsAreToldAndTheirLatePushesAreRefusedByName) {
  Train(1);
  auto assignments = Acquire(1);
  ASSERT_TRUE(world.admin.Rewind({.step = 0, .reason = "it diverged"}).ok());
  OwnRollout own(20, 7, 1);
  auto receipt = assignments[0].Push(own.rollout);
  ASSERT_TRUE(receipt.ok()) << receipt.status();
  EXPECT_EQ(receipt->result, client::PushResult::kStale);
  EXPECT_THAT(receipt->message, HasSubstr("branch of versions was abandoned"));
  const auto refused = trainer->OpenStep(2, kSpec);
  EXPECT_TRUE(absl::IsAborted(refused.status())) << refused.status();
  // The operator did it; the trainer attaches again, as any rank that hears of it does.
  ASSERT_TRUE(trainer->Rewind(0).ok());
  EXPECT_EQ(trainer->train_version().branch, 1u);
  EXPECT_EQ(trainer->next_step(), 1u);
}

TEST_F(RewindTest, ARewindSurvivesTheDaemonsEndInTheMiddleOfItAndAfterIt) {
  std::vector<std::string> bytes;
  for (uint64_t step = 1; step <= 4; ++step) bytes.push_back(Train(step));
  ASSERT_TRUE(trainer->Checkpoint(1).ok());
  PushGroups(1);
  for (int round = 0; round < 4; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    // The call is on its way when the daemon goes, a little later in each round.
    absl::Status rewound;
    std::thread asks(
        [&] { rewound = trainer->Rewind(1, true, "", {.timeout = absl::Seconds(40)}); });
    // poll: nothing; the instant of its end is what the rounds try
    absl::SleepFor(absl::Milliseconds(round));
    world.daemon.Kill();
    world.daemon.StartAgain();
    asks.join();
    ASSERT_TRUE(rewound.ok()) << rewound;
    EXPECT_EQ(trainer->next_step(), 2u);
    world.daemon.Kill();
    world.daemon.StartAgain();
    Publish(trainer->train_version());
    for (uint64_t step = 2; step <= 4; ++step) EXPECT_EQ(Train(step, false), bytes[step - 1]);
    EXPECT_EQ(Trained(16), 16u);
  }
  ASSERT_TRUE(trainer->Rewind(2).ok());
  world.daemon.Kill();
  world.daemon.StartAgain();
  EXPECT_EQ(Trained(8), 8u);
  EXPECT_THAT(world.daemon.Log(), ::testing::Not(HasSubstr("is lost")));
  Publish(trainer->train_version());
  actor = world.OpenActor({.actor = "env-1", .sources = {"math"}, .slots = 4});
  EXPECT_NE(Train(3), bytes[2]);
}

class LittleRetention : public RewindTest {
 protected:
  LittleRetention() : RewindTest({"--storage.retention_bytes_max=1"}) {}
};

TEST_F(LittleRetention, AReplayOfWhatIsGoneIsRefusedAndFreshIsNot) {
  for (uint64_t step = 1; step <= 2; ++step) Train(step);
  EXPECT_EQ(Status().retained_bytes, 0u);
  EXPECT_EQ(Status().oldest_replay, 2u);
  EXPECT_THAT(trainer->Rewind(0, true).message(),
              HasSubstr("the payloads of step 2 are gone (storage.retention_bytes_max)"));
  EXPECT_TRUE(trainer->Rewind(0).ok());
  auto changes = world.admin.SetConfig({{"storage.retention_bytes_max", "1MiB"}}, "more room");
  ASSERT_TRUE(changes.ok()) << changes.status();
  Publish(trainer->train_version());
  // It takes a moment until the ledger goes by it.
  for (uint64_t step = 1; step <= 10 && Status().retained_bytes == 0; ++step) Train(step);
  EXPECT_GT(Status().retained_bytes, 0u);
}

class KeptForPeople : public RewindTest {
 protected:
  KeptForPeople() : RewindTest({"--retain.sample=1"}) {}
  void TrainAndCheckpoint(uint64_t step) {
    Train(step);
    const auto covered = trainer->Checkpoint(step);
    ASSERT_TRUE(covered.ok()) << covered.status();
    // The shard hears of it a moment later.
    const absl::Time until = absl::Now() + absl::Seconds(20) * Slowness();
    while (Kept(step).size() < 4 && absl::Now() < until) {
      absl::SleepFor(absl::Milliseconds(2));  // poll: nobody tells when a shard has heard
    }
    ASSERT_EQ(Kept(step).size(), 4u);
  }
  Said Ctl(std::vector<std::string> words) const {
    words.insert(words.begin(), {"--address", world.daemon.address(), "-o", "json"});
    return RunCtl(words);
  }
  // The step's rollouts that are kept, as buffer-ctl takes them.
  std::vector<std::string> Kept(uint64_t step) {
    v1::ListRolloutsRequest request;
    request.set_state("kept");
    const auto listed = world.Ask<v1::ListRolloutsResponse>("AdminService/ListRollouts", request);
    EXPECT_TRUE(listed.ok()) << listed.status();
    std::vector<std::string> ids;
    if (!listed.ok()) return ids;
    for (const v1::RolloutState& rollout : listed->rollouts()) {
      EXPECT_EQ(rollout.state(), "kept");
      if (rollout.step() != step) continue;
      ids.push_back(absl::StrCat(absl::Hex(rollout.rollout_id(), absl::kZeroPad16)));
    }
    return ids;
  }
};

TEST_F(KeptForPeople, WhatACheckpointCoversIsStillListedAndReadAndSoItIsAfterARestart) {
  TrainAndCheckpoint(1);
  Train(2);
  const std::vector<std::string> kept = Kept(1);
  EXPECT_TRUE(Kept(2).empty()) << "it is there for a rewind";
  EXPECT_EQ(Status().kept_rollouts, 4u);
  EXPECT_GT(Status().kept_bytes, 0u);
  EXPECT_EQ(Ctl({"rollouts"}).out.find("rollout_id"), std::string::npos);
  EXPECT_EQ(Ctl({"rollouts", "--state", "trained"}).out.find(kept[0]), std::string::npos);
  const Said before = Ctl({"inspect", "rollout", kept[0]});
  EXPECT_EQ(before.code, 0) << before.err;
  for (const bool killed : {true, false}) {
    if (killed) {
      world.daemon.Kill();
    } else {
      world.daemon.Signal(SIGTERM);
      EXPECT_EQ(world.daemon.Wait(absl::Seconds(20) * Slowness()), 0);
    }
    world.daemon.StartAgain();
    EXPECT_THAT(world.daemon.Log(), ::testing::Not(HasSubstr("is lost")));
    EXPECT_EQ(Kept(1), kept);
    for (const std::string& id : kept) {
      const Said read = Ctl({"inspect", "rollout", id});
      EXPECT_EQ(read.code, 0) << read.err;
      if (id == kept[0]) {
        EXPECT_EQ(read.out, before.out);
      }
    }
  }
  const std::string file = directory.path() + "/kept.jsonl";
  const Said exported = Ctl({"export", "--state", "kept", "-O", file});
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("4"));
  const Said dropped = Ctl({"drop", "math", "--rollout", kept[1], "--why", "a test"});
  EXPECT_EQ(dropped.code, 0) << dropped.err;
  EXPECT_EQ(Kept(1), (std::vector<std::string>{kept[0], kept[2], kept[3]}));
  EXPECT_EQ(Ctl({"inspect", "rollout", kept[1]}).code, 1);
}

TEST_F(KeptForPeople, AboveTheLimitTheOldestGo) {
  TrainAndCheckpoint(1);
  const uint64_t limit = Status().kept_bytes * 3 / 2;
  auto changes = world.admin.SetConfig({{"retain.bytes_max", absl::StrCat(limit)}}, "less room");
  ASSERT_TRUE(changes.ok()) << changes.status();
  EXPECT_EQ(Status().kept_bytes_max, limit);
  // It takes a moment until the ledger goes by it.
  uint64_t step = 2;
  do {
    TrainAndCheckpoint(step);
  } while (Status().kept_bytes > limit && ++step < 10);
  EXPECT_LE(Status().kept_bytes, limit);
  EXPECT_TRUE(Kept(1).size() < 4u && Kept(step).size() == 4u) << step;
}

TEST_F(RewindTest, TheOperatorsToolGoesBackAndTakesSnapshots) {
  Train(1);
  Train(2);
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"--address", world.daemon.address()});
    return RunCtl(words);
  };
  EXPECT_THAT(run({"status"}).out, HasSubstr("none yet, replay from step 0 on; "));
  const Said taken = run({"snapshot", "--why", "before an upgrade"});
  EXPECT_EQ(taken.code, 0) << taken.err;
  for (const char* part : {"ledger", "shard-0", directory.path().c_str()}) {
    EXPECT_THAT(taken.out, HasSubstr(part));
  }
  for (const char* step : {"-1", "1.5", "99999999999999999999"}) {
    const Said wrong = run({"rewind", "--", step});
    EXPECT_EQ(wrong.code, 2) << step;
    EXPECT_THAT(wrong.err, AllOf(HasSubstr("STEP"), HasSubstr(step)));
  }
  const Said back = run({"rewind", "1", "--replay", "--why", "a test", "--id", "77"});
  EXPECT_EQ(back.code, 0) << back.err;
  EXPECT_THAT(back.out,
              HasSubstr("went back to step 1: 1 step taken back, 1 served again; the next "
                        "is step 2 on version main/1/1"));
  EXPECT_EQ(run({"rewind", "1", "--replay", "--id", "77"}).out, back.out) << "asked again";
  EXPECT_THAT(run({"steps"}).out, HasSubstr("sealed, again"));
  const Said refused = run({"rewind", "9"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("step: 9 is not committed; the last one that is: 1"));
}

TEST(SnapshotTest, ARunInMemoryHasNoPlaceForOne) {
  World world;
  const auto taken = world.admin.Snapshot("try");
  EXPECT_TRUE(absl::IsFailedPrecondition(taken.status())) << taken.status();
  EXPECT_THAT(taken.status().message(), HasSubstr("storage.directory"));
}

}  // namespace
}  // namespace forebay::integration
