#include "client/connection.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/tsan.h"
#include "client/channel.h"
#include "client/cluster.h"
#include "client/route.h"
#include "client/transport_hint.h"

namespace forebay::client {
namespace {

using grpc::internal::RpcMethod;

// Trailing metadata of the daemon, and the payload of our status that carries it on.
constexpr char kRetryAfterKey[] = "retry-after-ms";
constexpr char kRetryAfterPayload[] = "forebay/retry-after-ms";
// A refusal by a node that does not lead.
constexpr char kLeaderKey[] = "forebay-leader";
constexpr char kLeaderEpochKey[] = "forebay-leader-epoch";
// Served by every node of a cluster.
constexpr std::string_view kAnyNode = "/forebay.v1.ClusterService/";
constexpr absl::Duration kBackoffMin = absl::Milliseconds(50);
constexpr absl::Duration kBackoffMax = absl::Seconds(2);

grpc::Slice ToSlice(const Piece& piece) {
  if (piece.owner == nullptr) return grpc::Slice(piece.bytes.data(), piece.bytes.size());
  using Owner = std::shared_ptr<const void>;
  auto* owner = new Owner(piece.owner);
  TsanRelease(owner);
  return grpc::Slice(
      const_cast<char*>(piece.bytes.data()), piece.bytes.size(),
      [](void* held) {
        TsanAcquire(held);
        delete static_cast<Owner*>(held);
      },
      owner);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const ConnectOptions& options) {
  auto seeds = ParseSeeds(options.address);
  if (!seeds.ok()) return seeds.status();
  if (options.tls_key_pem.empty() != options.tls_cert_pem.empty()) {
    return absl::InvalidArgumentError("tls_key_pem, tls_cert_pem: give both or none");
  }
  if (absl::Status status = CheckPem(options); !status.ok()) return status;
  return std::unique_ptr<Connection>(
      new Connection(options, std::make_unique<Cluster>(options, *seeds)));
}

Connection::Connection(const ConnectOptions& options, std::unique_ptr<Cluster> cluster)
    : options_(options), cluster_(std::move(cluster)) {}

Connection::~Connection() = default;

absl::Status Connection::FromGrpc(const grpc::Status& status, const grpc::ClientContext& context,
                                  const Channel& channel, bool cancelled) {
  if (status.ok()) {
    cluster_->Answered(channel);
    return absl::OkStatus();
  }
  // The numbers of the codes are the same. What comes from the transport, not from the daemon, is
  // told by its code alone.
  auto code = static_cast<absl::StatusCode>(status.error_code());
  std::string message = status.error_message();
  if (code == absl::StatusCode::kCancelled && !cancelled) {
    code = absl::StatusCode::kUnavailable;
    message = channel.left() ? "another node leads" : "the call was cut off";
  }
  if (code == absl::StatusCode::kUnavailable) {
    const std::string hint = TransportHint(message, IsTls(options_));
    message = absl::StrCat("daemon at ", channel.address(), ": ", hint, hint.empty() ? "" : ": ",
                           message);
  }
  absl::Status out(code, message);
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto trailer = [&trailers](const char* key) {
    const auto found = trailers.find(key);
    return found == trailers.end() ? std::string()
                                   : std::string(found->second.data(), found->second.size());
  };
  if (const std::string after = trailer(kRetryAfterKey); !after.empty()) {
    out.SetPayload(kRetryAfterPayload, absl::Cord(after));
  }
  if (code != absl::StatusCode::kUnavailable) return out;
  uint64_t epoch = 0;
  const std::string leader = trailer(kLeaderKey);
  if (!leader.empty() && !absl::SimpleAtoi(trailer(kLeaderEpochKey), &epoch)) epoch = 0;
  return cluster_->Failed(channel, std::move(out), leader, epoch);
}

absl::Status Connection::CallOnce(Channel* channel, const std::string& method,
                                  std::string_view request, absl::Time deadline,
                                  Cancellation* cancellation, std::string* response) {
  channel->LetConnect(deadline);
  grpc::ClientContext context;
  Authorize(options_, &context);
  context.set_deadline(absl::ToChronoTime(deadline));
  // The caller's bytes outlive the call, but not what the transport may still hold of a cancelled
  // one; so they are copied.
  grpc::Slice slice(request.data(), request.size());
  const grpc::ByteBuffer out(&slice, 1);
  grpc::ByteBuffer in;
  uint64_t act = 0;
  if (cancellation != nullptr) act = cancellation->OnCancel([&context] { context.TryCancel(); });
  grpc::Status status = grpc::Status::CANCELLED;
  if (channel->Enter(&context)) {
    status = grpc::internal::BlockingUnaryCall(
        channel->grpc(), RpcMethod(method.c_str(), RpcMethod::NORMAL_RPC), &context, out, &in);
    channel->Exit(&context);
  }
  if (cancellation != nullptr) cancellation->Forget(act);
  const bool cancelled = cancellation != nullptr && cancellation->cancelled();
  if (auto failed = FromGrpc(status, context, *channel, cancelled); !failed.ok()) return failed;
  std::vector<grpc::Slice> slices;
  if (!in.Dump(&slices).ok()) return absl::InternalError("the daemon's answer cannot be read");
  response->clear();
  response->reserve(in.Length());
  for (const grpc::Slice& part : slices) {
    response->append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Connection::Unary(std::string_view method, std::string_view request,
                                              const CallOptions& options) {
  const UsageMeter::Scope scope(&meter_);
  const std::string name(method);
  const absl::Time deadline = absl::Now() + CallTimeout(options);
  const bool of_any_node = method.substr(0, kAnyNode.size()) == kAnyNode;
  std::string response;
  absl::Status before;
  for (int attempt = 1;; ++attempt) {
    const auto channel = of_any_node ? cluster_->Any(attempt) : cluster_->Current();
    absl::Status status =
        CallOnce(channel.get(), name, request, deadline, options.cancellation, &response);
    if (status.ok()) return response;
    // What the last whole try said, says more.
    if (absl::IsDeadlineExceeded(status) && !before.ok()) return cluster_->Ended(before);
    if (!MayRetry(status) || (!options.retry && !cluster_->Elsewhere(status, attempt))) {
      return cluster_->Ended(std::move(status));
    }
    const absl::Duration pause = Backoff(status, attempt);
    const absl::Duration left = deadline - absl::Now();
    // With several nodes one may come to lead any moment; else what is known says more than
    // "deadline exceeded" would.
    if (pause >= left && !cluster_->several()) return cluster_->Ended(std::move(status));
    if (!cluster_->Pause(status, std::min(pause, left), options.cancellation)) {
      return absl::CancelledError("cancelled by the caller");
    }
    if (absl::Now() >= deadline) return cluster_->Ended(status);
    before = std::move(status);
  }
}

bool Connection::PauseAfter(const absl::Status& failure, int failures, Cancellation* cancellation) {
  return cluster_->Pause(failure, failures == 0 ? absl::ZeroDuration() : Backoff(failure, failures),
                         cancellation);
}

bool MayRetry(const absl::Status& status) {
  if (absl::IsUnavailable(status)) return true;
  return absl::IsResourceExhausted(status) && RetryAfter(status) > absl::ZeroDuration();
}

absl::Duration RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfterPayload);
  int64_t ms = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &ms) || ms < 0) {
    return absl::ZeroDuration();
  }
  return absl::Milliseconds(ms);
}

absl::Duration Backoff(const absl::Status& status, int attempt) {
  const absl::Duration asked = RetryAfter(status);
  if (asked > absl::ZeroDuration()) return asked;
  return std::min(kBackoffMin * (1 << std::min(attempt - 1, 10)), kBackoffMax);
}

bool Pause(absl::Duration duration, Cancellation* cancellation) {
  if (cancellation != nullptr) return !cancellation->Wait(duration);
  absl::SleepFor(duration);
  return true;
}

struct Incoming::Slices {
  std::vector<grpc::Slice> slices;
};

Incoming::Incoming() : slices_(std::make_unique<Slices>()) {}
Incoming::~Incoming() = default;
Incoming::Incoming(Incoming&&) noexcept = default;
Incoming& Incoming::operator=(Incoming&&) noexcept = default;

size_t Incoming::bytes() const {
  size_t bytes = 0;
  for (const auto& view : views_) bytes += view.size();
  return bytes;
}

std::string_view Incoming::Whole() {
  if (views_.empty()) return {};
  if (views_.size() == 1) return views_[0];
  whole_.clear();
  for (const auto& view : views_) whole_.append(view);
  return whole_;
}

struct MessageStream::Call {
  Connection* connection = nullptr;
  std::shared_ptr<Channel> channel;
  grpc::ClientContext context;
  std::string method;  // gRPC keeps the pointer
  std::atomic<bool> cancelled{false};
  std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream;
  bool finished = false;
};

MessageStream::MessageStream(std::unique_ptr<Call> call) : call_(std::move(call)) {}

MessageStream::~MessageStream() {
  if (!call_->finished) {
    Cancel();
    Finish().IgnoreError();
  }
}

std::unique_ptr<MessageStream> Connection::OpenStream(const std::string& method) {
  auto call = std::make_unique<MessageStream::Call>();
  call->connection = this;
  call->method = method;
  Authorize(options_, &call->context);
  do {
    call->channel = cluster_->Current();
    call->channel->LetConnect(absl::InfiniteFuture());
  } while (!call->channel->Enter(&call->context));
  // As generated code does it, with raw messages in place of typed ones.
  call->stream.reset(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          call->channel->grpc(), RpcMethod(call->method.c_str(), RpcMethod::BIDI_STREAMING),
          &call->context));
  return std::unique_ptr<MessageStream>(new MessageStream(std::move(call)));
}

bool MessageStream::Write(absl::Span<const Piece> pieces) {
  std::vector<grpc::Slice> slices;
  slices.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    if (!piece.bytes.empty()) slices.push_back(ToSlice(piece));
  }
  return call_->stream->Write(grpc::ByteBuffer(slices.data(), slices.size()));
}

bool MessageStream::Read(Incoming* message) {
  message->views_.clear();
  message->slices_->slices.clear();
  grpc::ByteBuffer buffer;
  if (!call_->stream->Read(&buffer)) return false;
  if (!buffer.Dump(&message->slices_->slices).ok()) return false;
  for (const grpc::Slice& slice : message->slices_->slices) {
    if (slice.size() == 0) continue;
    message->views_.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return true;
}

void MessageStream::WritesDone() { call_->stream->WritesDone(); }

absl::Status MessageStream::Finish() {
  call_->finished = true;
  const grpc::Status status = call_->stream->Finish();
  call_->channel->Exit(&call_->context);
  return call_->connection->FromGrpc(status, call_->context, *call_->channel, call_->cancelled);
}

void MessageStream::Cancel() {
  // What was cancelled before, when the node was left, is to be told as that.
  if (!call_->channel->left()) call_->cancelled = true;
  call_->context.TryCancel();
}

}  // namespace forebay::client
