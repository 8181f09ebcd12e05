// A conversation with the limit server, written as text: which messages are exchanged, how large,
// in which order.
//
//   script := step { ' ' step }
//   step   := ('unary' | 'stream' | 'store') ':' BYTES [ 'x' COUNT ] '>' ANSWER [ '/' FRAME ]
//
// One round is the steps in order, each begun when the answer of the step before it is complete.
// COUNT messages of BYTES go out without waiting for each other's answers, and each is answered by
// ANSWER bytes, cut into messages of at most FRAME (streams only). Examples:
//   unary:100>100                  a small call
//   unary:40>5120 store:7000>900   64 assignments acquired, their rollouts pushed, copied with crc
//   store:1048576x64>24            one rollout of 64 MiB in frames of 1 MiB, copied with its crc
//   stream:64>1400000/1048576      a micro-batch fetched
//
// The daemon's own conversations report what they exchanged in this form, so that the limit is run
// on the same. Not thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/limits/message.h"
#include "bench/load/conversation.h"

namespace forebay::bench {

struct ScriptStep {
  std::string method;
  bool stream = true;
  uint32_t request_bytes = 0;  // at least the header's size: what is smaller is sent as that
  uint32_t requests = 1;       // COUNT
  uint32_t answer_bytes = 0;
  uint32_t answer_frame_bytes = 0;
};

absl::StatusOr<std::vector<ScriptStep>> ParseScript(std::string_view text);
std::string FormatScript(const std::vector<ScriptStep>& steps);

struct ScriptOptions {
  std::vector<ScriptStep> steps;
  uint32_t window = 1;  // rounds in flight
  uint64_t operations_per_round = 1;
};

class ScriptConversation : public Conversation {
 public:
  explicit ScriptConversation(ScriptOptions options);

  std::vector<Pipe> Pipes() const override;
  bool Next(size_t pipe, grpc::ByteBuffer* message) override;
  absl::Status Take(size_t pipe, grpc::ByteBuffer* answer) override;
  std::string Script() const override;

 private:
  // Each step has a pipe of its own; answers on a pipe come in order, so rounds need no names.
  struct PipeState {
    uint64_t to_send = 0;  // messages
    uint32_t steps_open = 0;
    uint64_t received_bytes = 0;  // of the oldest open step's answers
  };

  void Begin(size_t step);

  ScriptOptions options_;
  std::vector<PipeState> pipes_;
  uint64_t payload_bytes_per_round_ = 0;
};

}  // namespace forebay::bench
