// The daemon as its clients see it.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "tests/unit/server_control/daemon_client.h"

namespace forebay::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Serving : public DaemonTest {
 protected:
  // Pushes all that is handed out, rewards 0 and 1 in turn.
  int PushAll(const v1::AcquireResponse& acquired, uint32_t tokens = 8) {
    int pushed = 0;
    for (const auto& assignment : acquired.assignments()) {
      pushed += static_cast<int>(PushOne(Frame(assignment, tokens, pushed % 2)).accepted());
    }
    return pushed;
  }
};

TEST_F(Serving, AStepGoesFromTasksToTheNextVersion) {
  Start();
  PutSource("math", 2, 4);
  OpenSession();
  EXPECT_EQ(PushAll(Acquire(4)), 4);
  const uint64_t generation = AttachTrainer();
  const auto step =
      Good<v1::OpenStepResponse>("TrainerService/OpenStep", Step(generation, 1, 2, 10'000));
  ASSERT_EQ(step.state(), v1::STEP_STATE_SEALED) << step.waiting();
  EXPECT_EQ(step.totals().rollouts(), 4u);

  v1::CommitStepRequest commit;
  commit.set_generation(generation);
  commit.set_step(1);
  commit.set_revision(step.revision());
  EXPECT_FALSE(
      Good<v1::CommitStepResponse>("TrainerService/CommitStep", commit).already_committed());
  EXPECT_TRUE(
      Good<v1::CommitStepResponse>("TrainerService/CommitStep", commit).already_committed());
  v1::PublishVersionRequest publish;
  publish.set_generation(generation);
  publish.mutable_announcement()->set_phase(v1::VERSION_PHASE_PUBLISHED);
  publish.mutable_announcement()->mutable_version()->set_number(1);
  publish.mutable_announcement()->set_where("/weights/1");
  Good<v1::PublishVersionResponse>("TrainerService/PublishVersion", publish);

  const auto status = Good<v1::GetStatusResponse>("AdminService/GetStatus", v1::GetStatusRequest());
  EXPECT_EQ(status.verdict(), v1::VERDICT_OK) << status.DebugString();
  EXPECT_EQ(status.published().number(), 1u);
  EXPECT_EQ(status.next_step(), 2u);
  const auto sources =
      Good<v1::ListSourcesResponse>("AdminService/ListSources", v1::ListSourcesRequest());
  EXPECT_EQ(sources.sources(0).trained(), 4u);
  EXPECT_EQ(sources.sources(0).mean_reward(), 0.5);
  EXPECT_THAT(Get("/metrics"),
              AllOf(HasSubstr("200 OK"), HasSubstr("forebay_trained_lag_bucket{le=\"0\"} 4"),
                    HasSubstr("forebay_pushes_total{result=\"accepted\"} 4"),
                    HasSubstr("forebay_steps_total{event=\"committed\"} 1")));
}

TEST_F(Serving, TheSameRequestGetsTheSameAssignments) {
  Start();
  PutSource("math", 2, 4);
  OpenSession();
  const auto first = Acquire(3);
  ASSERT_EQ(first.assignments_size(), 3);
  EXPECT_EQ(first.sources(0).name(), "math");
  --request_id_;
  const auto again = Acquire(3);
  ASSERT_EQ(again.assignments_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(again.assignments(i).attempt_id(), first.assignments(i).attempt_id());
    EXPECT_EQ(again.assignments(i).seed(), first.assignments(i).seed());
  }
}

TEST_F(Serving, AnAcquireThatIsGivenUpTakesNothing) {
  for (const uint64_t shards : {1, 3}) {
    node::Config config;
    config.shards = shards;
    Start(config);
    PutSource("math", 2, 0);
    OpenSession();
    v1::AcquireRequest acquire;
    acquire.set_session(1);
    acquire.set_request_id(++request_id_);
    acquire.set_max(2);
    acquire.set_wait_ms(60'000);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
    v1::AcquireResponse response;
    EXPECT_EQ(Call("ActorService/Acquire", acquire, &response, &context).error_code(),
              grpc::StatusCode::DEADLINE_EXCEEDED);
    const auto waiting = [this] {
      const auto status =
          Good<v1::GetStatusResponse>("AdminService/GetStatus", v1::GetStatusRequest());
      return status.waits_size() > 0;
    };
    Await([&] { return !waiting(); });
    AddTasks("math", 1);
    EXPECT_EQ(Good<v1::ListLeasesResponse>("AdminService/ListLeases", v1::ListLeasesRequest())
                  .leases_size(),
              0);
    Stop();
  }
}

TEST_F(Serving, SeveralShardsAnswerAsOne) {
  node::Config config;
  config.shards = 3;
  Start(config);
  PutSource("math", 2, 30);
  OpenSession();
  std::map<uint64_t, int> shards;
  for (int asked = 0; asked < 30; ++asked) {
    const auto acquired = Acquire(4);
    for (const auto& assignment : acquired.assignments()) ++shards[assignment.attempt_id() >> 56];
    PushAll(acquired);
  }
  EXPECT_EQ(shards.size(), 3u);
  v1::ListTasksRequest list;
  list.set_source("math");
  list.set_page_size(7);
  int seen = 0;
  do {
    const auto page = Good<v1::ListTasksResponse>("AdminService/ListTasks", list);
    seen += page.tasks_size();
    list.set_page_token(page.page_token());
  } while (!list.page_token().empty());
  EXPECT_EQ(seen, 30);
  const auto step =
      Good<v1::OpenStepResponse>("TrainerService/OpenStep", Step(AttachTrainer(), 1, 4, 10'000));
  EXPECT_EQ(step.state(), v1::STEP_STATE_SEALED) << step.waiting();
}

TEST_F(Serving, BadRequestsAreRefusedByFieldValueAndLimit) {
  Start();
  PutSource("math", 2, 1);
  OpenSession();
  v1::AcquireRequest acquire;
  acquire.set_session(77);
  acquire.set_max(1);
  EXPECT_THAT(Refused<v1::AcquireResponse>("ActorService/Acquire", acquire),
              AllOf(StartsWith("5 "), HasSubstr("session")));
  acquire.set_session(1);
  acquire.set_max(0);
  EXPECT_THAT(Refused<v1::AcquireResponse>("ActorService/Acquire", acquire),
              AllOf(StartsWith("3 "), HasSubstr("max")));
  acquire.set_max(1);
  acquire.add_sources("maths");
  EXPECT_THAT(Refused<v1::AcquireResponse>("ActorService/Acquire", acquire),
              AllOf(StartsWith("5 "), HasSubstr("maths")));

  v1::AddTasksRequest add;
  add.set_source("maths");
  EXPECT_THAT(Refused<v1::AddTasksResponse>("AdminService/AddTasks", add), HasSubstr("maths"));
  add.set_source("math");
  auto* task = add.add_tasks();
  task->set_external_id("other");
  for (const double weight : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    task->set_weight(weight);
    EXPECT_THAT(Refused<v1::AddTasksResponse>("AdminService/AddTasks", add),
                HasSubstr("tasks[0].weight"))
        << weight;
  }
  task->clear_weight();
  task->set_external_id("task-0");
  task->set_payload("something else");
  EXPECT_THAT(Refused<v1::AddTasksResponse>("AdminService/AddTasks", add), StartsWith("6 "));

  v1::PutSourceRequest put;
  put.mutable_settings()->set_name("bad");
  put.mutable_settings()->set_weight(-1);
  EXPECT_THAT(Refused<v1::PutSourceResponse>("AdminService/PutSource", put), HasSubstr("weight"));
  put.mutable_settings()->clear_weight();
  for (const char* sampling : {"temperature", "[1]", "{\"temperature\": }"}) {
    put.mutable_settings()->set_sampling_json(sampling);
    EXPECT_THAT(Refused<v1::PutSourceResponse>("AdminService/PutSource", put),
                HasSubstr("sampling_json: is no JSON object"))
        << sampling;
  }
  const auto sources =
      Good<v1::ListSourcesResponse>("AdminService/ListSources", v1::ListSourcesRequest());
  EXPECT_EQ(sources.sources_size(), 1);
  EXPECT_EQ(sources.sources(0).tasks(), 1u);
}

TEST_F(Serving, BadTrainerCallsAreRefused) {
  Start();
  PutSource("math", 2, 4);
  const uint64_t generation = AttachTrainer();
  auto open = Step(generation, 1, 2, 0);
  open.set_wait_ms(60'001);
  EXPECT_THAT(Refused<v1::OpenStepResponse>("TrainerService/OpenStep", open),
              AllOf(HasSubstr("wait_ms"), HasSubstr("60000")));
  EXPECT_THAT(
      Refused<v1::OpenStepResponse>("TrainerService/OpenStep", Step(generation + 5, 1, 2, 0)),
      HasSubstr("generation"));
  EXPECT_EQ(
      Good<v1::OpenStepResponse>("TrainerService/OpenStep", Step(generation, 1, 2, 0)).state(),
      v1::STEP_STATE_OPEN);
  // Another spec for the same step, without replan.
  EXPECT_FALSE(Refused<v1::OpenStepResponse>("TrainerService/OpenStep", Step(generation, 1, 3, 0))
                   .starts_with("0"));
  v1::CommitStepRequest commit;
  commit.set_generation(generation);
  commit.set_step(1);
  commit.set_revision(1);
  EXPECT_FALSE(
      Refused<v1::CommitStepResponse>("TrainerService/CommitStep", commit).starts_with("0"));
  v1::PublishVersionRequest publish;
  publish.set_generation(generation);
  publish.mutable_announcement()->set_phase(v1::VERSION_PHASE_PUBLISHED);
  publish.mutable_announcement()->mutable_version()->set_number(9);
  EXPECT_THAT(Refused<v1::PublishVersionResponse>("TrainerService/PublishVersion", publish),
              HasSubstr("version"));
  publish.mutable_announcement()->mutable_version()->set_policy("other");
  EXPECT_THAT(Refused<v1::PublishVersionResponse>("TrainerService/PublishVersion", publish),
              HasSubstr("policy"));
}

TEST_F(Serving, ABadRolloutIsRefusedByFieldAndTheNextOneIsTaken) {
  Start();
  PutSource("math", 4, 1);
  OpenSession();
  const auto acquired = Acquire(1);
  ASSERT_EQ(acquired.assignments_size(), 1);
  auto frame = Frame(acquired.assignments(0), 8, std::nan(""));
  auto reply = PushOne(frame);
  ASSERT_EQ(reply.outcomes_size(), 1);
  EXPECT_EQ(reply.outcomes(0).result(), v1::PUSH_RESULT_INVALID);
  EXPECT_THAT(reply.outcomes(0).field(), HasSubstr("reward"));
  frame = Frame(acquired.assignments(0), 8, 1);
  frame.mutable_rollouts(0)->mutable_columns(1)->set_name("mask");
  reply = PushOne(frame);
  EXPECT_THAT(reply.outcomes(0).message(), HasSubstr("loss_mask"));
  EXPECT_EQ(PushOne(Frame(acquired.assignments(0), 8, 1)).accepted(), 1u);
  reply = PushOne(Frame(acquired.assignments(0), 8, 1));
  EXPECT_EQ(reply.outcomes(0).result(), v1::PUSH_RESULT_DUPLICATE);
  const auto rollouts =
      Good<v1::ListRolloutsResponse>("AdminService/ListRollouts", v1::ListRolloutsRequest());
  ASSERT_EQ(rollouts.rollouts_size(), 1);
  EXPECT_EQ(rollouts.rollouts(0).external_id(), "task-0");
}

TEST_F(Serving, AnEvaluationRunsToItsEndWhileSomebodyWaitsForIt) {
  Start();
  PutSource("held-out", 2, 3, v1::PURPOSE_EVAL);
  OpenSession();
  v1::StartEvalRequest start;
  start.set_eval_run(5);
  start.set_source("held-out");
  start.set_attempts(2);
  Good<v1::StartEvalResponse>("AdminService/StartEval", start);
  Good<v1::StartEvalResponse>("AdminService/StartEval", start);
  v1::GetEvalRequest get;
  get.set_eval_run(5);
  EXPECT_FALSE(Good<v1::EvalResult>("AdminService/GetEval", get).done());
  get.set_wait_ms(20'000);
  v1::EvalResult result;
  std::thread waiting([&] { result = Good<v1::EvalResult>("AdminService/GetEval", get); });
  EXPECT_EQ(PushAll(Acquire(6)), 6);
  waiting.join();
  EXPECT_TRUE(result.done());
  EXPECT_EQ(result.source(), "held-out");
  EXPECT_EQ(result.rollouts(), 6u);
  EXPECT_DOUBLE_EQ(result.mean_reward(), 0.5);
  EXPECT_EQ(
      Good<v1::ListEvalsResponse>("AdminService/ListEvals", v1::ListEvalsRequest()).evals_size(),
      1);
  get.set_eval_run(6);
  EXPECT_THAT(Refused<v1::EvalResult>("AdminService/GetEval", get), StartsWith("5 "));
}

TEST_F(Serving, QuarantinedTasksShowTheirLastFailure) {
  Start();
  PutSource("math", 2, 1);
  OpenSession();
  for (int round = 0; round < 3; ++round) {
    const auto acquired = Acquire(2);
    v1::FailRequest fail;
    fail.set_session(1);
    fail.set_reason("the sandbox broke");
    for (const auto& assignment : acquired.assignments()) {
      fail.add_attempt_ids(assignment.attempt_id());
      fail.add_tokens(assignment.token());
    }
    Good<v1::FailResponse>("ActorService/Fail", fail);
  }
  v1::ListTasksRequest list;
  list.set_source("math");
  list.set_filter("quarantined");
  const auto tasks = Good<v1::ListTasksResponse>("AdminService/ListTasks", list);
  ASSERT_EQ(tasks.tasks_size(), 1);
  EXPECT_EQ(tasks.tasks(0).last_failure(), "the sandbox broke");
  const auto status = Good<v1::GetStatusResponse>("AdminService/GetStatus", v1::GetStatusRequest());
  EXPECT_EQ(status.verdict(), v1::VERDICT_DEGRADED);
  EXPECT_THAT(status.reasons(0), HasSubstr("quarantined"));
}

TEST_F(Serving, ConfigurationChangesTakeEffectAndDryRunsDoNot) {
  Start();
  v1::SetConfigRequest set;
  (*set.mutable_values())["memory.payload_bytes_max"] = "1GiB";
  set.set_dry_run(true);
  EXPECT_EQ(Good<v1::SetConfigResponse>("AdminService/SetConfig", set).changes_size(), 1);
  const auto limit = [this] {
    return Good<v1::GetStatusResponse>("AdminService/GetStatus", v1::GetStatusRequest())
        .payload_bytes_max();
  };
  EXPECT_EQ(limit(), uint64_t{4} << 30);
  set.set_dry_run(false);
  Good<v1::SetConfigResponse>("AdminService/SetConfig", set);
  EXPECT_EQ(limit(), uint64_t{1} << 30);
}

// Groups that cannot complete for want of memory: the youngest give way, the oldest completes.
TEST_F(Serving, AFullPayloadMemoryDoesNotWedgeAStep) {
  node::Config config;
  config.memory_payload_bytes_max = 1 << 20;
  config.memory_relief_after_ms = 200;
  Start(config);
  PutSource("math", 4, 8);
  OpenSession();
  // Small ones first, so that the daemon believes rollouts to be small and hands out many.
  const auto small = Acquire(4);
  for (const auto& assignment : small.assignments()) PushOne(Frame(assignment, 8, 1));
  const auto acquired = Acquire(16);
  ASSERT_EQ(acquired.assignments_size(), 16);
  const uint64_t generation = AttachTrainer();
  grpc::ClientContext context;
  auto stream = Push(&context);
  std::thread writer([&] {
    // One of each group in turn: none is complete before 13 are in, and 7 fit.
    for (int member = 0; member < 4; ++member) {
      for (int group = 0; group < 4; ++group) {
        stream->Write(
            SerializeBody(Frame(acquired.assignments(group * 4 + member), 26'000, member % 2)));
      }
    }
    stream->WritesDone();
  });
  const auto step =
      Good<v1::OpenStepResponse>("TrainerService/OpenStep", Step(generation, 1, 1, 30'000));
  EXPECT_EQ(step.state(), v1::STEP_STATE_SEALED) << step.waiting();
  // What still waits gets the memory of the step.
  v1::CommitStepRequest commit;
  commit.set_generation(generation);
  commit.set_step(1);
  commit.set_revision(step.revision());
  Good<v1::CommitStepResponse>("TrainerService/CommitStep", commit);
  grpc::ByteBuffer body;
  int replies = 0;
  while (replies < 16 && stream->Read(&body)) ++replies;
  EXPECT_EQ(replies, 16);
  writer.join();
  const auto sources =
      Good<v1::ListSourcesResponse>("AdminService/ListSources", v1::ListSourcesRequest());
  EXPECT_GT(sources.sources(0).dropped().at("budget"), 0u);
  EXPECT_THAT(Get("/metrics"),
              HasSubstr("forebay_waited_seconds_total{who=\"push\",reason=\"memory\"}"));
}

TEST_F(Serving, TokensOpenWhatTheirRolesAllow) {
  char file[] = "/tmp/forebay-tokens-XXXXXX";
  close(mkstemp(file));  // mode 0600
  std::ofstream(file) << "actor actor-token-0123\noperator operator-token-0123\n";
  node::Config config;
  config.auth_tokens_file = file;
  Start(config);
  unlink(file);
  const auto code = [this](const std::string& token) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    v1::GetStatusResponse response;
    return Call("AdminService/GetStatus", v1::GetStatusRequest(), &response, &context).error_code();
  };
  EXPECT_EQ(code(""), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("guess-guess-guess"), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("actor-token-0123"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(code("operator-token-0123"), grpc::StatusCode::OK);
}

TEST_F(Serving, ADrainEndsWaitsAtOnce) {
  Start();
  OpenSession();
  v1::AcquireResponse response;
  std::thread waiting([&] { response = Acquire(1, 60'000); });
  const auto parked = [this] {
    return Good<v1::GetStatusResponse>("AdminService/GetStatus", v1::GetStatusRequest())
               .waits_size() > 0;
  };
  Await(parked);
  daemon_->Drain();
  waiting.join();
  EXPECT_EQ(response.reason(), "draining");
}

TEST_F(Serving, ADrainHandsOutNothingAndAsksForPartials) {
  Start();
  PutSource("math", 2, 4);
  OpenSession();
  const auto acquired = Acquire(2);
  ASSERT_EQ(acquired.assignments_size(), 2);
  EXPECT_THAT(Get("/readyz"), HasSubstr("200 OK"));
  grpc::ClientContext context;
  auto stream = Push(&context);
  stream->Write(SerializeBody(Frame(acquired.assignments(0), 8, 1)));
  grpc::ByteBuffer body;
  ASSERT_TRUE(stream->Read(&body));
  std::thread drain([this] { daemon_->Drain(); });
  // The stream stays until the actor has let go of its lease.
  Await([this] { return Get("/readyz").find("503") != std::string::npos; });
  EXPECT_EQ(Acquire(1).assignments_size(), 0);
  v1::RenewRequest renew;
  renew.set_session(1);
  renew.add_attempt_ids(acquired.assignments(1).attempt_id());
  renew.add_tokens(acquired.assignments(1).token());
  const auto renewed = Good<v1::RenewResponse>("ActorService/Renew", renew);
  ASSERT_EQ(renewed.actions_size(), 1);
  EXPECT_EQ(renewed.actions(0), v1::LEASE_ACTION_SAVE_PARTIAL);
  EXPECT_EQ(renewed.reasons(0), "draining");
  stream->Write(SerializeBody(Frame(acquired.assignments(1), 8, 1)));
  v1::PushReply reply;
  ASSERT_TRUE(stream->Read(&body) && ParseBody(&body, &reply));
  EXPECT_EQ(reply.accepted(), 1u);
  stream->WritesDone();
  drain.join();
}

TEST_F(Serving, ADrainWaitsForAnActorThatIsBetweenTwoRenewals) {
  Start();
  PutSource("math", 2, 4);
  OpenSession();
  const auto acquired = Acquire(1);
  ASSERT_EQ(acquired.assignments_size(), 1);
  std::atomic<bool> drained{false};
  std::thread drain([&] {
    daemon_->Drain();
    drained = true;
  });
  Await([this] { return Get("/readyz").find("503") != std::string::npos; });
  const auto renewal = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (std::chrono::steady_clock::now() < renewal) {
    EXPECT_FALSE(drained);
    // poll: the actor is silent, and its daemon must not end meanwhile
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  v1::RenewRequest renew;
  renew.set_session(1);
  renew.add_attempt_ids(acquired.assignments(0).attempt_id());
  renew.add_tokens(acquired.assignments(0).token());
  v1::RenewResponse renewed;
  EXPECT_TRUE(Call("ActorService/Renew", renew, &renewed).ok());
  EXPECT_THAT(renewed.actions(), ::testing::ElementsAre(v1::LEASE_ACTION_SAVE_PARTIAL));
  v1::ReleaseRequest release;
  release.set_session(1);
  *release.mutable_attempt_ids() = renew.attempt_ids();
  *release.mutable_tokens() = renew.tokens();
  v1::ReleaseResponse released;
  EXPECT_TRUE(Call("ActorService/Release", release, &released).ok());
  drain.join();
}

TEST(Starting, APortThatIsTakenIsNamed) {
  node::Config config;
  config.listen_grpc = "127.0.0.1:0";
  config.listen_unix.clear();
  config.listen_http.clear();
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string taken = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  config.listen_grpc = taken;
  EXPECT_THAT(std::string(Daemon::Start(config, nullptr).status().message()), HasSubstr(taken));
  config.listen_grpc = "127.0.0.1:0";
  config.listen_http = taken;
  EXPECT_THAT(std::string(Daemon::Start(config, nullptr).status().message()),
              AllOf(HasSubstr("listen.http"), HasSubstr(taken)));
  config.listen_http = "0.0.0.0:0";
  EXPECT_THAT(std::string(Daemon::Start(config, nullptr).status().message()),
              HasSubstr("not loopback"));
  close(fd);
}

}  // namespace
}  // namespace forebay::server
