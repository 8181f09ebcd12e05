#include "client/cluster_watch.h"

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace forebay::client {
namespace {

constexpr char kMethod[] = "/forebay.v1.ClusterService/Watch";

// Tags of the queue.
enum Operation : intptr_t { kStart = 1, kWrite, kRead, kFinish };

void* Tag(Operation operation) { return reinterpret_cast<void*>(operation); }

absl::Status Parse(grpc::ByteBuffer* body, v1::ClusterNews* news) {
  grpc::ProtoBufferReader reader(body);
  if (reader.status().ok() && news->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  return absl::InternalError("the answer is no ClusterNews: is the daemon of another version?");
}

}  // namespace

struct ClusterWatch::Stream {
  explicit Stream(const std::shared_ptr<grpc::Channel>& channel) : stub(channel) {}

  grpc::CompletionQueue queue;
  grpc::GenericStub stub;
  grpc::ClientContext* context = nullptr;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
  grpc::ByteBuffer body;
  int pending = 0;  // operations that the queue has not returned
  bool broken = false;
  bool ended = false;
};

ClusterWatch::ClusterWatch(const std::shared_ptr<grpc::Channel>& channel,
                           grpc::ClientContext* context)
    : stream_(std::make_unique<Stream>(channel)) {
  stream_->context = context;
  stream_->call = stream_->stub.PrepareCall(context, kMethod, &stream_->queue);
  stream_->call->StartCall(Tag(kStart));
  stream_->pending = 1;
}

ClusterWatch::~ClusterWatch() {
  if (!stream_->ended) {
    stream_->context->TryCancel();
    End().IgnoreError();
  }
  stream_->queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (stream_->queue.Next(&tag, &ok)) {
  }
}

absl::Status ClusterWatch::Next(absl::Duration silence, v1::ClusterNews* news) {
  Stream& s = *stream_;
  const auto deadline = std::chrono::system_clock::now() + absl::ToChronoNanoseconds(silence);
  while (!s.broken) {
    void* tag = nullptr;
    bool ok = false;
    const auto next = s.queue.AsyncNext(&tag, &ok, deadline);
    if (next != grpc::CompletionQueue::GOT_EVENT) {
      s.context->TryCancel();
      End().IgnoreError();
      return absl::DeadlineExceededError(
          absl::StrCat("no word for ", absl::FormatDuration(silence)));
    }
    --s.pending;
    s.broken = !ok;
    if (!ok) break;
    if (tag == Tag(kStart)) {
      grpc::Slice nothing;
      s.call->WriteLast(grpc::ByteBuffer(&nothing, 1), grpc::WriteOptions(), Tag(kWrite));
      s.call->Read(&s.body, Tag(kRead));
      s.pending += 2;
    } else if (tag == Tag(kRead)) {
      const absl::Status status = Parse(&s.body, news);
      s.body.Clear();
      s.call->Read(&s.body, Tag(kRead));
      ++s.pending;
      return status;
    }
  }
  return End();
}

// The stream is cancelled or has broken, so that its operations come back.
absl::Status ClusterWatch::End() {
  Stream& s = *stream_;
  void* tag = nullptr;
  bool ok = false;
  for (; s.pending > 0; --s.pending) s.queue.Next(&tag, &ok);
  grpc::Status status;
  s.call->Finish(&status, Tag(kFinish));
  s.queue.Next(&tag, &ok);
  s.broken = s.ended = true;
  // The stream has no end of its own.
  if (status.ok()) return absl::UnavailableError("the watch was ended");
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace forebay::client
