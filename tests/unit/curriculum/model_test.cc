// Random operations against a model that is slow and plainly right.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tests/unit/curriculum/fixtures.h"

namespace forebay::curriculum {
namespace {

using codec::Order;

// One source as its rules say it: a set of what is pending, counted through at every question.
struct Model {
  struct Task {
    float weight = 1;
    bool quarantined = false;
    uint32_t failures = 0;
    uint64_t drawn_in_epoch = UINT64_MAX;
  };
  codec::SourceSettings settings;
  std::vector<Task> tasks;
  std::set<uint32_t> pending;
  uint64_t epoch = 0;
  uint64_t draws = 0;

  uint64_t Drawable() const {
    return std::count_if(tasks.begin(), tasks.end(), [](const Task& t) { return !t.quarantined; });
  }
  bool HasWeight() const {
    return std::any_of(tasks.begin(), tasks.end(),
                       [](const Task& t) { return !t.quarantined && t.weight > 0; });
  }
  bool ByWeight() const {
    return settings.order == Order::kWeighted || settings.order == Order::kLearnable;
  }
  bool EpochDone() const { return ByWeight() ? draws >= Drawable() : pending.empty(); }
  bool CanDraw() const {
    if (settings.paused || Drawable() == 0) return false;
    if (ByWeight() && !HasWeight()) return false;
    const uint64_t epochs = settings.epochs == 0 ? UINT64_MAX : settings.epochs;
    return epoch < epochs && (!EpochDone() || epoch + 1 < epochs);
  }
  void Add() {
    pending.insert(static_cast<uint32_t>(tasks.size()));
    tasks.emplace_back();
  }
  // Checks that `index` is a draw that the order allows, and takes it.
  void Drew(uint32_t index) {
    if (EpochDone()) {
      ++epoch;
      draws = 0;
      pending.clear();
      for (uint32_t i = 0; i < tasks.size(); ++i) {
        if (!tasks[i].quarantined) pending.insert(i);
      }
    }
    ASSERT_LT(index, tasks.size());
    ASSERT_FALSE(tasks[index].quarantined);
    if (ByWeight()) {
      ASSERT_GT(tasks[index].weight, 0);
    } else {
      ASSERT_TRUE(pending.contains(index));
    }
    if (settings.order == Order::kStatic) {
      ASSERT_EQ(index, *pending.begin());
    }
    pending.erase(index);
    tasks[index].drawn_in_epoch = epoch;
    ++draws;
  }
  bool Quarantine(uint32_t index, bool quarantine) {
    Task& task = tasks[index];
    if (task.quarantined == quarantine) return false;
    task.quarantined = quarantine;
    if (quarantine) {
      pending.erase(index);
    } else {
      if (task.drawn_in_epoch != epoch || task.failures > 0) pending.insert(index);
      task.failures = 0;
    }
    return true;
  }
  bool Fail(uint32_t index, uint32_t max) {
    return ++tasks[index].failures >= max && Quarantine(index, true);
  }
};

class AgainstModel : public ::testing::TestWithParam<uint64_t> {
 protected:
  void Step() {
    const uint64_t kind = prng_.Below(100);
    const uint32_t size = static_cast<uint32_t>(model_.tasks.size());
    const auto index = static_cast<uint32_t>(size == 0 ? 0 : prng_.Below(size));
    const TaskId task = TaskId::Make(kSource, index);
    if (kind < 70 || size == 0) {
      size == 0 || prng_.Below(30) == 0 ? AddSome() : DrawOne();
    } else if (kind < 80) {
      ASSERT_EQ(curriculum_.CountFailure(task, 2), model_.Fail(index, 2));
    } else if (kind < 86) {
      const bool quarantine = prng_.Below(3) != 0;
      const uint64_t hash = MakeTask(index).external_hash;
      const uint64_t changed = model_.Quarantine(index, quarantine) ? 1 : 0;
      ASSERT_EQ(curriculum_.SetQuarantine(kSource, {hash}, quarantine), changed);
    } else if (kind < 88) {
      uint64_t changed = 0;
      for (uint32_t i = 0; i < size; ++i) changed += model_.Quarantine(i, false) ? 1 : 0;
      ASSERT_EQ(curriculum_.RequeueAll(kSource), changed);
    } else if (kind < 93) {
      model_.tasks[index].weight = static_cast<float>(prng_.Below(4));
      ASSERT_TRUE(curriculum_.SetWeight(task, model_.tasks[index].weight).ok());
    } else if (kind < 95) {
      ChangeSettings();
    } else if (kind < 99) {
      curriculum_.GroupFinished(task, {.rollouts = 2, .passes = 2 * prng_.Unit()});
      model_.tasks[index].failures = 0;
    } else {
      const std::string bytes = Bytes(curriculum_);
      codec::Reader reader(bytes);
      ASSERT_TRUE(curriculum_.Restore(reader));
    }
  }

  void AddSome() {
    const uint64_t known = model_.tasks.empty() ? 0 : prng_.Below(2);
    const uint64_t fresh = prng_.Below(40);
    std::vector<PayloadId> unused;
    const auto added = curriculum_.AddTasks(
        kSource, MakeTasks(model_.tasks.size() - known, known + fresh), &unused);
    ASSERT_TRUE(added.ok());
    ASSERT_EQ(added->added, fresh);
    for (uint64_t i = 0; i < fresh; ++i) model_.Add();
  }

  void DrawOne() {
    const bool can_draw = model_.CanDraw();
    ASSERT_EQ(curriculum_.CanDraw(kSource), can_draw);
    const auto task = curriculum_.DrawTask(kSource, prng_);
    ASSERT_EQ(task.has_value(), can_draw);
    if (task) model_.Drew(task->index());
  }

  void ChangeSettings() {
    model_.settings.order = static_cast<Order>(prng_.Below(4));
    model_.settings.paused = prng_.Below(6) == 0;
    model_.settings.epochs =
        prng_.Below(2) == 0 ? 0 : static_cast<uint32_t>(model_.epoch + prng_.Below(3));
    curriculum_.PutSource(kSource, model_.settings);
  }

  Prng prng_{GetParam()};
  Curriculum curriculum_{GetParam()};
  Model model_;
};

TEST_P(AgainstModel, EveryOperationAgrees) {
  curriculum_.PutSource(kSource, model_.settings);
  for (int step = 0; step < 4000; ++step) {
    Step();
    if (HasFatalFailure()) FAIL() << "step " << step;
    const Source& source = *curriculum_.source(kSource);
    ASSERT_EQ(source.tasks().size(), model_.tasks.size());
    ASSERT_EQ(source.pending(), model_.pending.size());
    ASSERT_EQ(source.drawable(), model_.Drawable());
    ASSERT_EQ(source.epoch(), model_.epoch);
    ASSERT_EQ(source.CanDraw(), model_.CanDraw());
  }
  for (uint32_t i = 0; i < model_.tasks.size(); ++i) {
    EXPECT_EQ(curriculum_.Find(kSource, MakeTask(i).external_hash), i);
    EXPECT_EQ(curriculum_.task(TaskId::Make(kSource, i))->failures, model_.tasks[i].failures);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AgainstModel, ::testing::Range<uint64_t>(1, 13));

}  // namespace
}  // namespace forebay::curriculum
