// Tasks, settings and an encoded state for the tests of the curriculum.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "codec/archive.h"
#include "curriculum/curriculum.h"

namespace forebay::curriculum {

inline constexpr SourceId kSource{3};

// Task `i` of a data set: its hashes and content follow from its number.
inline NewTask MakeTask(uint64_t i, float weight = 1) {
  return {Mix64(i + 1), HashCombine(i, 77), PayloadId(i + 1), weight};
}

inline std::vector<NewTask> MakeTasks(uint64_t first, uint64_t count) {
  std::vector<NewTask> tasks;
  for (uint64_t i = first; i < first + count; ++i) tasks.push_back(MakeTask(i));
  return tasks;
}

inline codec::SourceSettings Settings(codec::Order order, uint32_t epochs = 0) {
  codec::SourceSettings settings;
  settings.name = "math";
  settings.order = order;
  settings.epochs = epochs;
  return settings;
}

inline Curriculum MakeCurriculum(codec::Order order, uint64_t tasks, uint32_t epochs = 0) {
  Curriculum curriculum(1234);
  curriculum.PutSource(kSource, Settings(order, epochs));
  std::vector<PayloadId> unused;
  FOREBAY_CHECK(curriculum.AddTasks(kSource, MakeTasks(0, tasks), &unused).ok());
  return curriculum;
}

// What DrawTask gives in `count` calls, as indexes; shorter when the source has no more.
inline std::vector<uint32_t> Draw(Curriculum& curriculum, uint64_t count, Prng& prng) {
  std::vector<uint32_t> drawn;
  for (uint64_t i = 0; i < count; ++i) {
    const bool can_draw = curriculum.CanDraw(kSource);
    const auto task = curriculum.DrawTask(kSource, prng);
    FOREBAY_CHECK(can_draw == task.has_value());
    if (!task) break;
    drawn.push_back(task->index());
  }
  return drawn;
}

inline std::string Bytes(const Curriculum& curriculum) {
  std::string bytes;
  codec::Writer writer(&bytes);
  curriculum.Snapshot(writer);
  return bytes;
}

}  // namespace forebay::curriculum
