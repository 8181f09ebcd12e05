// The whole way of a rollout through a real daemon: task, assignment, push, step, fetch, commit,
// publication.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "forebay/v1/admin.pb.h"
#include "tests/integration/run_directory.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

using client::Assignment;
using client::MicroBatch;

constexpr uint32_t kGroup = 2;
constexpr uint32_t kTasks = 4;

// Pushes one rollout an assignment, each with tokens of its own; by first token.
std::map<uint32_t, std::unique_ptr<OwnRollout>> PushAll(client::Actor* actor, uint32_t count) {
  std::map<uint32_t, std::unique_ptr<OwnRollout>> pushed;
  uint32_t seed = 1000;
  while (pushed.size() < count) {
    auto acquired = actor->Acquire(count - static_cast<uint32_t>(pushed.size()),
                                   {.timeout = absl::Seconds(10)});
    EXPECT_TRUE(acquired.ok()) << acquired.status();
    if (!acquired.ok() || acquired->assignments.empty()) {
      ADD_FAILURE() << "no assignments: " << (acquired.ok() ? acquired->reason : "");
      return pushed;
    }
    for (Assignment& assignment : acquired->assignments) {
      seed += 1000;
      auto own = std::make_unique<OwnRollout>(10 + seed / 1000 % 7, seed, seed % 3000 == 0 ? 1 : 0);
      auto receipt = assignment.Push(own->rollout);
      EXPECT_TRUE(receipt.ok()) << receipt.status();
      if (!receipt.ok()) continue;
      EXPECT_EQ(receipt->result, client::PushResult::kAccepted) << receipt->message;
      pushed.emplace(seed, std::move(own));
    }
  }
  return pushed;
}

// Every sequence of the micro-batch is byte for byte a rollout that was pushed; returns its first
// tokens.
void CheckBytes(const MicroBatch& batch,
                const std::map<uint32_t, std::unique_ptr<OwnRollout>>& pushed,
                std::multiset<uint32_t>* seen) {
  const auto* tokens = batch.Find("tokens");
  const auto* mask = batch.Find("loss_mask");
  const auto* logprobs = batch.Find("logprobs");
  ASSERT_TRUE(tokens != nullptr && mask != nullptr && logprobs != nullptr);
  for (size_t s = 0; s < batch.sequences(); ++s) {
    const auto begin = static_cast<size_t>(batch.cu_seqlens[s]);
    const auto length = static_cast<size_t>(batch.cu_seqlens[s + 1]) - begin;
    const auto found = pushed.find(tokens->values<uint32_t>()[begin]);
    ASSERT_NE(found, pushed.end());
    const OwnRollout& own = *found->second;
    ASSERT_EQ(length, own.tokens.size());
    EXPECT_EQ(tokens->values<uint32_t>().subspan(begin, length), absl::MakeConstSpan(own.tokens));
    EXPECT_EQ(mask->values<uint8_t>().subspan(begin, length), absl::MakeConstSpan(own.mask));
    EXPECT_EQ(logprobs->values<float>().subspan(begin, length), absl::MakeConstSpan(own.logprobs));
    EXPECT_EQ(batch.rewards[s], static_cast<float>(own.rollout.rewards.at("reward")));
    seen->insert(found->first);
  }
}

client::StepSpec Spec() { return {.groups = kTasks, .token_budget = 40, .pad_multiple = 8}; }

void EveryRolloutIsTrainedOnce(World& world) {
  world.AddSource("math", kGroup, kTasks);
  auto actor = world.OpenActor({.actor = "env-0", .engine = "engine-0", .sources = {"math"}});
  const auto pushed = PushAll(actor.get(), kGroup * kTasks);
  ASSERT_EQ(pushed.size(), kGroup * kTasks);
  EXPECT_EQ(actor->leases(), 0u);

  auto trainer = client::Trainer::Attach(world.client.get(), {.trainer = "rank-0"});
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  EXPECT_EQ((*trainer)->next_step(), 1u);
  auto step = (*trainer)->OpenStep(1, Spec(), {}, {.timeout = absl::Seconds(20)});
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ((*step)->plan().state, client::StepState::kSealed);
  EXPECT_EQ((*step)->plan().totals.rollouts, kGroup * kTasks);

  std::multiset<uint32_t> seen;
  auto reader = (*step)->Read({.columns = {"tokens", "loss_mask", "logprobs"}});
  MicroBatch batch;
  for (auto more = reader->Next(&batch); more.value(); more = reader->Next(&batch)) {
    EXPECT_EQ(batch.padded_tokens % 8, 0u);
    EXPECT_EQ(batch.PositionIds().size(), batch.padded_tokens);
    CheckBytes(batch, pushed, &seen);
  }
  std::multiset<uint32_t> all;
  for (const auto& [seed, own] : pushed) all.insert(seed);
  EXPECT_EQ(seen, all);

  auto made = (*step)->Commit();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->number, 1u);
  auto again = (*step)->Commit();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *made);

  ASSERT_TRUE((*trainer)->AnnouncePending(*made).ok());
  ASSERT_TRUE((*trainer)->Publish(*made, "/weights/1", "sum").ok());
  auto heard = actor->WaitForVersion(1, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(heard.ok()) << heard.status();
  EXPECT_EQ(heard->where, "/weights/1");
  EXPECT_TRUE(actor->ReportAdoption(heard->version, absl::Milliseconds(3)).ok());
  auto sources = world.admin.ListSources();
  ASSERT_TRUE(sources.ok());
  EXPECT_EQ((*sources)[0].trained, kGroup * kTasks);
}

TEST(FlowTest, EveryRolloutIsTrainedOnceWithTheBytesThatWerePushed) {
  World world;
  EveryRolloutIsTrainedOnce(world);
}

class FlowOnDisk : public WithBothDisks {};
FOREBAY_WITH_BOTH_DISKS(FlowOnDisk);

TEST_P(FlowOnDisk, EveryRolloutIsTrainedOnceWithTheBytesThatWerePushed) {
  World world(directory_.Flags());
  EveryRolloutIsTrainedOnce(world);
  const auto switched_off = ::testing::HasSubstr("io_uring is switched off by configuration");
  if (GetParam() == std::string_view("threads")) {
    EXPECT_THAT(world.daemon.Log(), switched_off);
  } else {
    EXPECT_THAT(world.daemon.Log(), ::testing::Not(switched_off));
  }
}

TEST(FlowTest, AStepAskedForAgainIsTheSamePlanAndTheSameBytes) {
  World world;
  world.AddSource("math", kGroup, kTasks);
  auto actor = world.OpenActor();
  PushAll(actor.get(), kGroup * kTasks);
  const auto fetch = [](const client::Step& step) {
    std::string bytes;
    auto reader = step.Read({});
    MicroBatch batch;
    for (auto more = reader->Next(&batch); more.value(); more = reader->Next(&batch)) {
      for (const auto& column : batch.columns) bytes.append(column.bytes);
    }
    return bytes;
  };
  auto first = client::Trainer::Attach(world.client.get(), {.trainer = "first"});
  ASSERT_TRUE(first.ok());
  auto step = (*first)->OpenStep(1, Spec());
  ASSERT_TRUE(step.ok()) << step.status();
  const std::string bytes = fetch(**step);
  EXPECT_FALSE(bytes.empty());

  // The trainer crashed and comes back as a new process: a new generation, which fences the old
  // one.
  auto second = client::Trainer::Attach(world.client.get(), {.trainer = "second"});
  ASSERT_TRUE(second.ok());
  EXPECT_GT((*second)->generation(), (*first)->generation());
  EXPECT_THAT((*second)->open_steps(), ::testing::ElementsAre(1));
  auto same = (*second)->OpenStep(1, Spec());
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ((*same)->plan().plan_hash, (*step)->plan().plan_hash);
  EXPECT_EQ(fetch(**same), bytes);
  EXPECT_EQ((*step)->Commit().status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE((*same)->Commit().ok());
}

TEST(FlowTest, ColumnsThatWerePutBackAreFetchedByName) {
  World world;
  world.AddSource("math", kGroup, kTasks);
  auto actor = world.OpenActor();
  PushAll(actor.get(), kGroup * kTasks);
  auto trainer = client::Trainer::Attach(world.client.get(), {.trainer = "rank-0"});
  ASSERT_TRUE(trainer.ok());
  auto step = (*trainer)->OpenStep(1, Spec());
  ASSERT_TRUE(step.ok()) << step.status();
  auto batch = (*step)->Fetch(0, 0, {});
  ASSERT_TRUE(batch.ok()) << batch.status();
  const auto count = static_cast<size_t>(batch->cu_seqlens.back());
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = -0.5f * static_cast<float>(i);
  const auto column = client::MakeColumn<float>("old_logprobs", values);
  ASSERT_TRUE((*step)->PutColumns(0, 0, {&column, 1}).ok());

  // Into the caller's own memory this time.
  std::map<std::string, std::vector<char>> places;
  client::FetchSpec spec{.columns = {"old_logprobs"}};
  spec.allocate = [&places](std::string_view name, size_t bytes) {
    places[std::string(name)].resize(bytes);
    return places[std::string(name)].data();
  };
  auto with = (*step)->Fetch(0, 0, spec);
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(with->columns[0].bytes.data(), places["old_logprobs"].data());
  EXPECT_EQ(with->columns[0].values<float>().subspan(0, count), absl::MakeConstSpan(values));
}

TEST(FlowTest, CustomAdvantagesSealTheStep) {
  World world;
  world.AddSource("math", kGroup, kTasks);
  auto actor = world.OpenActor();
  PushAll(actor.get(), kGroup * kTasks);
  auto trainer = client::Trainer::Attach(world.client.get(), {.trainer = "rank-0"});
  ASSERT_TRUE(trainer.ok());
  client::StepSpec spec = Spec();
  spec.custom_advantages = true;
  auto step = (*trainer)->OpenStep(1, spec);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ((*step)->plan().state, client::StepState::kReserved);
  auto scalars = (*step)->FetchScalars();
  ASSERT_TRUE(scalars.ok()) << scalars.status();
  ASSERT_EQ(scalars->rewards.size(), kGroup * kTasks);
  std::map<uint64_t, float> wanted;
  std::vector<float> advantages;
  for (size_t i = 0; i < scalars->rollout_ids.size(); ++i) {
    advantages.push_back(0.5f + static_cast<float>(i));
    wanted[scalars->rollout_ids[i]] = advantages.back();
  }
  ASSERT_TRUE((*step)->PutAdvantages(advantages).ok());
  EXPECT_EQ((*step)->plan().state, client::StepState::kSealed);
  auto reader = (*step)->Read({});
  MicroBatch batch;
  size_t sequences = 0;
  for (auto more = reader->Next(&batch); more.value(); more = reader->Next(&batch)) {
    for (size_t s = 0; s < batch.sequences(); ++s, ++sequences) {
      EXPECT_EQ(batch.advantages[s], wanted[batch.rollout_ids[s]]);
    }
  }
  EXPECT_EQ(sequences, kGroup * kTasks);
}

TEST(FlowTest, APartialAttemptIsContinuedByWhoeverGetsItNext) {
  World world;
  world.AddSource("math", 2, 1);
  auto actor = world.OpenActor({.actor = "first"});
  auto acquired = actor->Acquire(1, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(acquired.ok() && acquired->assignments.size() == 1);
  const uint64_t attempt = acquired->assignments[0].info().attempt_id;
  OwnRollout prefix(12, 7, 0);
  prefix.rollout.rewards.clear();
  auto saved = acquired->assignments[0].SavePartial(prefix.rollout);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_TRUE(saved->in()) << saved->message;

  auto second = world.OpenActor({.actor = "second"});
  bool continued = false;
  auto again = second->Acquire(2, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(again.ok()) << again.status();
  for (const Assignment& a : again->assignments) {
    if (a.info().attempt_id != attempt) continue;
    ASSERT_NE(a.info().partial, nullptr);
    const auto& tokens = a.info().partial->rollout.columns[0];
    EXPECT_EQ(tokens.name, "tokens");
    EXPECT_EQ(tokens.bytes, prefix.rollout.columns[0].bytes);
    continued = true;
  }
  EXPECT_TRUE(continued);
}

TEST(FlowTest, AnAssignmentThatIsDestroyedGoesToAnotherActor) {
  World world;
  world.AddSource("math", 2, 1);
  auto actor = world.OpenActor({.actor = "first"});
  uint64_t attempt = 0;
  {
    // Not by Next, which would ask again as soon as a slot is free.
    auto got = actor->Acquire(1, {.timeout = absl::Seconds(10)});
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(got->assignments.size(), 1u) << got->reason;
    attempt = got->assignments[0].info().attempt_id;
  }
  auto second = world.OpenActor({.actor = "second"});
  // The first actor gives it back in the background; until that is in, others are handed out.
  std::vector<Assignment> held;
  const absl::Time until = absl::Now() + absl::Seconds(10);
  while (absl::Now() < until && (held.empty() || held.back().info().attempt_id != attempt)) {
    auto got = second->Acquire(1, {.timeout = absl::Seconds(10)});
    ASSERT_TRUE(got.ok()) << got.status();
    for (Assignment& assignment : got->assignments) held.push_back(std::move(assignment));
  }
  ASSERT_FALSE(held.empty());
  EXPECT_EQ(held.back().info().attempt_id, attempt);
}

TEST(FlowTest, AFinishedGroupIsPushedWithoutAssignments) {
  World world;
  world.AddSource("offline", kGroup, 0);
  auto actor = world.OpenActor();
  OwnRollout a(12, 100, 1), b(14, 200, 0);
  client::PushedGroup group{.source = "offline", .external_id = "own", .request_id = 77};
  group.rollouts = {a.rollout, b.rollout};
  auto receipts = actor->PushGroup(group);
  ASSERT_TRUE(receipts.ok()) << receipts.status();
  ASSERT_EQ(receipts->size(), 2u);
  EXPECT_EQ((*receipts)[0].result, client::PushResult::kAccepted);
  auto again = actor->PushGroup(group);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)[0].result, client::PushResult::kDuplicate);
  auto status = world.admin.Status();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->groups_ready, 1u);
}

TEST(FlowTest, AnEvaluationRunsEachTaskAndReportsThePassRate) {
  World world;
  ASSERT_TRUE(world.admin.PutSource({.name = "held-out", .eval = true, .group_size = 1}).ok());
  std::vector<client::TaskSpec> tasks;
  for (int i = 0; i < 4; ++i) tasks.push_back({.external_id = absl::StrCat("t", i)});
  ASSERT_TRUE(world.admin.AddTasks("held-out", tasks).ok());
  auto run = world.admin.StartEval({.source = "held-out", .attempts = 2});
  ASSERT_TRUE(run.ok()) << run.status();
  auto actor = world.OpenActor();
  for (int i = 0; i < 8; ++i) {
    auto assignment = actor->Next({.timeout = absl::Seconds(10)});
    ASSERT_TRUE(assignment.ok()) << assignment.status();
    EXPECT_TRUE(assignment->info().eval);
    EXPECT_EQ(assignment->info().eval_run, *run);
    OwnRollout own(8, 50, i < 4 ? 1 : 0);
    auto receipt = assignment->Push(own.rollout);
    ASSERT_TRUE(receipt.ok()) << receipt.status();
  }
  auto result = world.admin.AwaitEval(*run, {.timeout = absl::Seconds(20)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->done);
  EXPECT_EQ(result->rollouts, 8u);
  EXPECT_DOUBLE_EQ(result->mean_reward, 0.5);
}

TEST(FlowTest, TheClientsOwnCostIsCountedAndShown) {
  World world({"--renew.interval_ms=50"});
  world.AddSource("math", kGroup, kTasks);
  auto actor = world.OpenActor({.actor = "env-0"});
  PushAll(actor.get(), kGroup * kTasks);
  const client::Usage usage = world.client->usage();
  EXPECT_GT(usage.pushed_bytes, 0u);
  EXPECT_GT(usage.resident_bytes, 0u);
  const absl::Time until = absl::Now() + absl::Seconds(10) * Slowness();
  uint64_t shown = 0;
  while (shown != usage.pushed_bytes && absl::Now() < until) {
    auto actors =
        world.Call<v1::ListActorsResponse>("AdminService/ListActors", v1::ListActorsRequest());
    ASSERT_TRUE(actors.ok()) << actors.status();
    ASSERT_EQ(actors->actors_size(), 1);
    shown = actors->actors(0).usage().pushed_bytes();
    absl::SleepFor(absl::Milliseconds(20));  // poll: the next renewal carries the usage
  }
  EXPECT_EQ(shown, usage.pushed_bytes);
}

}  // namespace
}  // namespace forebay::integration
