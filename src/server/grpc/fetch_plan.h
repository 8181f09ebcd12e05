// From a fetch request and the view of its micro-batch to the bytes of the answer: the layout
// message, and pieces of data that refer to the store's blocks, as they lie there or by parts of
// their rows.
//
// Pure but for the payloads that it holds. A planner belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "codec/rollout_header.h"
#include "forebay/v1/trainer.pb.h"
#include "server/grpc/fetch_parts.h"
#include "server/grpc/fetch_stream.h"
#include "server/grpc/row_gather.h"
#include "storage/payload_store.h"

namespace forebay::server {

// A piece of an answer: bytes of a block, or of memory that lives for ever (zeros; `block` is then
// empty), or own bytes; or what is made while it is sent: rows that are gathered, and a fill that
// is repeated.
struct FetchPiece {
  storage::BlockRef block;
  std::string own;
  const char* data = nullptr;
  size_t size = 0;
  std::unique_ptr<const RowGather> rows;
  const std::string* fill = nullptr;  // of the plan

  bool is_own() const { return data == nullptr && rows == nullptr && fill == nullptr; }
  // Copies `count` bytes from `from` on.
  void Read(uint64_t from, size_t count, char* out) const;
};

struct FetchPlan {
  std::string layout;  // an encoded MicroBatchLayout
  std::vector<FetchPiece> pieces;
  uint64_t bytes = 0;
  // What pieces refer to.
  std::vector<std::unique_ptr<const RowFormat>> formats;
  std::vector<std::unique_ptr<const std::string>> fills;
};

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
