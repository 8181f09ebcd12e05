// One call at the limit server: a state machine that the polling thread drives.
//
// Not thread-safe: everything runs on the thread that polls the completion queue. A call owns
// itself: it is created waiting for a caller and deletes itself when its last operation has come
// back.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>

#include "bench/limits/block_ring.h"
#include "bench/limits/message.h"

namespace forebay::bench {

// What the calls of one server share.
struct LimitShared {
  grpc::AsyncGenericService service;
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  BlockRing store;       // pushed bytes go here
  BlockRing source;      // answers come from here
  uint64_t crc_sum = 0;  // keeps the checksums from being optimised away
};

class LimitCall {
 public:
  // What a completion-queue tag points to.
  struct Event {
    LimitCall* call;
    void (LimitCall::*handle)(bool ok);
  };

  // Asks the server for one more call; the call lives until it is served or the queue shuts down.
  static void Await(LimitShared* shared) { new LimitCall(shared); }

  // In place of the handler, once the queue is shut down: no operation may be begun any more.
  void Drop();

 private:
  enum class Mode { kUnary, kStream, kStore };

  explicit LimitCall(LimitShared* shared);

  void OnAccepted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);

  void Read();
  void TakeMessage();
  void WriteNext();
  void Finish(const grpc::Status& status);
  void DeleteWhenIdle();

  LimitShared* shared_;
  Mode mode_ = Mode::kUnary;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer message_;
  std::deque<LimitHeader> answers_;  // still to be written, in order; the first may be part done
  int operations_ = 0;               // that the queue has not returned yet
  bool reading_ = false;
  bool writing_ = false;
  bool half_closed_ = false;
  bool finishing_ = false;

  Event accepted_{this, &LimitCall::OnAccepted};
  Event read_{this, &LimitCall::OnRead};
  Event written_{this, &LimitCall::OnWritten};
  Event finished_{this, &LimitCall::OnFinished};
};

}  // namespace forebay::bench
