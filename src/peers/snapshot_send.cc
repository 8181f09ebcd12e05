#include "peers/snapshot_send.h"

#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/byte_buffer.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "forebay/v1/peer.pb.h"
#include "peers/channel.h"
#include "peers/frames.h"

namespace forebay::peers {
namespace {

using grpc::internal::RpcMethod;

grpc::ByteBuffer Buffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

SnapshotSend::SnapshotSend(const PeerTransportOptions* options, std::shared_ptr<MessageLink> link,
                           OutgoingSnapshot snapshot)
    : options_(options), link_(std::move(link)), snapshot_(std::move(snapshot)) {
  thread_ = std::thread([this] { Run(); });
}

SnapshotSend::~SnapshotSend() { thread_.join(); }

void SnapshotSend::Run() {
  const absl::Status status = Transfer();
  link_->CountSnapshot(status.ok(), bytes_);
  std::move(snapshot_.done)(status);
  // What they hold is let go of before anybody can see the end.
  snapshot_.done = nullptr;
  snapshot_.next = nullptr;
  ended_ = true;
}

template <class F>
auto SnapshotSend::Waiting(absl::Duration limit, F f) {
  {
    MutexLock lock(&mutex_);
    give_up_at_ = DeadlineIn(limit);
  }
  const auto result = f();
  MutexLock lock(&mutex_);
  give_up_at_ = Deadline::max();
  return result;
}

absl::Status SnapshotSend::Transfer() {
  Authorize(*options_, &context_);
  const auto channel = Connect(*options_, snapshot_.address);
  // As generated code does it, with raw messages in place of typed ones.
  const std::unique_ptr<ClientStream> stream(Waiting(options_->progress_timeout, [&] {
    return grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
        channel.get(), RpcMethod(kSnapshotMethod, RpcMethod::BIDI_STREAMING), &context_);
  }));
  grpc::ByteBuffer answer;
  bool answered = false;
  if (WritePieces(stream.get())) {
    stream->WritesDone();
    answered = Waiting(options_->answer_timeout, [&] { return stream->Read(&answer); });
  }
  // If a piece was not taken, the stream has ended.
  const grpc::Status ended = Waiting(options_->progress_timeout, [&] { return stream->Finish(); });
  FOREBAY_RETURN_IF_ERROR(GivenUp());
  v1::SnapshotTaken taken;
  grpc::Slice slice;
  if (ended.ok() && answered && answer.DumpToSingleSlice(&slice).ok() &&
      taken.ParseFromArray(slice.begin(), static_cast<int>(slice.size())) &&
      taken.bytes() == bytes_) {
    return absl::OkStatus();
  }
  return FromGrpc(ended, snapshot_.to, snapshot_.address);
}

bool SnapshotSend::WritePieces(ClientStream* stream) {
  const auto write = [&](const std::string& piece) {
    return Waiting(options_->progress_timeout, [&] { return stream->Write(Buffer(piece)); });
  };
  if (!write(EncodeSnapshotHead(Opening(*options_, snapshot_.to), snapshot_.machine,
                                snapshot_.head))) {
    return false;
  }
  while (GivenUp().ok()) {
    const std::string piece = snapshot_.next();
    if (piece.empty()) return write(EncodeSnapshotEnd(bytes_, crc32c_));
    if (!WriteChunks(piece, stream)) return false;
  }
  return false;
}

bool SnapshotSend::WriteChunks(std::string_view piece, ClientStream* stream) {
  while (!piece.empty()) {
    const std::string_view chunk = piece.substr(0, kFrameBytesMax);
    grpc::Slice slice(SnapshotChunkSize(chunk));
    const uint32_t crc =
        WriteSnapshotChunk(chunk, reinterpret_cast<char*>(const_cast<uint8_t*>(slice.begin())));
    const bool written = Waiting(options_->progress_timeout,
                                 [&] { return stream->Write(grpc::ByteBuffer(&slice, 1)); });
    if (!written) return false;
    crc32c_ = JoinCrc32c(crc32c_, crc, chunk.size());
    bytes_ += chunk.size();
    piece.remove_prefix(chunk.size());
  }
  return true;
}

absl::Status SnapshotSend::GivenUp() {
  MutexLock lock(&mutex_);
  return given_up_;
}

void SnapshotSend::Cancel() {
  MutexLock lock(&mutex_);
  if (given_up_.ok()) given_up_ = absl::CancelledError("this node ends");
  context_.TryCancel();
}

void SnapshotSend::Tick(Deadline now) {
  MutexLock lock(&mutex_);
  if (now < give_up_at_ || !given_up_.ok()) return;
  given_up_ = absl::DeadlineExceededError(
      absl::StrCat("node ", snapshot_.to.value, " at ", snapshot_.address,
                   ": it has taken nothing of the snapshot for too long"));
  context_.TryCancel();
}

}  // namespace forebay::peers
