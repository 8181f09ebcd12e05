// Going back to an earlier step, for trainers and operators.
//
// Thread-safe; answers from within the ledger's loop.
#pragma once

#include "forebay/v1/trainer.pb.h"
#include "server/grpc/typed.h"
#include "server/services.h"

namespace forebay::server {

// Of generation 0: an operator asks.
void Rewind(ServiceContext* context, v1::RewindRequest request,
            TypedResponder<v1::RewindResponse> responder);

}  // namespace forebay::server
