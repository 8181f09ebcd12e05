#include "tests/integration/world.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::integration {
namespace {

constexpr absl::Duration kSettle = absl::Seconds(5);

}  // namespace

OwnRollout::OwnRollout(uint32_t count, uint32_t seed, double reward)
    : tokens(count), mask(count), logprobs(count) {
  std::iota(tokens.begin(), tokens.end(), seed);
  const uint32_t prompt = count / 2;
  for (uint32_t i = 0; i < count; ++i) {
    mask[i] = i >= prompt ? 1 : 0;
    logprobs[i] = -0.25f * static_cast<float>((seed + i) % 17);
  }
  rollout.sequences = {{.tokens = count, .prompt_tokens = prompt, .loss_tokens = count - prompt}};
  rollout.columns = {
      client::MakeColumn<uint32_t>("tokens", tokens),
      client::MakeColumn<uint8_t>("loss_mask", mask),
      client::MakeColumn<float>("logprobs", logprobs),
  };
  rollout.rewards = {{"reward", reward}};
  rollout.duration_ms = 5;
}

std::string Fetch(const client::Step& step) {
  std::string bytes;
  auto reader = step.Read({});
  client::MicroBatch batch;
  auto more = reader->Next(&batch);
  for (; more.ok() && *more; more = reader->Next(&batch)) {
    for (const auto& column : batch.columns) bytes.append(column.bytes);
  }
  EXPECT_TRUE(more.ok()) << more.status();
  return bytes;
}

World::World(std::vector<std::string> flags)
    : daemon(std::move(flags)), client(Connect(daemon.address())), admin(client.get()) {}

void World::AddSource(const std::string& name, uint32_t group_size, int tasks) {
  auto created = admin.PutSource({.name = name,
                                  .group_size = group_size,
                                  .keep_equal_rewards = true,
                                  .max_lag = 4,
                                  // Longer than any test: an expiry would be a change of state.
                                  .lease_min_ms = 500'000,
                                  .lease_max_ms = 600'000});
  FOREBAY_CHECK(created.ok());
  std::vector<client::TaskSpec> specs;
  for (int i = 0; i < tasks; ++i) {
    specs.push_back(
        {.external_id = absl::StrCat("task-", i), .payload = absl::StrCat("{\"n\": ", i, "}")});
  }
  FOREBAY_CHECK(admin.AddTasks(name, specs).ok());
}

std::unique_ptr<client::Actor> World::OpenActor(client::ActorOptions options) {
  auto actor = client::Actor::Open(client.get(), options);
  FOREBAY_CHECK(actor.ok());
  return *std::move(actor);
}

std::string World::Picture() {
  std::string out;
  auto status = Call<v1::GetStatusResponse>("AdminService/GetStatus", v1::GetStatusRequest());
  FOREBAY_CHECK(status.ok());
  for (const char* changing : {"uptime_ms", "resident_bytes", "waits", "reasons", "verdict"}) {
    status->GetReflection()->ClearField(&*status,
                                        status->GetDescriptor()->FindFieldByName(changing));
  }
  absl::StrAppend(&out, status->DebugString());
  auto sources =
      Call<v1::ListSourcesResponse>("AdminService/ListSources", v1::ListSourcesRequest());
  FOREBAY_CHECK(sources.ok());
  absl::StrAppend(&out, sources->DebugString());
  for (const auto& source : sources->sources()) {
    v1::ListTasksRequest request;
    request.set_source(source.settings().name());
    auto tasks = Call<v1::ListTasksResponse>("AdminService/ListTasks", request);
    FOREBAY_CHECK(tasks.ok());
    absl::StrAppend(&out, tasks->DebugString());
  }
  auto rollouts =
      Call<v1::ListRolloutsResponse>("AdminService/ListRollouts", v1::ListRolloutsRequest());
  FOREBAY_CHECK(rollouts.ok());
  absl::StrAppend(&out, rollouts->DebugString());
  auto leases = Call<v1::ListLeasesResponse>("AdminService/ListLeases", v1::ListLeasesRequest());
  FOREBAY_CHECK(leases.ok());
  for (auto& lease : *leases->mutable_leases()) {
    lease.clear_age_ms();
    lease.clear_expires_in_ms();
  }
  absl::StrAppend(&out, leases->DebugString());
  auto steps = Call<v1::ListStepsResponse>("AdminService/ListSteps", v1::ListStepsRequest());
  FOREBAY_CHECK(steps.ok());
  for (auto& step : *steps->mutable_steps()) {
    step.clear_waited_ms();
    step.clear_waiting();
  }
  absl::StrAppend(&out, steps->DebugString());
  return out;
}

::testing::AssertionResult World::Unchanged(const std::string& before) {
  const absl::Time until = absl::Now() + kSettle * Slowness();
  std::string now = Picture();
  while (now != before) {
    if (absl::Now() > until) {
      return ::testing::AssertionFailure() << "the state was\n" << before << "\nand is\n" << now;
    }
    absl::SleepFor(absl::Milliseconds(20));  // poll: what was freed is counted
    now = Picture();
  }
  return ::testing::AssertionSuccess();
}

absl::StatusOr<v1::PushReply> World::PushRaw(const std::string& method,
                                             const v1::PushFrame& frame) {
  auto stream = client->connection()->OpenStream("/forebay.v1.ActorService/" + method);
  const auto bytes = std::make_shared<const std::string>(frame.SerializeAsString());
  const client::Piece piece{*bytes, bytes};
  if (stream->Write({&piece, 1})) stream->WritesDone();
  client::Incoming message;
  v1::PushReply reply;
  const bool answered = stream->Read(&message);
  if (answered) {
    const auto body = message.Whole();
    FOREBAY_CHECK(reply.ParseFromArray(body.data(), static_cast<int>(body.size())));
    while (stream->Read(&message)) {
    }
  }
  const absl::Status status = stream->Finish();
  if (!answered) return status.ok() ? absl::InternalError("no reply") : status;
  return reply;
}

}  // namespace forebay::integration
