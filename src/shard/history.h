// What a rewind undoes in a shard: how much was known of each task and source when a step was
// committed, and what steps trained whose groups are closed by now.
//
// Replicated state; not thread-safe. Of every group that finishes, the task's statistics before it
// are written down, one after another; going back puts them in again, the newest first. That costs
// 48 bytes a group, and at most kTaughtMax of them: from longer ago, statistics stay as they are.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "codec/snapshot_queue.h"
#include "curriculum/curriculum.h"

namespace forebay::shard {

// Of one source in committed steps.
struct TrainedSum {
  SourceId source;
  uint64_t groups = 0;
  uint64_t rollouts = 0;
  uint64_t tokens = 0;
  void Add(const TrainedSum& other) {
    groups += other.groups;
    rollouts += other.rollouts;
    tokens += other.tokens;
  }
  template <class A>
  void Fields(A& a) {
    a(source, groups, rollouts, tokens);
  }
};

class History {
 public:
  History();

  // A step was committed. One that is no newer than the newest is passed over.
  void Begin(StepId step, const curriculum::Curriculum& curriculum);
  // The task's group is about to be counted.
  void Note(TaskId task, const curriculum::Curriculum& curriculum);
  // The step trained this, and its groups are closed.
  void AddTrained(StepId step, const TrainedSum& sum);
  // No rewind goes back before this step any more.
  void Cover(StepId step);

  struct Undone {
    std::vector<TaskId> tasks;  // whose groups count no more, by rising id, each once
    std::vector<TrainedSum> trained;
  };
  // Puts statistics back to what they were when `step` was committed, or as far as they are known.
  Undone GoBack(StepId step, curriculum::Curriculum* curriculum);

  // Safe on any content; "" if all of it can be used.
  const char* Check(const curriculum::Curriculum& curriculum) const;
  uint64_t memory_bytes() const;

  void Snapshot(codec::Writer& writer) const;
  // What it holds is Check's to look at.
  bool Restore(codec::Reader& reader);

 private:
  struct Taught {
    TaskId task;
    curriculum::TaskStatistics before;
    template <class A>
    void Fields(A& a) {
      a(task, before);
    }
  };
  // From one committed step to the next.
  struct Interval {
    StepId since;
    uint64_t begin = 0;                            // count of all Taught before it
    std::vector<curriculum::Estimates> estimates;  // at its begin, by source; those after are new
    std::vector<TrainedSum> trained;               // by the steps committed after its begin
    template <class A>
    void Fields(A& a) {
      a(since, begin, estimates, trained);
    }
  };

  // Makes the second interval a part of the first.
  void Merge();

  std::deque<Interval> intervals_;  // never empty
  codec::SnapshotQueue<Taught, 1024> taught_;
  uint64_t forgotten_ = 0;  // before the first of taught_
};

}  // namespace forebay::shard
