#include "bench/load/steady.h"

#include <absl/strings/str_cat.h>

#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "forebay/admin.h"

namespace forebay::bench {
namespace {

constexpr char kSource[] = "steady";
constexpr uint32_t kGroupSize = 2;
constexpr uint32_t kSlots = 64;
constexpr int kStepGroups = 2;

int64_t NowNs() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

}  // namespace

Steady::Steady(const SteadyOptions& options)
    : options_(options),
      tokens_(options.tokens),
      mask_(options.tokens),
      logprobs_(options.tokens, -1.0f) {
  std::iota(tokens_.begin(), tokens_.end(), 1);
  std::fill(mask_.begin() + options.tokens / 2, mask_.end(), 1);
}

absl::StatusOr<std::unique_ptr<Steady>> Steady::Open(const SteadyOptions& options) {
  if (options.tokens < 2 || options.tasks < kStepGroups) {
    return absl::InvalidArgumentError("a rollout has 2 tokens at least, and the source 2 tasks");
  }
  std::unique_ptr<Steady> steady(new Steady(options));
  if (absl::Status status = steady->Prepare(); !status.ok()) return status;
  return steady;
}

client::Rollout Steady::RolloutOf(double reward) const {
  const uint32_t prompt = options_.tokens / 2;
  client::Rollout rollout;
  rollout.sequences = {{.tokens = options_.tokens,
                        .prompt_tokens = prompt,
                        .loss_tokens = options_.tokens - prompt}};
  rollout.columns = {client::MakeColumn<uint32_t>("tokens", tokens_),
                     client::MakeColumn<uint8_t>("loss_mask", mask_),
                     client::MakeColumn<float>("logprobs", logprobs_)};
  rollout.rewards = {{"reward", reward}};
  rollout.duration_ms = 1;
  return rollout;
}

absl::Status Steady::Prepare() {
  auto client = client::Client::Connect({.address = options_.target,
                                         .call_timeout = options_.timeout,
                                         .long_timeout = options_.timeout});
  if (!client.ok()) return client.status();
  client_ = *std::move(client);
  client::Admin admin(client_.get());
  auto put = admin.PutSource(
      {.name = kSource, .group_size = kGroupSize, .max_lag = 1'000'000, .max_failures = 1'000'000});
  if (!put.ok()) return put.status();
  std::vector<client::TaskSpec> tasks;
  for (uint32_t i = 0; i < options_.tasks; ++i) {
    tasks.push_back({.external_id = absl::StrCat("task-", i), .payload = "a task"});
  }
  if (auto added = admin.AddTasks(kSource, tasks); !added.ok()) return added.status();
  auto actor = client::Actor::Open(client_.get(),
                                   {.actor = "steady", .sources = {kSource}, .slots = kSlots});
  if (!actor.ok()) return actor.status();
  actor_ = *std::move(actor);
  auto trainer = client::Trainer::Attach(client_.get(), {.trainer = "steady"});
  if (!trainer.ok()) return trainer.status();
  trainer_ = *std::move(trainer);

  for (int i = 0; i < kStepGroups * static_cast<int>(kGroupSize); ++i) {
    auto assignment = actor_->Next();
    if (!assignment.ok()) return assignment.status();
    auto receipt = assignment->Push(RolloutOf(assignment->info().attempt));
    if (!receipt.ok()) return receipt.status();
  }
  auto step = trainer_->OpenStep(
      trainer_->next_step(), {.groups = kStepGroups,
                              .token_budget = uint64_t{options_.tokens} * kStepGroups * kGroupSize,
                              .sources = {kSource}});
  if (!step.ok()) return step.status();
  step_ = *std::move(step);
  return FetchOnce();
}

absl::Status Steady::FetchOnce() {
  auto reader = step_->Read({});
  client::MicroBatch batch;
  auto more = reader->Next(&batch);
  if (!more.ok()) return more.status();
  return *more ? absl::OkStatus() : absl::InternalError("the step has no micro-batch");
}

void Steady::End(absl::Status why) {
  {
    MutexLock lock(&mutex_);
    ended_.Update(why);
  }
  stop_.Notify();
}

void Steady::Stop() { End(absl::OkStatus()); }

// All rollouts have the same reward: their groups are filtered and their bytes freed. A push is not
// waited for, so that it is not the push that the next assignment waits for. Acquire and not Next,
// which takes several at once and would hide how long there are none.
void Steady::Act(const Told& told) {
  const client::Rollout rollout = RolloutOf(1);
  while (!stop_.WaitFor(options_.pause)) {
    if (actor_->leases() >= kSlots) continue;
    auto acquired = actor_->Acquire(1, {.timeout = options_.timeout});
    if (!acquired.ok()) return End(acquired.status());
    if (acquired->assignments.empty()) {
      return End(absl::DeadlineExceededError(absl::StrCat("no assignment: ", acquired->reason)));
    }
    told("assignment", NowNs());
    acquired->assignments[0].PushAsync(
        rollout, [this](const absl::StatusOr<client::PushReceipt>& receipt) {
          if (!receipt.ok()) return End(receipt.status());
          if (!receipt->in()) End(absl::InternalError(absl::StrCat("a push: ", receipt->message)));
        });
  }
}

void Steady::Fetch(const Told& told) {
  while (!stop_.WaitFor(options_.pause)) {
    if (absl::Status status = FetchOnce(); !status.ok()) return End(std::move(status));
    told("fetch", NowNs());
  }
}

absl::Status Steady::Run(const Told& told) {
  std::thread fetches([&] { Fetch(told); });
  Act(told);
  fetches.join();
  MutexLock lock(&mutex_);
  return ended_;
}

}  // namespace forebay::bench
