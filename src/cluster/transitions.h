// Which configuration may follow which. One function, for the replicas and for the operators' tool;
// its table is in docs/replication.md.
//
// Pure functions. What Next gives is valid, and is written by compare-and-swap on the revision that
// it was made from.
#pragma once

#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/configuration.h"

namespace forebay::cluster {

// A replica in sync takes over: the next epoch is its reign. The old primary leaves the set if
// enough stay without it, unless it asked for this itself (`keep_primary`).
struct Promote {
  NodeId by;
  Incarnation incarnation;
  bool keep_primary = false;
};
// The same for one that is in sync under an earlier incarnation, and has cut its log since. The
// caller has seen that no other member has more.
struct PromoteCut {
  NodeId by;
  Incarnation incarnation;
};
// By the primary: members join, having everything, or leave, or come back as another incarnation.
struct ChangeInSync {
  NodeId by;
  std::vector<std::pair<NodeId, Incarnation>> join;
  std::vector<NodeId> leave;
};
// By an operator or placement: a node gets a replica, which begins empty and out of sync.
struct Place {
  NodeId node;
};
// By an operator or placement: a node's replica is to go, when the primary has taken it out of the
// set; or it is to stay after all.
struct Retire {
  NodeId node;
};
struct Stay {
  NodeId node;
};
// By an operator or placement: a node's replica goes. It is out of sync: only the primary knows
// whether the others are what the set says.
struct Displace {
  NodeId node;
};
// By an operator who accepts that what `to` lacks is lost: it alone is in sync from now on.
struct UnsafeFailover {
  NodeId to;
  Incarnation incarnation;
};

using Event =
    std::variant<Promote, PromoteCut, ChangeInSync, Place, Retire, Stay, Displace, UnsafeFailover>;

// The configuration after the event, or FAILED_PRECONDITION with the reason why it must not happen.
absl::StatusOr<Configuration> Next(const Configuration& now, const Event& event);

}  // namespace forebay::cluster
