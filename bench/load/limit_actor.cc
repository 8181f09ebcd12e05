#include "bench/load/limit_actor.h"

#include <absl/strings/str_cat.h>

#include <utility>

namespace forebay::bench {
namespace {

// What the daemon answers to an Acquire of the `assign` load.
grpc::ByteBuffer Assignments(uint32_t count) {
  v1::AcquireResponse response;
  for (uint32_t i = 0; i < count; ++i) {
    v1::Assignment* assignment = response.add_assignments();
    assignment->set_attempt_id(uint64_t{1} << 40 | i);
    assignment->set_token(1);
    assignment->set_seed(0x123456789abcdefull);
    assignment->set_group_id(i / 16 + 1);
    assignment->set_attempt(i % 16);
    assignment->set_lease_ms(3'600'000);
    assignment->set_external_id(absl::StrCat("task-", 10'000 + i));
    assignment->set_payload(std::string(32, 'x'));
  }
  return Encode(response);
}

grpc::ByteBuffer Reply(uint32_t accepted) {
  v1::PushReply reply;
  reply.set_frame(1);
  reply.set_accepted(accepted);
  return Encode(reply);
}

Daemon::Session AnySession() {
  Daemon::Session session;
  session.id = 0x123456789abcdefull;
  return session;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LimitActorConversation>> LimitActorConversation::Make(
    const ActorLoad* load, std::vector<ScriptStep> steps) {
  if (steps.size() != 2 || steps[0].stream || steps[1].method != kStoreMethod ||
      steps[1].requests != 1 || load->window != 0) {
    return absl::InvalidArgumentError("an actor's script is unary:BYTES>ANSWER store:BYTES>ANSWER");
  }
  return std::unique_ptr<LimitActorConversation>(
      new LimitActorConversation(load, std::move(steps)));
}

LimitActorConversation::LimitActorConversation(const ActorLoad* load, std::vector<ScriptStep> steps)
    : steps_(std::move(steps)),
      actor_(load, AnySession()),
      answers_{Assignments(load->batch), Reply(load->batch)} {}

std::vector<Pipe> LimitActorConversation::Pipes() const {
  return {{kUnaryMethod, false}, {kStoreMethod, true}};
}

bool LimitActorConversation::Next(size_t pipe, grpc::ByteBuffer* message) {
  grpc::ByteBuffer said;
  if (!actor_.Next(pipe, &said)) return false;
  const LimitHeader header{steps_[pipe].answer_bytes, steps_[pipe].answer_frame_bytes};
  slices_.clear();
  if (!said.Dump(&slices_).ok()) return false;
  slices_.insert(slices_.begin(), grpc::Slice(&header, sizeof(header)));
  *message = grpc::ByteBuffer(slices_.data(), slices_.size());
  return true;
}

absl::Status LimitActorConversation::Take(size_t pipe, grpc::ByteBuffer* answer) {
  if (answer->Length() != steps_[pipe].answer_bytes) {
    return absl::InternalError(absl::StrCat("answer of ", answer->Length(), " bytes on pipe ", pipe,
                                            ", asked for ", steps_[pipe].answer_bytes));
  }
  // The actor puts what it reads into one piece; that of the answer below is one already.
  grpc::Slice bytes;
  if (!answer->DumpToSingleSlice(&bytes).ok()) return absl::InternalError("unreadable answer");
  grpc::ByteBuffer replaced = answers_[pipe];
  const absl::Status status = actor_.Take(pipe, &replaced);
  progress_ = actor_.progress();
  return status;
}

}  // namespace forebay::bench
