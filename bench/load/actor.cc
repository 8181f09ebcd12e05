#include "bench/load/actor.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "codec/wire.h"

namespace forebay::bench {
namespace {

constexpr uint32_t kAcquireWaitMs = 10'000;

// A slice that owns the string: nothing is copied.
grpc::Slice ToSlice(std::string bytes) {
  auto* owned = new std::string(std::move(bytes));
  return grpc::Slice(
      owned->data(), owned->size(), [](void* string) { delete static_cast<std::string*>(string); },
      owned);
}

}  // namespace

ActorConversation::ActorConversation(const ActorLoad* load, Daemon::Session session)
    : load_(load), session_(std::move(session)) {}

ActorConversation::~ActorConversation() {
  if (load_->left_over == nullptr || leases_.empty()) return;
  load_->left_over->push_back({session_.id, {leases_.begin(), leases_.end()}});
}

std::vector<Pipe> ActorConversation::Pipes() const {
  return {{kAcquireMethod, false}, {kPushMethod, true}};
}

bool ActorConversation::Next(size_t pipe, grpc::ByteBuffer* message) {
  if (pipe == kAcquire) return NextAcquire(message);
  return load_->window == 0 ? NextBatch(message) : NextFrame(message);
}

bool ActorConversation::NextAcquire(grpc::ByteBuffer* message) {
  const bool enough =
      load_->window == 0 ? !leases_.empty() || in_flight_ > 0 : leases_.size() > load_->window;
  if (acquiring_ || enough || stopping_) return false;
  acquiring_ = true;
  v1::AcquireRequest request;
  request.set_session(session_.id);
  request.set_request_id(++request_id_);
  request.set_max(load_->batch);
  request.set_wait_ms(kAcquireWaitMs);
  *request.mutable_version() = session_.opened.version().version();
  *message = Encode(request);
  ++acquire_out_.messages;
  acquire_out_.bytes += message->Length();
  return true;
}

// The fields of a frame that come before its rollouts.
std::string ActorConversation::FrameStart() {
  std::string frame;
  codec::WireWriter writer(&frame);
  if (frame_ == 0) writer.Fixed(v1::PushFrame::kSessionFieldNumber, session_.id);
  writer.Varint(v1::PushFrame::kFrameFieldNumber, ++frame_);
  return frame;
}

// All leases in one frame, their payloads after their headers.
bool ActorConversation::NextBatch(grpc::ByteBuffer* message) {
  if (leases_.empty() || stopping_) return false;
  const RolloutTemplate& rollout = load_->rollouts.front();
  std::string frame = FrameStart();
  constexpr size_t kPayloadHeadBytes = 8;
  frame.reserve(frame.size() + kPayloadHeadBytes +
                leases_.size() * (rollout.entry_bytes() + rollout.payload().size()));
  const size_t templates = load_->rollouts.size();
  for (size_t i = 0; i < leases_.size(); ++i) {
    load_->rollouts[i % templates].AppendHeader(leases_[i], &frame);
  }
  const size_t payload = leases_.size() * rollout.payload().size();
  codec::WireWriter writer(&frame);
  writer.MessageHead(v1::PushFrame::kPayloadFieldNumber, payload);
  for (size_t i = 0; i < leases_.size(); ++i) writer.Raw(rollout.payload());
  grpc::Slice slice = ToSlice(std::move(frame));
  *message = grpc::ByteBuffer(&slice, 1);
  const auto count = static_cast<uint32_t>(leases_.size());
  unanswered_.push_back({count, payload});
  in_flight_ += count;
  leases_.clear();
  ++push_out_.messages;
  push_out_.bytes += message->Length();
  return true;
}

// The next frame of the rollout that is being sent, or the first of a new one. Payload is sent from
// where it lies.
bool ActorConversation::NextFrame(grpc::ByteBuffer* message) {
  const RolloutTemplate& rollout = load_->rollouts[turn_];
  const std::string_view payload = rollout.payload();
  std::string frame;
  if (sent_bytes_ == 0) {
    if (leases_.empty() || in_flight_ >= load_->window || stopping_) return false;
    frame = FrameStart();
    rollout.AppendHeader(leases_.front(), &frame);
    leases_.pop_front();
    ++in_flight_;
  } else {
    frame = FrameStart();
  }
  const size_t piece = std::min<size_t>(payload.size() - sent_bytes_, load_->frame_bytes);
  codec::WireWriter(&frame).MessageHead(v1::PushFrame::kPayloadFieldNumber, piece);
  grpc::Slice slices[] = {
      grpc::Slice(std::move(frame)),
      grpc::Slice(payload.data() + sent_bytes_, piece, grpc::Slice::STATIC_SLICE)};
  *message = grpc::ByteBuffer(slices, 2);
  sent_bytes_ += piece;
  const bool last = sent_bytes_ == payload.size();
  unanswered_.push_back({last ? 1u : 0u, last ? payload.size() : 0});
  if (last) {
    sent_bytes_ = 0;
    turn_ = (turn_ + 1) % load_->rollouts.size();
  }
  ++push_out_.messages;
  push_out_.bytes += message->Length();
  return true;
}

absl::Status ActorConversation::Take(size_t pipe, grpc::ByteBuffer* answer) {
  grpc::Slice bytes;
  if (!answer->DumpToSingleSlice(&bytes).ok()) return absl::InternalError("unreadable answer");
  return pipe == kAcquire ? TakeAcquired(bytes) : TakeReply(bytes);
}

absl::Status ActorConversation::TakeAcquired(const grpc::Slice& answer) {
  acquiring_ = false;
  ++acquire_in_.messages;
  acquire_in_.bytes += answer.size();
  const std::string_view bytes(reinterpret_cast<const char*>(answer.begin()), answer.size());
  acquired_.clear();
  if (!ReadLeases(bytes, &acquired_)) {
    return absl::InternalError("the answer is no AcquireResponse");
  }
  leases_.insert(leases_.end(), acquired_.begin(), acquired_.end());
  if (!acquired_.empty()) return absl::OkStatus();
  // A load that is not handed work measures something else.
  v1::AcquireResponse response;
  response.ParseFromArray(answer.begin(), static_cast<int>(answer.size()));
  return absl::UnavailableError(absl::StrCat("Acquire handed out nothing: ", response.reason()));
}

absl::Status ActorConversation::TakeReply(const grpc::Slice& answer) {
  ++push_in_.messages;
  push_in_.bytes += answer.size();
  v1::PushReply reply;
  if (!reply.ParseFromArray(answer.begin(), static_cast<int>(answer.size())) ||
      unanswered_.empty()) {
    return absl::InternalError("the answer is no PushReply, or was not asked for");
  }
  const Unanswered frame = unanswered_.front();
  unanswered_.pop_front();
  if (reply.accepted() != frame.rollouts || reply.outcomes_size() > 0) {
    return absl::InternalError(absl::StrCat("of ", frame.rollouts, " rollouts ", reply.accepted(),
                                            " were accepted: ", reply.ShortDebugString()));
  }
  in_flight_ -= frame.rollouts;
  progress_.operations += frame.rollouts;
  progress_.payload_bytes += frame.bytes;
  return absl::OkStatus();
}

std::string ActorConversation::Script() const {
  if (load_->window == 0) {
    return absl::StrCat("unary:", acquire_out_.Mean(), ">", acquire_in_.Mean(),
                        " store:", push_out_.Mean(), ">", push_in_.Mean());
  }
  const uint64_t frames =
      (load_->rollouts[0].payload().size() + load_->frame_bytes - 1) / load_->frame_bytes;
  return absl::StrCat("store:", push_out_.Mean(), "x", frames, ">", push_in_.Mean());
}

}  // namespace forebay::bench
