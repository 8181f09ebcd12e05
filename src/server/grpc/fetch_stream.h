// Serves TrainerService.Fetch: requests in, micro-batches out, payload bytes sent from the store's
// blocks without a copy, but for parts of rows that are small, and values of another dtype: those
// are put together frame by frame.
//
//   request -> view of the micro-batch (engine) -> hold the payloads: their hot parts, and the cold
//   ones of rollouts in which a wanted column is cold -> layout -> frames
//
// Answers come in the order of the requests; the next request is begun when the answer before it is
// in the write queue, and frames are made only while the queue is short, so memory per stream is
// bounded. The same request gives the same bytes. Each stream runs on its polling thread; the
// engine answers from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "ledger/messages.h"
#include "ledger/step.h"
#include "server/grpc/rpc.h"
#include "storage/payload_store.h"

namespace forebay::server {

struct FetchKey {
  Generation generation;
  StepId step;
  Revision revision;
  ledger::MicroBatchRef micro_batch;
};

// ledger::MicroBatchView, with everything owned.
struct FetchView {
  std::vector<ledger::Slot> slots;
  uint64_t padded_tokens = 0;
  ledger::Totals mini_batch;
  std::vector<ledger::WrittenColumn> written;
  std::vector<std::pair<SourceId, std::string>>
      sources;  // names of those that the slots' tasks belong to
};

using FetchAnswer = std::function<void(absl::StatusOr<FetchView>)>;
using FetchRefusal = std::function<void(const absl::Status&)>;

// What the handler needs of the rest of the daemon. Thread-safe; `answer` is called once, from any
// thread.
class FetchEngine {
 public:
  virtual ~FetchEngine() = default;
  virtual void View(const FetchKey& key, FetchAnswer answer) = 0;
  // Bytes of the micro-batch cannot be read any more, as `why` says: has the step planned without
  // them, and then gives what the trainer is told.
  virtual void Lost(const FetchKey& key, const FetchView& view, const absl::Status& why,
                    FetchRefusal answer) = 0;
  // The answer has so many bytes of data, and is on its way.
  virtual void Answering(const FetchKey& /*key*/, uint64_t /*bytes*/) {}
};

struct FetchLimits {
  uint64_t frame_bytes_max = uint64_t{4} << 20;
  uint64_t frame_bytes_default = uint64_t{1} << 20;
  // Frames are made while fewer bytes than this wait to be sent.
  uint64_t queued_bytes_max = uint64_t{8} << 20;
  // Requests read and not yet answered; beyond, the stream is not read on.
  uint32_t requests_in_flight_max = 64;
};

struct FetchOptions {
  FetchEngine* engine = nullptr;
  storage::PayloadStore* store = nullptr;
  FetchLimits limits;
};

// The options are copied; engine and store outlive the server.
StreamFactory MakeFetchStream(const FetchOptions& options);

}  // namespace forebay::server
