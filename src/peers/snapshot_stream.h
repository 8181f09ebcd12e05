// Serves PeerService.Snapshot: checks who sends, and hands chunk after chunk to the receiver that
// the port gives, on a thread of its own, for it may wait for the disk.
//
// Belongs to the thread that polls its stream.
#pragma once

#include "peers/peer_service.h"
#include "server/grpc/rpc.h"

namespace forebay::peers {

// Bytes of one snapshot that wait for its receiver; beyond it the stream is not read on.
inline constexpr size_t kSnapshotQueueBytesMax = size_t{4} << 20;

// The service outlives the server.
server::StreamFactory MakeSnapshotStream(PeerService* service);

}  // namespace forebay::peers
