// TrainerService.ReportSequences.
//
// Thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "forebay/v1/trainer.pb.h"
#include "ledger/messages.h"
#include "server/grpc/typed.h"
#include "server/services.h"

namespace forebay::server {

// InvalidArgument for lists that are not parallel.
absl::StatusOr<ledger::ReportSequences> FromWire(const v1::ReportSequencesRequest& request);
void ReportSequences(ServiceContext* context, v1::ReportSequencesRequest request,
                     TypedResponder<v1::ReportSequencesResponse> responder);

}  // namespace forebay::server
