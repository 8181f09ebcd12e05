#include "bench/load/swarm_actor.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "bench/limits/message.h"
#include "codec/wire.h"
#include "forebay/v1/actor.pb.h"

namespace forebay::bench {
namespace {

constexpr uint32_t kAcquireWaitMs = 10'000;
constexpr std::array<const char*, kSwarmWords> kMethods = {
    "/forebay.v1.ActorService/OpenSession", "/forebay.v1.ActorService/Acquire",
    "/forebay.v1.ActorService/Renew", "/forebay.v1.ActorService/Push"};

std::shared_ptr<grpc::Channel> Connect(const std::string& target) {
  grpc::ChannelArguments arguments;
  // Otherwise channels to one address share one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MINIMAL_STACK, 1);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

SwarmActor::SwarmActor(SwarmShared* shared, uint64_t session)
    : shared_(shared),
      session_(session),
      stub_(std::make_unique<grpc::GenericStub>(Connect(shared->target))) {}

void SwarmActor::Begin() { Say(&call_, kSwarmOpen, &answered_); }

bool SwarmActor::Renew() {
  if (!ready_ || renewal_.busy) return false;
  Say(&renewal_, kSwarmRenew, &renewed_);
  return true;
}

bool SwarmActor::Turn() {
  if (!ready_ || turn_wanted_) return false;
  if (renewal_.busy) {
    turn_wanted_ = true;
  } else {
    Push();
  }
  return true;
}

std::optional<SwarmClock::time_point> SwarmActor::waits_since() const {
  std::optional<SwarmClock::time_point> since = pushed_at_;
  for (const Call* call : {&call_, &renewal_}) {
    if (call->busy) since = since.has_value() ? std::min(*since, call->since) : call->since;
  }
  return since;
}

void SwarmActor::Cancel() {
  cancelled_ = true;
  if (call_.context != nullptr) call_.context->TryCancel();
  if (renewal_.context != nullptr) renewal_.context->TryCancel();
  push_context_.TryCancel();
}

std::string SwarmActor::Encoded(SwarmWord word) {
  switch (word) {
    case kSwarmOpen: {
      v1::OpenSessionRequest request;
      request.set_session(session_);
      request.set_actor("buffer-bench");
      request.set_client("buffer-bench");
      return request.SerializeAsString();
    }
    case kSwarmAcquire: {
      v1::AcquireRequest request;
      request.set_session(session_);
      request.set_request_id(++acquires_);
      request.set_max(1);
      request.set_wait_ms(kAcquireWaitMs);
      return request.SerializeAsString();
    }
    case kSwarmRenew: {
      v1::RenewRequest request;
      request.set_session(session_);
      request.add_attempt_ids(lease_.attempt_id);
      request.add_tokens(lease_.token);
      return request.SerializeAsString();
    }
    default: {
      const std::string_view payload = shared_->rollout->payload();
      std::string frame;
      codec::WireWriter writer(&frame);
      if (frames_ == 0) writer.Fixed(v1::PushFrame::kSessionFieldNumber, session_);
      writer.Varint(v1::PushFrame::kFrameFieldNumber, ++frames_);
      shared_->rollout->AppendHeader(lease_, &frame);
      writer.MessageHead(v1::PushFrame::kPayloadFieldNumber, payload.size());
      writer.Raw(payload);
      return frame;
    }
  }
}

grpc::ByteBuffer SwarmActor::Message(SwarmWord word) {
  std::string bytes;
  if (shared_->limit.has_value()) {
    const SwarmSizes& sizes = (*shared_->limit)[word];
    const LimitHeader header{static_cast<uint32_t>(sizes.answer), 0};
    bytes.assign(std::max<size_t>(sizes.request, sizeof(header)), 'x');
    std::memcpy(bytes.data(), &header, sizeof(header));
  } else {
    bytes = Encoded(word);
  }
  ++shared_->tallies[word].said;
  shared_->tallies[word].request_bytes += bytes.size();
  grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

void SwarmActor::Say(Call* call, SwarmWord word, Event* done) {
  if (cancelled_) return;
  call->word = word;
  call->busy = true;
  call->since = SwarmClock::now();
  call->answer.Clear();
  call->context = std::make_unique<grpc::ClientContext>();
  call->context->set_wait_for_ready(true);
  call->reader =
      stub_->PrepareUnaryCall(call->context.get(), shared_->limit ? kUnaryMethod : kMethods[word],
                              Message(word), shared_->queue);
  call->reader->StartCall();
  call->reader->Finish(&call->answer, &call->status, done);
}

void SwarmActor::Push() {
  ready_ = false;
  pushed_at_ = SwarmClock::now();
  push_->Write(Message(kSwarmPush), &written_);
}

absl::Status SwarmActor::OnAnswer(bool /*ok*/) {
  call_.busy = false;
  if (!call_.status.ok()) return absl::UnavailableError(call_.status.error_message());
  if (absl::Status s = Take(call_.word, call_.since, &call_.answer); !s.ok()) return s;
  if (call_.word == kSwarmOpen) {
    Say(&call_, kSwarmAcquire, &answered_);
  } else if (streaming_) {
    ready_ = true;
  } else if (!cancelled_) {
    push_ = stub_->PrepareCall(&push_context_, shared_->limit ? kStoreMethod : kMethods[kSwarmPush],
                               shared_->queue);
    push_->StartCall(&started_);
  }
  return absl::OkStatus();
}

absl::Status SwarmActor::OnRenewed(bool /*ok*/) {
  renewal_.busy = false;
  if (!renewal_.status.ok()) return absl::UnavailableError(renewal_.status.error_message());
  if (absl::Status s = Take(kSwarmRenew, renewal_.since, &renewal_.answer); !s.ok()) return s;
  if (std::exchange(turn_wanted_, false) && !cancelled_) Push();
  return absl::OkStatus();
}

absl::Status SwarmActor::OnStarted(bool ok) {
  if (!ok) return absl::UnavailableError("a push stream did not begin");
  streaming_ = true;
  push_->Read(&reply_, &read_);
  ready_ = true;
  return absl::OkStatus();
}

absl::Status SwarmActor::OnWritten(bool ok) {
  return ok ? absl::OkStatus() : absl::UnavailableError("a push stream broke");
}

absl::Status SwarmActor::OnRead(bool ok) {
  if (!ok || !pushed_at_.has_value()) return absl::UnavailableError("a push stream ended");
  if (absl::Status s = Take(kSwarmPush, *std::exchange(pushed_at_, std::nullopt), &reply_);
      !s.ok()) {
    return s;
  }
  reply_.Clear();
  push_->Read(&reply_, &read_);
  Say(&call_, kSwarmAcquire, &answered_);
  return absl::OkStatus();
}

absl::Status SwarmActor::Take(SwarmWord word, SwarmClock::time_point since,
                              grpc::ByteBuffer* answer) {
  SwarmShared::Tally& tally = shared_->tallies[word];
  tally.answered_ms.push_back(
      std::chrono::duration<double, std::milli>(SwarmClock::now() - since).count());
  tally.answer_bytes += answer->Length();
  if (shared_->limit.has_value()) return absl::OkStatus();
  grpc::Slice bytes;
  if (!answer->DumpToSingleSlice(&bytes).ok()) return absl::InternalError("unreadable answer");
  return Read(word, bytes);
}

// An answer that is not the good one ends the run: a swarm that is refused measures nothing.
absl::Status SwarmActor::Read(SwarmWord word, const grpc::Slice& answer) {
  const std::string_view bytes(reinterpret_cast<const char*>(answer.begin()), answer.size());
  const int size = static_cast<int>(bytes.size());
  if (word == kSwarmAcquire) {
    std::vector<Lease> leases;
    if (!ReadLeases(bytes, &leases) || leases.size() != 1) {
      v1::AcquireResponse response;
      response.ParseFromArray(bytes.data(), size);
      return absl::UnavailableError(
          absl::StrCat("Acquire handed out ", leases.size(), " assignments: ", response.reason()));
    }
    lease_ = leases.front();
  } else if (word == kSwarmRenew) {
    v1::RenewResponse response;
    if (!response.ParseFromArray(bytes.data(), size) || response.actions_size() > 0) {
      return absl::InternalError(
          absl::StrCat("a lease was not renewed: ", response.ShortDebugString()));
    }
  } else if (word == kSwarmPush) {
    v1::PushReply reply;
    if (!reply.ParseFromArray(bytes.data(), size) || reply.accepted() != 1) {
      return absl::InternalError(
          absl::StrCat("a rollout was not accepted: ", reply.ShortDebugString()));
    }
  }
  return absl::OkStatus();
}

}  // namespace forebay::bench
