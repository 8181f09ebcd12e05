// From a fetch request and the view of its micro-batch to the bytes of the answer: the layout
// message, and pieces of data that refer to the store's blocks.
//
// Pure but for the payloads that it holds. A planner belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "codec/rollout_header.h"
#include "forebay/v1/trainer.pb.h"
#include "server/grpc/fetch_stream.h"
#include "storage/payload_store.h"

namespace forebay::server {

// A piece of an answer: bytes of a block, or of memory that lives for ever (fills; `block` is then
// empty), or own bytes.
struct FetchPiece {
  storage::BlockRef block;
  std::string own;
  const char* data = nullptr;  // null: `own`
  size_t size = 0;
};

struct FetchPlan {
  std::string layout;  // an encoded MicroBatchLayout
  std::vector<FetchPiece> pieces;
  uint64_t bytes = 0;
};

// The payloads that the answer is made of: distinct, ascending.
std::vector<PayloadId> PayloadsOf(const v1::FetchRequest& request, const FetchView& view);

// What of those payloads the answer is made of, given views that hold their hot parts; empty if
// those are all that it takes.
std::vector<storage::PayloadParts> PartsOf(const v1::FetchRequest& request, const FetchView& view,
                                           absl::Span<const storage::PayloadView> held);

// Plans one answer after another, and keeps what it allocates: a micro-batch has a header for each
// rollout, and a header has lists.
class FetchPlanner {
 public:
  // `held` are views of PayloadsOf, in that order, with what PartsOf says. InvalidArgument for a
  // bad request, FailedPrecondition for columns that are missing or disagree.
  absl::StatusOr<FetchPlan> Plan(const v1::FetchRequest& request, const FetchView& view,
                                 absl::Span<const storage::PayloadView> held);

 private:
  std::vector<codec::RolloutHeader> headers_;
  v1::MicroBatchLayout message_;
};

}  // namespace forebay::server
