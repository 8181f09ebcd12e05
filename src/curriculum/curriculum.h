// Which task comes next: the sources of a shard, their mixture, and what is known about each task.
//
// Replicated state: equal calls give equal states and answers on every replica. Not thread-safe. A
// SourceId or TaskId that a call takes names a source or task that exists, where the call does not
// say otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/prng.h"
#include "codec/archive.h"
#include "codec/source_settings.h"
#include "curriculum/mixture.h"
#include "curriculum/source.h"

namespace forebay::curriculum {

class Curriculum {
 public:
  // Sources get their order from the run's seed.
  explicit Curriculum(uint64_t run_seed) : run_seed_(run_seed) {}

  // Creates or changes a source; everything takes effect at once.
  void PutSource(SourceId id, const codec::SourceSettings& settings);
  // nullptr: there is none.
  const Source* source(SourceId id) const {
    return id.value < by_id_.size() ? by_id_[id.value] : nullptr;
  }
  // All of them, by id.
  absl::Span<const std::unique_ptr<Source>> sources() const { return sources_; }
  const Source* FindByName(std::string_view name) const;
  // nullptr: there is none.
  const TaskRecord* task(TaskId id) const {
    const Source* const source = this->source(id.source());
    if (source == nullptr || id.index() >= source->tasks().size()) return nullptr;
    return &source->tasks()[id.index()];
  }
  std::optional<uint32_t> Find(SourceId id, uint64_t external_hash) const;

  // All or nothing. A task with known external and content hash is counted as known; a content of
  // it other than the stored one is appended to `unused_contents`. NotFound: no such source.
  // AlreadyExists: known external hash with other content. InvalidArgument: a weight out of [0,
  // kTaskWeightMax]. ResourceExhausted: too many tasks. Nothing changes with an error; `refused`
  // is then the position in `tasks` that it is about, if it is about one.
  absl::StatusOr<AddCount> AddTasks(SourceId id, absl::Span<const NewTask> tasks,
                                    std::vector<PayloadId>* unused_contents,
                                    std::optional<uint32_t>* refused = nullptr);

  // Which source gets the next group, of those with eligible[id] != 0 (ids past the end are not):
  // one that is behind its minimum share, else by weight. Never one that cannot draw, nor one for
  // evaluation. Changes nothing: Charge does.
  std::optional<SourceId> ChooseSource(absl::Span<const uint8_t> eligible) const;
  // The source was given so many attempts.
  void Charge(SourceId id, uint64_t attempts);

  // Exactly if DrawTask succeeds: not paused, epochs left, a task in circulation (with weight, if
  // drawn by weight).
  bool CanDraw(SourceId id) const;
  // The next task by the source's order; O(log n).
  std::optional<TaskId> DrawTask(SourceId id, Prng& prng);

  void GroupBegun(TaskId id);
  // A begun group ends without a result.
  void GroupDropped(TaskId id);
  // A begun group ends with one. Forgets the task's failures. Its rollouts count as lost in
  // survival if it was filtered, else as kept.
  void GroupFinished(TaskId id, const GroupStats& stats);
  // Rollouts that failed or came late, or were dropped after their group had finished.
  void CountLost(SourceId id, uint64_t rollouts);
  // True when this failure quarantines the task: its max_failures-th since its last finished group.
  // max_failures 0: never.
  bool CountFailure(TaskId id, uint32_t max_failures);
  // What finished groups have taught, to be put back by a rewind.
  TaskStatistics StatisticsOf(TaskId id) const;
  void SetStatistics(TaskId id, const TaskStatistics& statistics);
  void SetEstimates(SourceId id, const Estimates& estimates);
  // The task's last turn did not count: it gets one more in this epoch, if it is in circulation.
  void Again(TaskId id);
  // InvalidArgument: weight out of [0, kTaskWeightMax].
  absl::Status SetWeight(TaskId id, float weight);

  // Takes tasks out of circulation, or puts them back with their failures forgotten. Returns how
  // many changed; unknown hashes are skipped.
  uint64_t SetQuarantine(SourceId id, absl::Span<const uint64_t> external_hashes, bool quarantine);
  // Puts all quarantined tasks back.
  uint64_t RequeueAll(SourceId id);

  void Snapshot(codec::Writer& writer) const;
  // False, with nothing changed, if what is read is not a snapshot. The run's seed comes from it.
  bool Restore(codec::Reader& reader);
  size_t memory_bytes() const;

 private:
  Source& Get(SourceId id);
  Source& Get(TaskId id);

  uint64_t run_seed_;
  Mixture mixture_;
  std::vector<std::unique_ptr<Source>> sources_;  // by id
  std::vector<Source*> by_id_;                    // index: id
};

}  // namespace forebay::curriculum
