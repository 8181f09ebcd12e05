// ActorService.Acquire: the hottest unary call, decoded and encoded by hand.
//
// Not thread-safe: called before the server starts. The context outlives the server.
#pragma once

#include "server/grpc/method_table.h"
#include "server/services.h"

namespace forebay::server {

void AddAcquire(ServiceContext* context, MethodTable* methods);

}  // namespace forebay::server
