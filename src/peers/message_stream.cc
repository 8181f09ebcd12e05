#include "peers/message_stream.h"

#include <memory>
#include <optional>

#include "absl/time/clock.h"
#include "base/check.h"
#include "forebay/v1/peer.pb.h"
#include "peers/frames.h"
#include "server/grpc/typed.h"

namespace forebay::peers {
namespace {

class MessageStream final : public server::StreamHandler {
 public:
  explicit MessageStream(PeerService* service) : service_(service) {}

  void OnStart(server::Stream& stream, const server::CallContext& /*call*/) override {
    stream.Read();
  }
  void OnMessage(server::Stream& stream, grpc::ByteBuffer body) override {
    const absl::Status status = TakeFrame(stream, body);
    if (absl::IsDataLoss(status) && from_.value != 0) {
      service_->Count(from_, [](PeerStats& stats) { ++stats.corrupt_frames; });
    }
    status.ok() ? stream.Read() : stream.Finish(status);
  }
  void OnHalfClose(server::Stream& stream) override { stream.Finish(absl::OkStatus()); }
  void OnDrain(server::Stream& stream) override {
    stream.Finish(absl::UnavailableError("shutting down"));
  }

 private:
  absl::Status TakeFrame(server::Stream& stream, const grpc::ByteBuffer& body);
  absl::Status Open(server::Stream& stream);
  absl::Status Deliver();

  PeerService* const service_;
  cluster::NodeId from_;  // 0 until the stream is open
  FrameView frame_;
  MessageJoiner joiner_;
};

absl::Status MessageStream::TakeFrame(server::Stream& stream, const grpc::ByteBuffer& body) {
  grpc::Slice slice;
  if (!body.DumpToSingleSlice(&slice).ok()) {
    return absl::DataLossError("frame: cannot be unpacked");
  }
  FOREBAY_RETURN_IF_ERROR(
      ReadFrame({reinterpret_cast<const char*>(slice.begin()), slice.size()}, &frame_));
  if (from_.value == 0) {
    FOREBAY_RETURN_IF_ERROR(Open(stream));
  } else if (frame_.opening.has_value()) {
    return absl::InvalidArgumentError("opening: comes twice");
  }
  return Deliver();
}

absl::Status MessageStream::Open(server::Stream& stream) {
  if (!frame_.opening.has_value()) {
    return absl::InvalidArgumentError("opening: is missing in the first frame");
  }
  FOREBAY_RETURN_IF_ERROR(service_->Check(*frame_.opening, &from_));
  v1::PeerWelcome welcome;
  welcome.set_node(service_->options().self.value);
  welcome.set_protocol(kProtocol);
  stream.Write(server::SerializeBody(welcome));
  return absl::OkStatus();
}

absl::Status MessageStream::Deliver() {
  uint64_t messages = 0, bytes = 0;
  for (const MessageView& piece : frame_.messages) {
    std::optional<MessageView> message;
    FOREBAY_RETURN_IF_ERROR(joiner_.Add(piece, &message));
    bytes += piece.payload.size();
    if (!message.has_value()) continue;
    ++messages;
    service_->port()->OnMessage(message->machine, message->payload);
  }
  service_->Count(from_, [&](PeerStats& stats) {
    stats.received_messages += messages;
    stats.received_bytes += bytes;
    stats.last_heard = absl::Now();
  });
  return absl::OkStatus();
}

}  // namespace

server::StreamFactory MakeMessageStream(PeerService* service) {
  return [service] { return std::make_unique<MessageStream>(service); };
}

}  // namespace forebay::peers
