// Requests that are wrong, over the real wire: refused by field, value and limit, with the state as
// it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "forebay/v1/admin.pb.h"
#include "forebay/v1/trainer.pb.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;

void ExpectRefused(const absl::Status& status, absl::StatusCode code, const std::string& names) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(names));
}

class BadRequestTest : public ::testing::Test {
 protected:
  BadRequestTest() { world_.AddSource("math", 2, 2); }

  // Groups that a step can take.
  void Fill(uint32_t groups) {
    auto actor = world_.OpenActor();
    for (uint32_t i = 0; i < 2 * groups; ++i) {
      auto assignment = actor->Next({.timeout = absl::Seconds(10)});
      ASSERT_TRUE(assignment.ok()) << assignment.status();
      OwnRollout own(16, 100 * i, i % 2);
      auto receipt = assignment->Push(own.rollout);
      ASSERT_TRUE(receipt.ok()) << receipt.status();
    }
  }

  World world_;
};

TEST_F(BadRequestTest, TheSameTaskWithOtherContentIsRefusedAndNoneOfItsRequestIsAdded) {
  const std::string before = world_.Picture();
  auto added = world_.admin.AddTasks(
      "math", {{.external_id = "new"}, {.external_id = "task-0", .payload = "other"}});
  EXPECT_FALSE(added.ok());
  EXPECT_THAT(std::string(added.status().message()), HasSubstr("tasks[1]"));
  EXPECT_TRUE(world_.Unchanged(before));
  // The same content is harmless.
  auto known = world_.admin.AddTasks("math", {{.external_id = "task-0", .payload = "{\"n\": 0}"}});
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_EQ(known->known, 1u);
  EXPECT_TRUE(world_.Unchanged(before));
}

TEST_F(BadRequestTest, BadTasksAreRefused) {
  const std::string before = world_.Picture();
  const auto add = [this](client::TaskSpec task) {
    return world_.admin.AddTasks("math", {{.external_id = "fine"}, std::move(task)}).status();
  };
  const auto wrong = absl::StatusCode::kInvalidArgument;
  ExpectRefused(add({.external_id = "a", .weight = -1}), wrong, "tasks[1].weight: is -1");
  ExpectRefused(add({.external_id = "a", .weight = std::numeric_limits<double>::quiet_NaN()}),
                wrong, "tasks[1].weight: is nan");
  ExpectRefused(add({.external_id = ""}), wrong, "tasks[1].external_id");
  ExpectRefused(add({.external_id = std::string(257, 'x')}), wrong, "256");
  ExpectRefused(add({.external_id = "a", .payload = std::string((1 << 20) + 1, 'x')}), wrong,
                "1048576");
  EXPECT_TRUE(world_.Unchanged(before));
}

TEST_F(BadRequestTest, AnUnknownSourceIsRefusedEverywhere) {
  const std::string before = world_.Picture();
  ExpectRefused(world_.admin.AddTasks("nowhere", {{.external_id = "a"}}).status(),
                absl::StatusCode::kNotFound, "nowhere");
  ExpectRefused(world_.admin.Requeue("nowhere", {"a"}).status(), absl::StatusCode::kNotFound,
                "nowhere");
  ExpectRefused(world_.admin.SetPaused("nowhere", true), absl::StatusCode::kNotFound, "nowhere");
  EXPECT_FALSE(world_.admin.StartEval({.source = "nowhere"}).ok());
  EXPECT_TRUE(world_.Unchanged(before));
  auto actor = world_.OpenActor({.actor = "lost", .sources = {"nowhere"}});
  const std::string with_actor = world_.Picture();
  ExpectRefused(actor->Acquire(1, {.timeout = absl::Seconds(2)}).status(),
                absl::StatusCode::kNotFound, "nowhere");
  OwnRollout own(16, 1, 1);
  client::PushedGroup group{.source = "nowhere", .external_id = "t", .request_id = 5};
  group.rollouts = {own.rollout, own.rollout};
  ExpectRefused(actor->PushGroup(group).status(), absl::StatusCode::kInvalidArgument, "nowhere");
  EXPECT_TRUE(world_.Unchanged(with_actor));
}

TEST_F(BadRequestTest, OfABadGroupTheWrongRolloutIsNamed) {
  auto actor = world_.OpenActor();
  const std::string before = world_.Picture();
  OwnRollout good(16, 1, 1), bad(16, 2, 1);
  bad.rollout.columns.erase(bad.rollout.columns.begin() + 1);
  client::PushedGroup group{.source = "math", .external_id = "own", .request_id = 6};
  group.rollouts = {good.rollout, good.rollout, bad.rollout, good.rollout};
  ExpectRefused(actor->PushGroup(group).status(), absl::StatusCode::kInvalidArgument,
                "rollouts[2].columns");
  EXPECT_TRUE(world_.Unchanged(before));
}

TEST_F(BadRequestTest, ALateRewardThatCannotBeIsNotDelivered) {
  auto actor = world_.OpenActor();
  const auto assignment = actor->Next({.timeout = absl::Seconds(10)});
  ASSERT_TRUE(assignment.ok()) << assignment.status();
  const uint64_t attempt = assignment->info().attempt_id;
  const auto results =
      actor->SetRewards({{{.attempt_id = attempt, .rewards = {{"zzz", 1}}},
                          {.attempt_id = attempt + 1000, .rewards = {{"reward", 1}}}}});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT(*results,
              ::testing::ElementsAre(client::PushResult::kInvalid, client::PushResult::kUnknown));
}

TEST_F(BadRequestTest, BadSettingsOfASourceAreRefused) {
  const std::string before = world_.Picture();
  const auto put = [this](client::SourceSettings settings) {
    settings.name = "math";
    return world_.admin.PutSource(settings).status();
  };
  const auto wrong = absl::StatusCode::kInvalidArgument;
  ExpectRefused(put({.weight = -0.5}), wrong, "weight");
  ExpectRefused(put({.group_size = 100'000}), wrong, "4096");
  ExpectRefused(put({.group_size = 8, .attempts_per_task = 4}), wrong, "attempts_per_task");
  ExpectRefused(put({.minimum_share = 1.5}), wrong, "minimum_share");
  ExpectRefused(put({.rewards = {{"reward", std::numeric_limits<double>::infinity()}}}), wrong,
                "rewards");
  ExpectRefused(put({.eval = true}), wrong, "purpose: 1, but source math was created with 0");
  EXPECT_TRUE(world_.Unchanged(before));
}

class BadStepTest : public BadRequestTest {
 protected:
  BadStepTest() {
    Fill(2);
    auto trainer = client::Trainer::Attach(world_.client.get(), {.trainer = "rank-0"});
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    trainer_ = *std::move(trainer);
  }
  client::StepSpec Spec() const { return {.groups = 1, .token_budget = 64}; }
  absl::Status CommitRaw(uint64_t step, uint32_t revision, uint64_t generation) {
    v1::CommitStepRequest request;
    request.set_generation(generation);
    request.set_step(step);
    request.set_revision(revision);
    return world_.Call<v1::CommitStepResponse>("TrainerService/CommitStep", request).status();
  }

  std::unique_ptr<client::Trainer> trainer_;
};

TEST_F(BadStepTest, AnotherSpecForTheSameStepIsRefusedWithoutReplan) {
  auto step = trainer_->OpenStep(1, Spec(), {}, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(step.ok()) << step.status();
  const std::string before = world_.Picture();
  client::StepSpec other = Spec();
  other.token_budget = 128;
  auto refused = trainer_->OpenStep(1, other, {}, {.timeout = absl::Seconds(10)});
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("token_budget"));
  EXPECT_TRUE(world_.Unchanged(before));
  auto replanned = trainer_->OpenStep(1, other, {.replan = true}, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(replanned.ok()) << replanned.status();
  EXPECT_GT((*replanned)->plan().revision, (*step)->plan().revision);
  // The old revision is fenced.
  ExpectRefused((*step)->Fetch(0, 0, {}).status(), absl::StatusCode::kAborted,
                "revision: 1, step 1 has revision 2");
  ExpectRefused((*step)->Commit().status(), absl::StatusCode::kAborted,
                "revision: 1, step 1 has revision 2");
  EXPECT_TRUE((*replanned)->Commit().ok());
}

TEST_F(BadStepTest, StepsCommitInOrder) {
  auto first = trainer_->OpenStep(1, Spec(), {}, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = trainer_->OpenStep(2, Spec(), {}, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(second.ok()) << second.status();
  const std::string before = world_.Picture();
  ExpectRefused((*second)->Commit().status(), absl::StatusCode::kFailedPrecondition, "1");
  EXPECT_TRUE(world_.Unchanged(before));
  EXPECT_TRUE((*first)->Commit().ok());
  EXPECT_TRUE((*second)->Commit().ok());
}

TEST_F(BadStepTest, AStepThatIsNotSealedIsNotCommitted) {
  client::StepSpec big = Spec();
  big.groups = 50;
  auto open = trainer_->OpenStep(1, big, {}, {.timeout = absl::Milliseconds(50)});
  EXPECT_EQ(open.status().code(), absl::StatusCode::kDeadlineExceeded) << open.status();
  EXPECT_THAT(std::string(open.status().message()), HasSubstr("50"));
  const std::string before = world_.Picture();
  ExpectRefused(CommitRaw(1, 1, trainer_->generation()), absl::StatusCode::kFailedPrecondition,
                "step: 1 is not sealed yet");
  ExpectRefused(CommitRaw(7, 1, trainer_->generation()), absl::StatusCode::kFailedPrecondition,
                "step: 7, the next to commit is 1");
  EXPECT_TRUE(world_.Unchanged(before));
}

TEST_F(BadStepTest, SpecsThatCannotBeAreRefused) {
  const std::string before = world_.Picture();
  const auto open = [this](client::StepSpec spec) {
    return trainer_->OpenStep(1, spec, {}, {.timeout = absl::Seconds(2)}).status();
  };
  const auto wrong = absl::StatusCode::kInvalidArgument;
  ExpectRefused(open({.groups = 0, .tokens = 0, .token_budget = 64}), wrong, "groups");
  ExpectRefused(open({.groups = 1, .token_budget = 0}), wrong, "token_budget");
  ExpectRefused(open({.groups = 2'000'000, .token_budget = 64}), wrong, "1000000");
  ExpectRefused(open({.groups = 1, .token_budget = 64, .sources = {"nowhere"}}),
                absl::StatusCode::kNotFound, "spec.sources: 'nowhere' is not a source");
  ExpectRefused(trainer_->OpenStep(9, Spec(), {}, {.timeout = absl::Seconds(2)}).status(),
                absl::StatusCode::kFailedPrecondition, "step: 9, but step 1 is not open yet");
  EXPECT_TRUE(world_.Unchanged(before));
}

TEST_F(BadStepTest, AnOlderGenerationIsRefused) {
  auto newer = client::Trainer::Attach(world_.client.get(), {.trainer = "again"});
  ASSERT_TRUE(newer.ok()) << newer.status();
  const std::string before = world_.Picture();
  EXPECT_EQ(trainer_->OpenStep(1, Spec(), {}, {.timeout = absl::Seconds(2)}).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(trainer_->Publish({.number = 1}, "/w").code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(world_.Unchanged(before));
}

TEST_F(BadStepTest, AVersionThatNoStepMadeIsNotPublished) {
  const std::string before = world_.Picture();
  const auto future = trainer_->Publish({.number = 9}, "/weights/9");
  EXPECT_FALSE(future.ok());
  EXPECT_THAT(std::string(future.message()), HasSubstr("9"));
  ExpectRefused(trainer_->Publish({.branch = 3, .number = 0}, "/weights/0"),
                absl::StatusCode::kFailedPrecondition, "version: 3/0 is not on the branch 0");
  EXPECT_TRUE(world_.Unchanged(before));
}

TEST_F(BadStepTest, BadFetchesAndColumnsAreRefused) {
  auto step = trainer_->OpenStep(1, Spec(), {}, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(step.ok()) << step.status();
  const std::string before = world_.Picture();
  EXPECT_THAT(std::string((*step)->Fetch(0, 0, {.columns = {"no_such"}}).status().message()),
              HasSubstr("no_such"));
  const auto wrong = absl::StatusCode::kInvalidArgument;
  ExpectRefused((*step)->Fetch(0, 77, {}).status(), wrong, "micro_batch: 77, less than 1");
  ExpectRefused((*step)->Fetch(5, 0, {}).status(), wrong, "mini_batch: 5, less than 1");
  const std::vector<float> few(3, 1.0f);
  const auto column = client::MakeColumn<float>("old_logprobs", few);
  ExpectRefused((*step)->PutColumns(0, 0, {&column, 1}), wrong, "12");
  const std::vector<int64_t> integers(16, 1);
  const auto logprobs = client::MakeColumn<int64_t>("old_logprobs", integers);
  ExpectRefused((*step)->PutColumns(0, 0, {&logprobs, 1}), wrong,
                "columns[0].dtype: is 8, but old_logprobs is f32 per token");
  const std::vector<float> three(48, 1.0f);
  const auto values = client::MakeColumn<float>("values", three, client::Domain::kToken, {3});
  ExpectRefused((*step)->PutColumns(0, 0, {&values, 1}), wrong,
                "columns[0].inner: has 1 dimensions, but values is f32 per token");
  EXPECT_TRUE(world_.Unchanged(before));
}

}  // namespace
}  // namespace forebay::integration
