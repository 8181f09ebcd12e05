// An actor that talks to the limit server: it says what an actor says to the daemon, made in the
// same way.
//
// On two cores the client's work is part of every figure. An actor reads leases and encodes a
// header for each rollout, whichever server it talks to; a limit whose client sends the same ready
// bytes again and again would be the limit of another client. So the messages are those of an
// ActorConversation, and what the limit server answers, which is any bytes, is read and then
// replaced by an answer of the daemon's kind, which the actor decodes. Not thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/load/actor.h"
#include "bench/load/script.h"

namespace forebay::bench {

class LimitActorConversation : public Conversation {
 public:
  // `steps`: one unary call, whose answer holds load->batch assignments, and one store, whose
  // message holds their rollouts. The sizes of the answers are the script's, those of the messages
  // the actor's. `load` is in lockstep and outlives this.
  static absl::StatusOr<std::unique_ptr<LimitActorConversation>> Make(
      const ActorLoad* load, std::vector<ScriptStep> steps);

  std::vector<Pipe> Pipes() const override;
  bool Next(size_t pipe, grpc::ByteBuffer* message) override;
  absl::Status Take(size_t pipe, grpc::ByteBuffer* answer) override;
  void Stop() override { actor_.Stop(); }
  bool Stopped() const override { return actor_.Stopped(); }
  std::string Script() const override { return FormatScript(steps_); }

 private:
  LimitActorConversation(const ActorLoad* load, std::vector<ScriptStep> steps);

  std::vector<ScriptStep> steps_;
  ActorConversation actor_;
  grpc::ByteBuffer answers_[2];  // of the daemon's kind, by pipe
  std::vector<grpc::Slice> slices_;
};

}  // namespace forebay::bench
