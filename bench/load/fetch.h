// A trainer's rank as a load: one sealed step whose micro-batches are fetched in turn, again and
// again, with nothing done to their bytes.
//
// Not thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bench/load/conversation.h"
#include "bench/load/daemon.h"
#include "bench/load/rollout_template.h"
#include "forebay/v1/trainer.pb.h"

namespace forebay::bench {

// What the fetches name. Made once by PrepareStep, shared by all conversations.
struct FetchLoad {
  v1::FetchRequest request;  // all but the id and the micro-batch
  uint32_t micro_batches = 1;
  uint32_t window = 4;  // fetches in flight
};

// Pushes groups whose sequences fill a micro-batch of `tokens` (a multiple of 16) each, with those
// columns, opens a step over them and waits until it is sealed. A step that an earlier run left
// open is used as it is. All columns are fetched.
absl::StatusOr<FetchLoad> PrepareStep(Daemon* daemon, const std::string& target, uint32_t tokens,
                                      uint32_t micro_batches,
                                      const std::vector<ColumnShape>& columns);

// What a stage of a pipeline takes of RoutedColumns: the routes of so many layers in the middle,
// and the log-probabilities as bf16.
void TakeStage(uint32_t layers, FetchLoad* load);

class FetchConversation : public Conversation {
 public:
  // `load` outlives this.
  explicit FetchConversation(const FetchLoad* load) : load_(load) {}

  std::vector<Pipe> Pipes() const override { return {{kFetchMethod, true}}; }
  bool Next(size_t pipe, grpc::ByteBuffer* message) override;
  absl::Status Take(size_t pipe, grpc::ByteBuffer* answer) override;
  std::string Script() const override;

 private:
  const FetchLoad* load_;
  uint64_t next_id_ = 1;
  uint32_t in_flight_ = 0;
  // Of the answer that is arriving: its data, and its messages.
  uint64_t data_bytes_ = 0, coming_bytes_ = 0;
  // For the script; of whole answers.
  uint64_t request_bytes_ = 0, answer_bytes_ = 0, largest_frame_ = 0;
};

}  // namespace forebay::bench
