// Streams a snapshot to a peer: pieces are made in the state's loop, and encoded by the transport.
//
// A function without state, for one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "codec/snapshot_parts.h"
#include "node/peer_transport.h"
#include "storage/log_writer.h"

namespace forebay::node {

// Called in the loop that `post` posts to, whose state `parts` are of. `post` runs all that it
// gets. `over` is called in that loop, when the peer has taken the snapshot or not: if it needs one
// still, the replica asks again.
void SendParts(PeerTransport* peers, cluster::NodeId to, std::string_view machine, std::string head,
               std::shared_ptr<codec::Parts> parts, const storage::LogPost& post,
               absl::AnyInvocable<void()> over);

}  // namespace forebay::node
