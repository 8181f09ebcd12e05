// What a load client says and how it takes the answers: the seam between the closed loop, which is
// the same for the limit server and for the daemon, and the messages, which are not.
//
// Not thread-safe: one thread, the one that polls, uses a conversation.
#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace forebay::bench {

// One method that a conversation uses. A stream stays open; a unary pipe has one call in flight at
// most.
struct Pipe {
  std::string method;  // "/package.Service/Method"
  bool stream = true;
};

// What a conversation has done so far. Sizes are of messages, without gRPC's framing.
struct Progress {
  uint64_t operations = 0;
  uint64_t payload_bytes = 0;  // what the user counts: bytes of rollouts or of micro-batches
};

class Conversation {
 public:
  virtual ~Conversation() = default;

  // Fixed for the conversation's life.
  virtual std::vector<Pipe> Pipes() const = 0;

  // The next message for pipe number `pipe`; false if there is nothing to say there until more
  // answers have come. Asked again after each answer on any pipe and each finished write.
  virtual bool Next(size_t pipe, grpc::ByteBuffer* message) = 0;

  // An answer arrived on `pipe`. An error ends the whole run, so that no figure comes from a broken
  // exchange.
  virtual absl::Status Take(size_t pipe, grpc::ByteBuffer* answer) = 0;

  // The measured time is over: what was begun is ended, nothing new is said.
  virtual void Stop() {}
  // After Stop: nothing is under way any more.
  virtual bool Stopped() const { return true; }

  // What was exchanged, in the words of script.h, so that the limit can be run on the same.
  virtual std::string Script() const = 0;

  const Progress& progress() const { return progress_; }

 protected:
  Progress progress_;
};

// Bytes that stay for the life of the process, for payloads that are sent without a copy. Not
// compressible, larger than the caches. `bytes` at a time are taken round and round; `bytes` is at
// most SharedPayload's size.
const char* SharedPayload(size_t bytes);

}  // namespace forebay::bench
