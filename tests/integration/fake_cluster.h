// A cluster for clients to follow: nodes that tell who leads and refuse what they do not serve, as
// real ones do, before one real daemon that holds the state, so that a failover loses nothing and
// shows all that is doubled.
//
// One thread. A node's wire can be cut (it is dead) or lose all bytes (it is frozen, or cut off).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/daemon.h"

namespace forebay::integration {

class FakeNode;

class FakeCluster {
 public:
  // `backend`: the address of the daemon. Nobody leads yet.
  explicit FakeCluster(const std::string& backend, size_t nodes = 3);
  ~FakeCluster();

  // "a,b,c", in the order of the nodes.
  std::string seeds() const;
  // Of one node, from 1.
  const std::string& address(size_t node) const;
  // A new reign, of which all nodes that are neither dead nor frozen hear; 0: of nobody.
  void Lead(size_t node);
  // What a single node says and does, whatever the others hear.
  void Tell(size_t node, size_t leader, uint64_t epoch);
  // As a daemon without a cluster.
  void BeAlone(size_t node);
  void Kill(size_t node);
  void Freeze(size_t node);
  // Back, with what is known by then.
  void Revive(size_t node);
  uint64_t epoch() const { return epoch_; }
  // Calls of other services that the node has let in, and those that it has refused.
  uint64_t served(size_t node) const;
  uint64_t refused(size_t node) const;
  // Watches of the node that run.
  uint64_t watches(size_t node) const;

 private:
  std::vector<std::unique_ptr<FakeNode>> nodes_;
  size_t leader_ = 0;
  uint64_t epoch_ = 1;
};

}  // namespace forebay::integration
