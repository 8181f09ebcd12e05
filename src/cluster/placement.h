// Where replicas lie, and what the loss of nodes would mean.
//
// Pure functions. The plan is made from the configurations alone, a step at a time: whoever follows
// it makes the compare-and-swaps, and asks again when they have had their effect.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "cluster/configuration.h"
#include "cluster/transitions.h"

namespace forebay::cluster {

struct Move {
  uint32_t machine = 0;  // its place in the list
  Event event;           // Next grants it
};

// What to do next so that each machine has `replicas` of them on `available` nodes, no two on one,
// and the nodes have equally many, give or take one. A replica leaves only when enough others are
// in sync, and nothing moves for balance while anything else is to be done. `available`: those that
// are up and are not drained. At most one move for a machine; none when all is as it should be, or
// as good as it can be.
std::vector<Move> PlanPlacement(const std::vector<Configuration>& machines,
                                const std::set<NodeId>& available, uint32_t replicas);

// So many more nodes of those that are up may be lost, whichever they are, and the machine goes on
// with all that was acknowledged; -1: it cannot go on now. Those that go together count as if they
// went one after another while there is time to take them out of the set.
int FailuresTolerated(const Configuration& configuration, const std::set<NodeId>& up);

}  // namespace forebay::cluster
