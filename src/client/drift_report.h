// From log-probabilities of a micro-batch's tokens to what is reported of its sequences.
//
// Pure.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "forebay/drift.h"
#include "forebay/micro_batch.h"
#include "forebay/v1/trainer.pb.h"

namespace forebay::client {

// InvalidArgument names the column that is missing, or the rows that do not fit.
absl::StatusOr<DriftReport> MakeDriftReport(const MicroBatch& batch, const TokenLogprobs& logprobs,
                                            uint32_t train_version);
void ToWire(const DriftReport& report, v1::ReportSequencesRequest* out);

}  // namespace forebay::client
