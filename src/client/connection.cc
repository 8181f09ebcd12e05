#include "client/connection.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/tsan.h"
#include "client/transport_hint.h"

namespace forebay::client {
namespace {

using grpc::internal::RpcMethod;

// Trailing metadata of the daemon, and the payload of our status that carries it on.
constexpr char kRetryAfterKey[] = "retry-after-ms";
constexpr char kRetryAfterPayload[] = "forebay/retry-after-ms";
constexpr int kReconnectMinMs = 100;
constexpr int kReconnectMaxMs = 2'000;
constexpr int kResolveMinMs = 500;
// How long a call looks for a connection that was lost before it says that it is.
constexpr absl::Duration kConnectLook = absl::Milliseconds(200);
// What gRPC calls the least backoff: how long it tries to connect at least before it gives up.
constexpr int kConnectTimeoutMs = 10'000;
constexpr absl::Duration kBackoffMin = absl::Milliseconds(50);
constexpr absl::Duration kBackoffMax = absl::Seconds(2);

absl::Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context,
                      const std::string& address, bool tls) {
  if (status.ok()) return absl::OkStatus();
  // The numbers of the codes are the same. What comes from the transport, not from the daemon, is
  // told by its code alone.
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  const bool transport = code == absl::StatusCode::kUnavailable;
  std::string message = status.error_message();
  if (transport) {
    const std::string hint = TransportHint(message, tls);
    message = absl::StrCat("daemon at ", address, ": ", hint, hint.empty() ? "" : ": ", message);
  }
  absl::Status out(code, message);
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(kRetryAfterKey);
  if (found != trailers.end()) {
    out.SetPayload(kRetryAfterPayload,
                   absl::Cord(absl::string_view(found->second.data(), found->second.size())));
  }
  return out;
}

void Authorize(const ConnectOptions& options, grpc::ClientContext* context) {
  if (!options.token.empty()) {
    context->AddMetadata("authorization", absl::StrCat("Bearer ", options.token));
  }
}

bool IsTls(const ConnectOptions& options) {
  return options.tls || !options.tls_root_pem.empty() || !options.tls_key_pem.empty();
}

// gRPC says what is wrong with them only in its own log.
absl::Status CheckPem(const ConnectOptions& options) {
  const std::pair<const char*, const std::string*> certificates[] = {
      {"tls_root_pem", &options.tls_root_pem}, {"tls_cert_pem", &options.tls_cert_pem}};
  for (const auto& [name, pem] : certificates) {
    if (pem->empty() || absl::StrContains(*pem, "-----BEGIN CERTIFICATE-----")) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": holds no certificate; PEM text is wanted, not a path"));
  }
  if (!options.tls_key_pem.empty() && !absl::StrContains(options.tls_key_pem, "PRIVATE KEY-----")) {
    return absl::InvalidArgumentError(
        "tls_key_pem: holds no private key; PEM text is wanted, not a path");
  }
  return absl::OkStatus();
}

std::shared_ptr<grpc::ChannelCredentials> Credentials(const ConnectOptions& options) {
  if (!IsTls(options)) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = options.tls_root_pem;
  ssl.pem_private_key = options.tls_key_pem;
  ssl.pem_cert_chain = options.tls_cert_pem;
  return grpc::SslCredentials(ssl);
}

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

struct Connection::Channel {
  // A lost connection comes back only while some thread polls, and a call that fails at once does
  // not; gRPC itself looks each 5 s.
  void LetConnect(absl::Time deadline) const {
    if (grpc->GetState(false) != GRPC_CHANNEL_TRANSIENT_FAILURE) return;
    const absl::Time now = absl::Now();
    // The call itself, which knows why there is no connection, needs some of the time.
    grpc->WaitForConnected(absl::ToChronoTime(now + std::min(kConnectLook, (deadline - now) / 2)));
  }

  std::shared_ptr<grpc::Channel> grpc;
};

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const ConnectOptions& options) {
  if (options.address.empty()) {
    return absl::InvalidArgumentError("address: is empty; give HOST:PORT or unix:/path");
  }
  if (options.tls_key_pem.empty() != options.tls_cert_pem.empty()) {
    return absl::InvalidArgumentError("tls_key_pem, tls_cert_pem: give both or none");
  }
  if (absl::Status status = CheckPem(options); !status.ok()) return status;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // Each Connection has a connection of its own.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMinMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  // After a failure gRPC looks the name up again before it connects; by default at most each 30 s.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, kResolveMinMs);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Loopback and cluster addresses are reached directly, whatever the environment says of proxies.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  auto channel = std::make_unique<Channel>();
  channel->grpc = grpc::CreateCustomChannel(options.address, Credentials(options), arguments);
  return std::unique_ptr<Connection>(new Connection(options, std::move(channel)));
}

Connection::Connection(const ConnectOptions& options, std::unique_ptr<Channel> channel)
    : options_(options), channel_(std::move(channel)) {}

Connection::~Connection() = default;

absl::Status Connection::CallOnce(const std::string& method, std::string_view request,
                                  absl::Time deadline, Cancellation* cancellation,
                                  std::string* response) {
  channel_->LetConnect(deadline);
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
  const grpc::Status status = grpc::internal::BlockingUnaryCall(
      channel_->grpc.get(), RpcMethod(method.c_str(), RpcMethod::NORMAL_RPC), &context, out, &in);
  if (cancellation != nullptr) cancellation->Forget(act);
  if (!status.ok()) return FromGrpc(status, context, options_.address, IsTls(options_));
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
  std::string response;
  for (int attempt = 1;; ++attempt) {
    absl::Status status = CallOnce(name, request, deadline, options.cancellation, &response);
    if (status.ok()) return response;
    if (!options.retry || !MayRetry(status)) return status;
    const absl::Duration pause = Backoff(status, attempt);
    // What is known says more than "deadline exceeded" would.
    if (absl::Now() + pause >= deadline) return status;
    if (!Pause(pause, options.cancellation)) return absl::CancelledError("cancelled by the caller");
  }
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
  grpc::ClientContext context;
  std::string method;  // gRPC keeps the pointer
  std::string address;
  bool tls = false;
  std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream;
  bool finished = false;
};

MessageStream::MessageStream(std::unique_ptr<Call> call) : call_(std::move(call)) {}

MessageStream::~MessageStream() {
  if (call_->finished) return;
  Cancel();
  Finish().IgnoreError();
}

std::unique_ptr<MessageStream> Connection::OpenStream(const std::string& method) {
  channel_->LetConnect(absl::InfiniteFuture());
  auto call = std::make_unique<MessageStream::Call>();
  Authorize(options_, &call->context);
  call->method = method;
  call->address = options_.address;
  call->tls = IsTls(options_);
  // As generated code does it, with raw messages in place of typed ones.
  call->stream.reset(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          channel_->grpc.get(), RpcMethod(call->method.c_str(), RpcMethod::BIDI_STREAMING),
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
  return FromGrpc(status, call_->context, call_->address, call_->tls);
}

void MessageStream::Cancel() { call_->context.TryCancel(); }

}  // namespace forebay::client
