// What one call may take: answers of a bounded size, memory for a trainer's columns.
#include <gmock/gmock.h>

#include <set>
#include <thread>

#include "tests/unit/server_control/daemon_client.h"

namespace forebay::server {
namespace {

class MemoryEdges : public DaemonTest {
 protected:
  // A metric without labels.
  double Metric(const std::string& name) {
    const std::string page = Get("/metrics");
    const size_t at = page.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(page.substr(at + name.size() + 2));
  }
  ::testing::AssertionResult Becomes(const std::string& metric, double value) {
    for (int i = 0; i < 1000; ++i) {
      if (Metric(metric) == value) return ::testing::AssertionSuccess();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // poll: the call arrives
    }
    return ::testing::AssertionFailure() << metric << " is " << Metric(metric);
  }
};

TEST_F(MemoryEdges, AnAnswerHoldsNoMoreAssignmentsThanItMayHaveBytes) {
  Start();
  PutSource("large", 100, 0);
  v1::AddTasksRequest add;
  add.set_source("large");
  add.add_tasks()->set_external_id("one");
  add.mutable_tasks(0)->set_payload(std::string(size_t{1} << 20, 'p'));
  Good<v1::AddTasksResponse>("AdminService/AddTasks", add);
  OpenSession();
  int handed_out = 0;
  for (int calls = 0; handed_out < 100 && calls < 5; ++calls) {
    const auto acquired = Acquire(4096);
    EXPECT_LE(acquired.ByteSizeLong(), size_t{64} << 20);
    EXPECT_GT(acquired.assignments_size(), 0) << acquired.reason();
    handed_out += acquired.assignments_size();
  }
  EXPECT_GE(handed_out, 100);
}

TEST_F(MemoryEdges, TasksThatAreKnownTakeNoMemoryAgain) {
  node::Config config;
  config.shards = 2;
  config.memory_task_bytes_max = uint64_t{2} << 20;
  Start(config);
  PutSource("large", 2, 0);
  v1::AddTasksRequest add;
  add.set_source("large");
  for (int i = 0; i < 3; ++i) {
    add.add_tasks()->set_external_id("task-" + std::to_string(i));
    add.mutable_tasks(i)->set_payload(std::string(400'000, 'p'));
  }
  EXPECT_EQ(Good<v1::AddTasksResponse>("AdminService/AddTasks", add).added(), 3u);
  const double bytes = Metric("forebay_task_bytes");
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Good<v1::AddTasksResponse>("AdminService/AddTasks", add).known(), 3u);
  }
  EXPECT_EQ(Metric("forebay_task_bytes"), bytes);
  // What is new among them is stored.
  add.add_tasks()->set_external_id("small");
  const auto more = Good<v1::AddTasksResponse>("AdminService/AddTasks", add);
  EXPECT_EQ(more.added(), 1u);
  EXPECT_EQ(more.known(), 3u);
  OpenSession();
  std::set<std::string> ids;
  const auto acquired = Acquire(8);
  for (const auto& assignment : acquired.assignments()) {
    ids.insert(assignment.external_id());
    EXPECT_EQ(assignment.payload().size(), assignment.external_id() == "small" ? 0u : 400'000u);
  }
  EXPECT_EQ(ids.size(), 4u);
}

// A step is sealed, and a push waits for memory that only the step's end would free.
class ColumnsUnderPressure : public MemoryEdges {
 protected:
  static constexpr uint32_t kTokens = 100;
  static constexpr uint32_t kLarge = 600'000;  // tokens: three megabytes

  void StartFull() {
    node::Config config;
    config.memory_payload_bytes_max = uint64_t{6} << 20;
    config.memory_completion_reserve_bytes = uint64_t{2} << 20;
    config.memory_relief_after_ms = 3'600'000;
    Start(config);
    PutSource("math", 2, 8);
    OpenSession();
    const auto acquired = Acquire(4);
    ASSERT_EQ(acquired.assignments_size(), 4);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(PushOne(Frame(acquired.assignments(i), kTokens, i)).accepted(), 1u);
    }
    generation_ = AttachTrainer();
    step_ = Good<v1::OpenStepResponse>("TrainerService/OpenStep", Step(generation_, 1, 1, 10'000));
    ASSERT_EQ(step_.state(), v1::STEP_STATE_SEALED) << step_.waiting();
    EXPECT_EQ(PushOne(Frame(acquired.assignments(2), kLarge, 0)).accepted(), 1u);
    waiting_ = Push(&context_);
    ASSERT_TRUE(waiting_->Write(SerializeBody(Frame(acquired.assignments(3), kLarge, 1))));
    ASSERT_TRUE(Becomes("forebay_payload_waiters", 1));
  }
  // `values` numbers for each token of the only micro-batch.
  v1::PutColumnsRequest Columns(const std::string& name, uint32_t values) const {
    v1::PutColumnsRequest put;
    put.set_generation(generation_);
    put.set_step(1);
    put.set_revision(step_.revision());
    auto* column = put.add_columns();
    column->set_name(name);
    column->set_dtype(v1::DTYPE_F32);
    column->add_inner(values);
    column->set_bytes(uint64_t{4} * values * 2 * kTokens);
    put.set_data(std::string(column->bytes(), 'c'));
    return put;
  }

  uint64_t generation_ = 0;
  v1::OpenStepResponse step_;
  grpc::ClientContext context_;
  std::unique_ptr<PushStream> waiting_;
};

TEST_F(ColumnsUnderPressure, ATrainersColumnsDoNotQueueBehindPushes) {
  StartFull();
  Good<v1::PutColumnsResponse>("TrainerService/PutColumns", Columns("hidden", 1'000));
  EXPECT_EQ(Metric("forebay_payload_waiters"), 1) << "the push went first";
}

TEST_F(ColumnsUnderPressure, AWriterThatIsGoneWaitsNoMore) {
  StartFull();
  grpc::ClientContext context;
  v1::PutColumnsResponse response;
  grpc::Status status;
  // More than the reserve has.
  std::thread writer([&] {
    status = Call("TrainerService/PutColumns", Columns("more_hidden", 5'000), &response, &context);
  });
  EXPECT_TRUE(Becomes("forebay_payload_waiters", 2));
  const double used = Metric("forebay_payload_bytes");
  context.TryCancel();
  writer.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Becomes("forebay_payload_waiters", 1));
  EXPECT_EQ(Metric("forebay_payload_bytes"), used);
}

}  // namespace
}  // namespace forebay::server
