// Adding tasks: idempotent by id and content, all or nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/unit/curriculum/fixtures.h"

namespace forebay::curriculum {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AddTasks : public ::testing::Test {
 protected:
  AddTasks() { curriculum_.PutSource(kSource, Settings(codec::Order::kStatic)); }

  absl::StatusOr<AddCount> Add(const std::vector<NewTask>& tasks) {
    return curriculum_.AddTasks(kSource, tasks, &unused_);
  }
  // Expects a refusal that leaves everything as it was.
  std::string Refused(const std::vector<NewTask>& tasks, absl::StatusCode code) {
    const std::string before = Bytes(curriculum_);
    const auto unused_before = unused_;
    const auto added = Add(tasks);
    EXPECT_EQ(added.status().code(), code);
    EXPECT_EQ(Bytes(curriculum_), before);
    EXPECT_EQ(unused_, unused_before);
    return std::string(added.status().message());
  }

  Curriculum curriculum_{1};
  std::vector<PayloadId> unused_;
};

TEST_F(AddTasks, GivesIndexesInTheOrderGiven) {
  const auto added = Add(MakeTasks(0, 1000));
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(added->added, 1000u);
  EXPECT_EQ(added->known, 0u);
  for (uint32_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(curriculum_.Find(kSource, MakeTask(i).external_hash), i);
    EXPECT_EQ(curriculum_.task(TaskId::Make(kSource, i))->content, MakeTask(i).content);
  }
  EXPECT_EQ(curriculum_.Find(kSource, MakeTask(1000).external_hash), std::nullopt);
  EXPECT_EQ(curriculum_.Find(SourceId(99), MakeTask(0).external_hash), std::nullopt);
  EXPECT_EQ(curriculum_.task(TaskId::Make(kSource, 1000)), nullptr);
}

TEST_F(AddTasks, CountsWhatIsKnownAndGivesBackItsNewContent) {
  ASSERT_TRUE(Add(MakeTasks(0, 10)).ok());
  std::vector<NewTask> again = MakeTasks(5, 10);  // 5 known, 5 new
  for (NewTask& task : again) task.content = PayloadId(task.content.value + 500);
  const auto added = Add(again);
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(added->added, 5u);
  EXPECT_EQ(added->known, 5u);
  EXPECT_THAT(unused_, ElementsAre(PayloadId(506), PayloadId(507), PayloadId(508), PayloadId(509),
                                   PayloadId(510)));
  EXPECT_EQ(curriculum_.task(TaskId::Make(kSource, 5))->content, PayloadId(6));
}

TEST_F(AddTasks, DoesNotGiveBackTheStoredContentItself) {
  ASSERT_TRUE(Add(MakeTasks(0, 10)).ok());
  ASSERT_TRUE(Add(MakeTasks(0, 10)).ok());
  EXPECT_THAT(unused_, IsEmpty());
}

TEST_F(AddTasks, TakesATaskThatComesTwiceInOneCallOnce) {
  NewTask twin = MakeTask(1);
  twin.content = PayloadId(900);
  const auto added = Add({MakeTask(1), MakeTask(2), twin, MakeTask(3)});
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(added->added, 3u);
  EXPECT_EQ(added->known, 1u);
  EXPECT_THAT(unused_, ElementsAre(PayloadId(900)));
  EXPECT_EQ(curriculum_.Find(kSource, MakeTask(3).external_hash), 2u);
}

TEST_F(AddTasks, RefusesOtherContentUnderAKnownId) {
  ASSERT_TRUE(Add(MakeTasks(0, 10)).ok());
  NewTask other = MakeTask(4);
  other.content_hash ^= 1;
  EXPECT_THAT(Refused({MakeTask(50), other}, absl::StatusCode::kAlreadyExists),
              HasSubstr("tasks[1]"));
  EXPECT_EQ(curriculum_.Find(kSource, MakeTask(50).external_hash), std::nullopt);
}

TEST_F(AddTasks, RefusesTwoContentsUnderOneIdInOneCall) {
  NewTask other = MakeTask(4);
  other.content_hash ^= 1;
  EXPECT_THAT(Refused({MakeTask(4), MakeTask(5), other}, absl::StatusCode::kAlreadyExists),
              HasSubstr("tasks[2]"));
}

TEST_F(AddTasks, RefusesWeightsThatAreNegativeNotANumberOrTooGreat) {
  for (float weight : {-1.0f, std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(), 65536.0f}) {
    EXPECT_THAT(Refused({MakeTask(1), MakeTask(2, weight)}, absl::StatusCode::kInvalidArgument),
                HasSubstr("tasks[1].weight"));
  }
  EXPECT_TRUE(Add({MakeTask(1, 0), MakeTask(2, kTaskWeightMax)}).ok());
}

TEST_F(AddTasks, RefusesAnUnknownSource) {
  const auto added = curriculum_.AddTasks(SourceId(9), MakeTasks(0, 1), &unused_);
  EXPECT_EQ(added.status().code(), absl::StatusCode::kNotFound);
}

TEST_F(AddTasks, FindsEachOfAMillionTasksAndKeepsThemSmall) {
  constexpr uint64_t kTasks = 1'000'000;
  const size_t empty = curriculum_.memory_bytes();
  for (uint64_t first = 0; first < kTasks; first += 10'000) {
    ASSERT_TRUE(Add(MakeTasks(first, 10'000)).ok());
  }
  for (uint64_t i = 0; i < kTasks; ++i) {
    ASSERT_EQ(curriculum_.Find(kSource, MakeTask(i).external_hash), i);
    ASSERT_EQ(curriculum_.Find(kSource, MakeTask(i + kTasks).external_hash), std::nullopt);
  }
  const double bytes = static_cast<double>(curriculum_.memory_bytes() - empty) / kTasks;
  EXPECT_LE(bytes, 96);
  EXPECT_GE(bytes, 64);  // else something is not counted
}

}  // namespace
}  // namespace forebay::curriculum
