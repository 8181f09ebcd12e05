// One source: settings, tasks, the order in which they are handed out, counters and estimates.
//
// Not thread-safe. Task indexes lie below tasks().size().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/prng.h"
#include "codec/archive.h"
#include "codec/source_settings.h"
#include "curriculum/mixture.h"
#include "curriculum/statistics.h"
#include "curriculum/task_order.h"
#include "curriculum/task_table.h"

namespace forebay::curriculum {

struct AddCount {
  uint64_t added = 0;
  uint64_t known = 0;
};

// What a finished group tells about its task; sums over its baseline set.
struct GroupStats {
  uint32_t rollouts = 0;
  double passes = 0;  // sum of rewards, each clipped to [0, 1]
  uint64_t tokens_sum = 0;
  uint64_t duration_ms_sum = 0;
  uint32_t version = 0;   // number of the newest policy version among them
  bool filtered = false;  // not trained
};

struct SourceCounters {
  uint64_t drawn = 0;  // tasks handed out by DrawTask
  uint64_t groups_finished = 0;
  uint64_t groups_filtered = 0;
  uint64_t rollouts = 0;       // of finished groups
  uint64_t rollouts_lost = 0;  // as told by CountLost
  uint64_t failures = 0;
  uint64_t charged = 0;  // attempts
  template <class A>
  void Fields(A& a) {
    a(drawn, groups_finished, groups_filtered, rollouts, rollouts_lost, failures, charged);
  }
};

class Source {
 public:
  Source(SourceId id, uint64_t run_seed);

  SourceId id() const { return id_; }
  const codec::SourceSettings& settings() const { return settings_; }
  const TaskTable& tasks() const { return tasks_; }
  const SourceCounters& counters() const { return counters_; }
  uint64_t epoch() const { return order_.epoch(); }
  uint32_t drawable() const { return order_.drawable(); }
  uint32_t quarantined() const { return tasks_.size() - order_.drawable(); }
  // Drawable tasks that this epoch has not handed out yet.
  uint32_t pending() const { return order_.pending(); }

  // Estimates. Tokens and duration are 0 before the first measurement.
  double survival() const { return estimates_.survival.share(); }
  double mean_tokens() const { return estimates_.tokens.mean(); }
  double mean_duration_ms() const { return estimates_.duration_ms.mean(); }
  const Estimates& estimates() const { return estimates_; }
  // How long a lease lasts: the mean duration times the settings' factor, within their bounds; the
  // upper bound before the first measurement.
  uint32_t lease_ms() const;

  // See Curriculum for these.
  // O(tasks) if tasks are drawn by other weights from then on.
  void SetSettings(const codec::SourceSettings& settings);
  absl::StatusOr<AddCount> AddTasks(absl::Span<const NewTask> tasks,
                                    std::vector<PayloadId>* unused_contents,
                                    std::optional<uint32_t>* refused = nullptr);
  const Mixture::Place& place() const { return place_; }
  Mixture::Place& place() { return place_; }
  bool CanDraw() const;
  std::optional<uint32_t> Draw(Prng& prng);
  void GroupBegun(uint32_t index);
  void GroupDropped(uint32_t index);
  void GroupFinished(uint32_t index, const GroupStats& stats);
  void CountLost(uint64_t rollouts);
  void CountCharged(uint64_t attempts) { counters_.charged += attempts; }
  bool CountFailure(uint32_t index, uint32_t max_failures);
  void SetEstimates(const Estimates& estimates) { estimates_ = estimates; }
  TaskStatistics statistics(uint32_t index) const;
  void SetStatistics(uint32_t index, const TaskStatistics& statistics);
  void Again(uint32_t index) { order_.Again(index); }
  absl::Status SetWeight(uint32_t index, float weight);
  // True when it changed.
  bool SetQuarantine(uint32_t index, bool quarantine);
  uint64_t RequeueAll();

  void Snapshot(codec::Writer& writer) const;
  bool Restore(codec::Reader& reader);
  size_t memory_bytes() const;

 private:
  bool RestoreTasks(codec::Reader& reader);
  // In the unit of FixedWeight, by the source's order.
  uint32_t DrawWeight(const TaskRecord& task) const;
  void Reweigh(uint32_t index) { order_.SetWeight(index, DrawWeight(tasks_[index])); }

  SourceId id_;
  codec::SourceSettings settings_;
  TaskTable tasks_;
  TaskOrder order_;
  Mixture::Place place_;
  SourceCounters counters_;
  Estimates estimates_;
};

}  // namespace forebay::curriculum
