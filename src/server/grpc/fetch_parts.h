// Which stored bytes an answer to a fetch is made of: what has to be loaded for it.
//
// Pure functions.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "forebay/v1/trainer.pb.h"
#include "server/grpc/fetch_stream.h"
#include "storage/payload_store.h"

namespace forebay::server {

// The payloads that the answer is made of: distinct, ascending. Also of those that have no row in
// the share that is asked for, as their headers say what lies where.
std::vector<PayloadId> PayloadsOf(const v1::FetchRequest& request, const FetchView& view);

// What of those payloads the answer is made of, given views that hold their hot parts; empty if
// those are all that it takes.
std::vector<storage::PayloadParts> PartsOf(const v1::FetchRequest& request, const FetchView& view,
                                           absl::Span<const storage::PayloadView> held);

}  // namespace forebay::server
