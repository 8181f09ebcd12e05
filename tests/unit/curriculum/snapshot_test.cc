// A snapshot holds everything, and nothing corrupt is taken from one.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/curriculum/fixtures.h"

namespace forebay::curriculum {
namespace {

using codec::Order;

bool Restored(std::string_view bytes, Curriculum* curriculum) {
  codec::Reader reader(bytes);
  return curriculum->Restore(reader) && reader.Done();
}

// A source of each order, each with a history.
Curriculum Used(uint64_t tasks) {
  Curriculum curriculum(9);
  std::vector<PayloadId> unused;
  Prng prng(3);
  for (uint16_t id = 0; id < 4; ++id) {
    codec::SourceSettings settings = Settings(static_cast<Order>(id), id);
    settings.weight = 1 + id;
    settings.minimum_share = id == 2 ? 0.4 : 0;
    const SourceId source(id * 2);
    curriculum.PutSource(source, settings);
    FOREBAY_CHECK(curriculum.AddTasks(source, MakeTasks(0, tasks), &unused).ok());
    for (uint64_t i = 0; i < tasks / 2; ++i) {
      const TaskId task = *curriculum.DrawTask(source, prng);
      curriculum.Charge(source, 4);
      curriculum.GroupBegun(task);
      if (i % 3 == 0) curriculum.GroupFinished(task, {.rollouts = 4, .passes = 2.5});
      if (i % 7 == 0) curriculum.CountFailure(task, 1);
    }
    FOREBAY_CHECK(curriculum.AddTasks(source, MakeTasks(tasks, 3), &unused).ok());
  }
  return curriculum;
}

// What happens next, as text.
std::string Continued(Curriculum& curriculum, int steps) {
  std::string text;
  Prng prng(8);
  const std::vector<uint8_t> eligible(8, 1);
  std::vector<PayloadId> unused;
  for (int i = 0; i < steps; ++i) {
    const auto source = curriculum.ChooseSource(eligible);
    if (!source) break;
    const TaskId task = *curriculum.DrawTask(*source, prng);
    text += std::to_string(task.value) + " ";
    curriculum.Charge(*source, 1 + prng.Below(8));
    if (i % 50 == 0) curriculum.CountFailure(task, 1);
    if (i % 500 == 0) curriculum.RequeueAll(*source);
    if (i == 1000) {
      const auto added = curriculum.AddTasks(*source, MakeTasks(0, 2000), &unused);
      text += added.ok() ? std::to_string(added->known) : "refused";
    }
  }
  return text;
}

TEST(Snapshot, RestoresToTheSameBytesAndTheSameFuture) {
  Curriculum original = Used(1500);
  const std::string bytes = Bytes(original);
  Curriculum copy(0);
  ASSERT_TRUE(Restored(bytes, &copy));
  EXPECT_EQ(Bytes(copy), bytes);
  for (uint16_t id : {0, 2, 4}) {
    EXPECT_EQ(copy.Find(SourceId(id), MakeTask(700).external_hash), 700u);
    EXPECT_EQ(copy.source(SourceId(id))->quarantined(),
              original.source(SourceId(id))->quarantined());
  }
  const std::string future = Continued(original, 3000);
  EXPECT_GT(future.size(), 10'000u);
  EXPECT_EQ(Continued(copy, 3000), future);
  EXPECT_EQ(Bytes(copy), Bytes(original));
}

TEST(Snapshot, OfNothingRestores) {
  Curriculum copy(5);
  ASSERT_TRUE(Restored(Bytes(Curriculum(7)), &copy));
  EXPECT_EQ(Bytes(copy), Bytes(Curriculum(7)));
}

TEST(Snapshot, CutAnywhereIsRefusedAndChangesNothing) {
  const std::string bytes = Bytes(Used(20));
  Curriculum target = Used(5);
  const std::string before = Bytes(target);
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_FALSE(Restored(std::string_view(bytes).substr(0, size), &target)) << size;
  }
  EXPECT_EQ(Bytes(target), before);
}

// A changed byte may still be a state; then it is one that writes itself down again and can be
// used.
TEST(Snapshot, WithAnyByteChangedIsRefusedOrUsable) {
  const std::string bytes = Bytes(Used(20));
  int refused = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (uint8_t change : {0x01, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ change);
      Curriculum target(1);
      if (!Restored(changed, &target)) {
        ++refused;
        continue;
      }
      ASSERT_EQ(Bytes(target), changed) << at;
      Continued(target, 60);
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(Snapshot, WithOneTaskTwiceIsRefused) {
  Curriculum curriculum = MakeCurriculum(Order::kStatic, 2);
  std::string bytes = Bytes(curriculum);
  const uint64_t first = MakeTask(0).external_hash;
  const uint64_t second = MakeTask(1).external_hash;
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&second), 8));
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 8, reinterpret_cast<const char*>(&first), 8);
  EXPECT_FALSE(Restored(bytes, &curriculum));
}

}  // namespace
}  // namespace forebay::curriculum
