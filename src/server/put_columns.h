// TrainerService.PutColumns: per-token results that a trainer writes back for a micro-batch.
//
// Thread-safe. The context outlives the call.
#pragma once

#include "forebay/v1/trainer.pb.h"
#include "server/grpc/typed.h"
#include "server/services.h"

namespace forebay::server {

void PutColumns(ServiceContext* context, v1::PutColumnsRequest request,
                TypedResponder<v1::PutColumnsResponse> responder);

}  // namespace forebay::server
