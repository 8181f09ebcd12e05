// ActorService.Acquire: the hottest unary call, decoded and encoded by hand.
#pragma once

#include "server/grpc/method_table.h"
#include "server/services.h"

namespace forebay::server {

void AddAcquire(ServiceContext* context, MethodTable* methods);

}  // namespace forebay::server
