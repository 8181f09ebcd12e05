// How many rollouts of a source may be outstanding: in flight, ready, reserved, or in steps whose
// version is not yet published.
//
//   limit = (max_lag + 1) x rollouts per published version / expected survival
//
// of which a source has its share by weight and a shard its part, with max_lag in published
// versions. In whole groups, the last one over the limit: rounding down could leave a step short
// for ever. A step that takes from some sources only is filled by those alone.
//
// A view of state that it does not own; not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "codec/peer_messages.h"
#include "curriculum/curriculum.h"

namespace forebay::shard {

class Admission {
 public:
  // Both outlive it. `train_floor`: of Machine. `expect_all`: of Mutations.
  Admission(const curriculum::Curriculum& curriculum, const codec::VersionState& versions,
            uint32_t train_floor, bool expect_all = false);

  // The limit of each source by id; 0 for those that may begin no group at all.
  void Limits(std::vector<uint64_t>* limits) const;
  // The limit of this source, also while it may begin none: what it would be then.
  uint64_t LimitShown(const curriculum::Source& source) const;

 private:
  bool MayBegin(const curriculum::Source& source) const;
  bool Wanted(const curriculum::Source& source) const;
  // Of what the source shares the budget with.
  double WeightsBeside(const curriculum::Source& source) const;
  uint64_t Limit(const curriculum::Source& source, double weights) const;

  const curriculum::Curriculum& curriculum_;
  const codec::VersionState& versions_;
  uint32_t train_floor_;
  bool expect_all_;
  double all_ = 0;     // weights of the sources that may begin groups
  double wanted_ = 0;  // of those that the waiting step takes from
};

// Whether rollouts of that version are of no use to any step from now on.
bool UselessAt(uint32_t version, uint32_t train_floor, const codec::SourceSettings& settings);

}  // namespace forebay::shard
