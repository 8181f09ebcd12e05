// A client of one machine: one operation after another, each asked for again, anywhere, under the
// same number until it is acknowledged.
//
// Not thread-safe.
#pragma once

#include <cstdint>

#include "tests/cluster_simulation/machine.h"
#include "tests/cluster_simulation/node.h"
#include "tests/cluster_simulation/world.h"

namespace forebay::cluster_simulation {

class Client {
 public:
  Client(World* world, uint32_t machine, uint32_t number)
      : world_(*world), machine_(machine), operation_{number, 1} {}

  void Start() {
    began_ms_ = world_.queue.now_ms();
    Ask();
  }
  uint64_t acknowledged() const { return operation_.request - 1; }

 private:
  void Ask();
  void OnReply(const Reply& reply);

  World& world_;
  const uint32_t machine_;
  Operation operation_;
  uint64_t asked_ = 0;     // counts, so that only the last asking is given up
  uint64_t began_ms_ = 0;  // to ask for this operation
  NodeId at_{1};
};

}  // namespace forebay::cluster_simulation
