// grpc.reflection.v1alpha.ServerReflection as a handler on this layer (see rpc_server.h for why):
// lists services, and gives the file descriptors of the messages that are linked in.
//
// Call before the server starts; thread-safe afterwards.
#pragma once

#include "server/grpc/method_table.h"

namespace forebay::server {

void AddReflection(MethodTable* methods);

}  // namespace forebay::server
