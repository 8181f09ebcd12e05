// How replicas on different nodes reach each other: the seam between the replicas of this node and
// the wire.
//
// A message may be lost, repeated, late and out of order; what arrives is what was sent.
// Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "cluster/configuration.h"

namespace forebay::node {

// Takes one snapshot that a peer sends. Called by one thread at a time, which may block for the
// disk. Destroyed without End, it was broken off.
class SnapshotReceiver {
 public:
  virtual ~SnapshotReceiver() = default;
  // False: it is not wanted any more.
  virtual bool Chunk(std::string_view chunk) = 0;
  // All of it is there. Ok once it is taken, else why not.
  virtual absl::Status End() = 0;
};

// Where a transport delivers to. Called on the transport's threads, several at once; messages must
// not block.
class PeerPort {
 public:
  virtual ~PeerPort() = default;
  // `machine`: "ledger", "shard-0", ...; one that is not known here is dropped.
  virtual void OnMessage(std::string_view machine, std::string_view bytes) = 0;
  // A peer offers a snapshot; `head` is what it said of it. Null: not wanted.
  virtual std::unique_ptr<SnapshotReceiver> OnSnapshot(std::string_view machine,
                                                       std::string_view head) = 0;
};

class PeerTransport {
 public:
  virtual ~PeerTransport() = default;
  // Never blocks. Dropped when the node is not known or not reachable, or when too much waits for
  // it.
  virtual void Send(cluster::NodeId to, std::string_view machine, std::string bytes) = 0;
  // `next`: the next piece, empty at the end; called on threads of the transport, one at a time, as
  // fast as the peer takes them. `done` is called once, when the peer has taken all of it, or not.
  virtual void SendSnapshot(cluster::NodeId to, std::string_view machine, std::string head,
                            std::function<std::string()> next,
                            absl::AnyInvocable<void(absl::Status)> done) = 0;
};

}  // namespace forebay::node
