// Serves PeerService.Messages: checks who opens the stream, joins messages from their pieces, and
// delivers them.
//
// Belongs to the thread that polls its stream.
#pragma once

#include "peers/peer_service.h"
#include "server/grpc/rpc.h"

namespace forebay::peers {

// The service outlives the server.
server::StreamFactory MakeMessageStream(PeerService* service);

}  // namespace forebay::peers
