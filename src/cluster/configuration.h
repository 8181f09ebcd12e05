// Who holds the replicas of one machine, and who of them decides: the value of one key at the
// coordinator, changed by compare-and-swap alone (transitions.h).
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"

namespace forebay::cluster {

using NodeId = StrongId<struct NodeTag, uint32_t>;  // of a daemon; 0: none
using Epoch = StrongId<struct EpochTag, uint64_t>;  // of a primary's reign, from 1
// Of a replica's log: another one when the log was lost or cut. Rises.
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;
// Of the key at the coordinator: any change raises it.
using ConfigurationRevision = StrongId<struct ConfigurationRevisionTag, uint64_t>;

inline constexpr size_t kReplicasMax = 16;

struct Configuration {
  Epoch epoch;
  NodeId primary;               // in in_sync, or 0: nobody has reigned yet
  std::vector<NodeId> in_sync;  // ascending; each holds every committed entry
  // Of every replica that is placed, in sync or not; of one in sync, that of the log that counts.
  // 0: not known yet.
  std::map<NodeId, Incarnation> incarnations;
  std::vector<NodeId> leaving;  // ascending; placed, and to go when they are not needed any more
  uint32_t min_in_sync = 1;     // with fewer nothing is committed

  template <class A>
  void Fields(A& a) {
    a(epoch, primary, in_sync, incarnations, leaving, min_in_sync);
  }
  bool operator==(const Configuration&) const = default;

  bool placed(NodeId node) const { return incarnations.contains(node); }
  bool Leaving(NodeId node) const;
  bool InSync(NodeId node) const;
  bool InSync(NodeId node, Incarnation incarnation) const;
  Incarnation incarnation(NodeId node) const;  // 0 if it is not placed
};

// Ok, or which rule the value breaks.
absl::Status Validate(const Configuration& configuration);

// One line for people: "epoch 3, primary 2, in sync 1 2, replicas 1:4 2:1 3:2, at least 2".
std::string Text(const Configuration& configuration);

// The key's value: a byte for the version of the format, then the fields (codec/archive.h).
std::string EncodeConfiguration(const Configuration& configuration);
absl::StatusOr<Configuration> DecodeConfiguration(std::string_view bytes);

}  // namespace forebay::cluster
