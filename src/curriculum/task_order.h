// In which order the tasks of a source are handed out, epoch by epoch: static, shuffled, or a draw
// by weight, which may be given or follow from what is learned (kLearnable).
//
// Knows indexes and weights only. Static and shuffled hand out each drawable task once an epoch:
// tasks that are added within an epoch join it, after those that were there. The shuffle is a
// permutation keyed by seed and epoch, computed and not stored; where many tasks of it are not
// pending (kSkipsMax in a row), the next pending one in order of index is taken instead, so that a
// call is never long. A draw by weight is with replacement; its epoch is as many draws as there are
// drawable tasks. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/prng.h"
#include "codec/archive.h"
#include "codec/source_settings.h"
#include "curriculum/index_set.h"
#include "curriculum/sum_tree.h"

namespace forebay::curriculum {

class TaskOrder {
 public:
  static constexpr uint32_t kSkipsMax = 32;

  explicit TaskOrder(uint64_t seed) : seed_(seed) {}

  // The next index is in; weight in the unit of FixedWeight.
  void Append(uint32_t weight, bool drawable);
  void SetWeight(uint32_t index, uint32_t weight);
  // Of all tasks: O(n).
  template <class WeightOf>
  void SetWeights(WeightOf weight_of) {
    weights_.SetAll(
        [&](uint32_t i) -> uint32_t { return drawable_.Contains(i) ? weight_of(i) : 0; });
  }
  // Takes a task out of circulation, or puts it back: `again` also in an epoch that has handed it
  // out.
  void SetDrawable(uint32_t index, bool drawable, uint32_t weight, bool again);

  // A task in circulation gets a turn in this epoch, also if it has had one.
  void Again(uint32_t index);

  // epochs: 0 is without end. Draw succeeds exactly if CanDraw.
  bool CanDraw(codec::Order order, uint32_t epochs) const;
  // Requires CanDraw(order, epochs).
  uint32_t Draw(codec::Order order, Prng& prng);

  // From 0; rises when a draw needs a new one.
  uint64_t epoch() const { return epoch_; }
  // Tasks that the epoch has not handed out yet.
  uint32_t pending() const { return pending_.count(); }
  uint32_t drawable() const { return drawable_.count(); }
  uint32_t size() const { return drawable_.size(); }
  // The smallest index >= from that is out of circulation, or size().
  uint32_t NextNotDrawable(uint32_t from) const;

  void Snapshot(codec::Writer& writer) const;
  // After Append of every task; false if what was read does not fit them.
  bool Restore(codec::Reader& reader);
  size_t memory_bytes() const;

 private:
  bool EpochDone(codec::Order order) const;
  void BeginEpoch();
  uint32_t DrawShuffled();

  uint64_t seed_;
  IndexSet drawable_;
  IndexSet pending_;  // drawable and not handed out in this epoch
  SumTree weights_;   // 0 for what is not drawable
  uint64_t epoch_ = 0;
  uint64_t draws_ = 0;  // in this epoch
  // The shuffle covers [round_begin_, round_end_); tasks that come later make a round of their own.
  uint32_t round_begin_ = 0;
  uint32_t round_end_ = 0;
  uint32_t position_ = 0;  // in the round
};

// A weight in whole numbers: 16.16 fixed point; positive ones are at least 1. 0 <= weight <=
// kTaskWeightMax.
uint32_t FixedWeight(float weight);

}  // namespace forebay::curriculum
