// A fetch stream that mends itself: asks for micro-batches in order and ahead, puts their frames
// together on a thread of its own, and asks again after a lost connection (the bytes of a
// micro-batch never change).
//
// Next belongs to one thread. The connection outlives it.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "client/connection.h"
#include "forebay/micro_batch.h"
#include "forebay/v1/trainer.pb.h"

namespace forebay::client {

class FetchStream {
 public:
  // The ids of the requests are set here.
  FetchStream(Connection* connection, std::vector<v1::FetchRequest> requests, FetchSpec spec);
  ~FetchStream();

  // False after the last one.
  absl::StatusOr<bool> Next(MicroBatch* batch, const CallOptions& options);

 private:
  void Loop();
  // Until all is here, the stream breaks, or an answer is an error (then failure_ is set).
  void Receive(MessageStream* stream);
  void Fail(const absl::Status& status);
  // Writes the requests that may go out; with `anew`, from the first that is not here.
  void Ask(bool anew);

  Connection* const connection_;
  const std::vector<v1::FetchRequest> requests_;
  const FetchSpec spec_;

  std::mutex write_mutex_;  // one writer; taken before mutex_

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool closing_ = false;
  bool failed_ = false;
  absl::Status failure_;
  MessageStream* stream_ = nullptr;
  size_t asked_ = 0;
  size_t received_ = 0;
  size_t taken_ = 0;
  std::deque<MicroBatch> ready_;

  Cancellation ending_;
  std::thread thread_;
};

}  // namespace forebay::client
