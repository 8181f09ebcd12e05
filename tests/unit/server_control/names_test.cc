// Ids and names as clients see them, with several shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/unit/server_control/daemon_client.h"

namespace forebay::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Names : public DaemonTest {
 protected:
  void StartShards(uint32_t shards) {
    node::Config config;
    config.shards = shards;
    Start(config);
    PutSource("math", 2, 40);
    OpenSession();
  }
};

TEST_F(Names, NoIdIsZero) {
  StartShards(1);
  const auto acquired = Acquire(2);
  ASSERT_EQ(acquired.assignments_size(), 2);
  for (const auto& assignment : acquired.assignments()) {
    EXPECT_NE(assignment.attempt_id(), 0u);
    EXPECT_NE(assignment.group_id(), 0u);
    ASSERT_EQ(PushOne(Frame(assignment, 8, assignment.attempt())).accepted(), 1u);
  }
  const auto rollouts =
      Good<v1::ListRolloutsResponse>("AdminService/ListRollouts", v1::ListRolloutsRequest());
  ASSERT_EQ(rollouts.rollouts_size(), 2);
  for (const auto& rollout : rollouts.rollouts()) {
    EXPECT_NE(rollout.rollout_id(), 0u);
    EXPECT_NE(rollout.group_id(), 0u);
    EXPECT_NE(rollout.attempt_id(), 0u);
  }
}

TEST_F(Names, ATaskHasOneIdAndNoOtherHasIt) {
  StartShards(4);
  v1::ListTasksRequest list;
  list.set_source("math");
  list.set_page_size(100);
  std::map<std::string, uint64_t> listed;
  std::set<uint64_t> ids;
  const auto tasks = Good<v1::ListTasksResponse>("AdminService/ListTasks", list);
  for (const auto& task : tasks.tasks()) {
    listed[task.external_id()] = task.task_id();
    ids.insert(task.task_id());
  }
  EXPECT_EQ(listed.size(), 40u);
  EXPECT_EQ(ids.size(), 40u);
  std::set<uint64_t> assigned;
  for (int shard = 0; shard < 4; ++shard) {
    // From one shard each, and another one with each request.
    const auto acquired = Acquire(20);
    ASSERT_EQ(acquired.assignments_size(), 20);
    for (const auto& assignment : acquired.assignments()) {
      EXPECT_EQ(assignment.task_id(), listed.at(assignment.external_id()));
      assigned.insert(assignment.task_id());
    }
  }
  EXPECT_GT(assigned.size(), 30u);  // of several shards
}

TEST_F(Names, ATaskWithOtherContentIsRefusedByTheNamePeopleGaveIt) {
  StartShards(4);
  for (int changed = 0; changed < 8; ++changed) {
    v1::AddTasksRequest add;
    add.set_source("math");
    for (int i = 0; i < 8; ++i) {
      auto* task = add.add_tasks();
      task->set_external_id("task-" + std::to_string(i));
      task->set_payload(i == changed ? "something else" : "what is " + std::to_string(i) + "?");
    }
    const std::string n = std::to_string(changed);
    EXPECT_THAT(Refused<v1::AddTasksResponse>("AdminService/AddTasks", add),
                AllOf(HasSubstr("6 tasks[" + n + "].external_id: 'task-" + n + "'"),
                      HasSubstr("source 'math'"), Not(HasSubstr("hash"))));
  }
}

}  // namespace
}  // namespace forebay::server
