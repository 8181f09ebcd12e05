#include "etcd/wire.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/tsan.h"
#include "node/coordinator.h"

namespace forebay::etcd {
namespace {

constexpr int kReconnectMinMs = 50;
constexpr int kReconnectMaxMs = 500;
// A frozen member's kernel takes the connection, and nothing comes after that.
constexpr int kConnectTimeoutMs = 1'000;
// etcd closes connections on which it is pinged more often than each 5 s (its default).
constexpr int kKeepaliveMs = 6'000;
constexpr int kKeepaliveTimeoutMs = 2'000;

// How late an event of a watch may be told.
constexpr std::chrono::milliseconds kLook(20);

constexpr char kNeedsLeader[] = "hasleader";

absl::Status FromGrpc(const grpc::Status& status, const std::string& member) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat("etcd at ", member, ": ", status.error_message()));
}

std::shared_ptr<grpc::Channel> Connect(const Options& options, const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(node::CoordinatorLimits::kStateBytesMax);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMinMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Nothing is sent twice unless this code decides so.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const bool tls = options.tls || !options.tls_root_pem.empty() || !options.tls_key_pem.empty();
  if (!tls)
    return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = options.tls_root_pem;
  ssl.pem_private_key = options.tls_key_pem;
  ssl.pem_cert_chain = options.tls_cert_pem;
  return grpc::CreateCustomChannel(endpoint, grpc::SslCredentials(ssl), arguments);
}

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return grpc::ByteBuffer(&slice, 1);
}

absl::StatusOr<std::string> FromBuffer(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return absl::InternalError("etcd's answer cannot be read");
  std::string bytes;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

std::chrono::system_clock::time_point OnTheWall(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(left);
}

struct Waiting {
  std::function<void(bool)> then;
};

}  // namespace

absl::Status CheckOptions(const Options& options) {
  if (options.endpoints.empty() || options.endpoints.size() > kMembersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("endpoints: 1 to ", kMembersMax, " of HOST:PORT are wanted"));
  }
  for (const std::string& endpoint : options.endpoints) {
    if (!endpoint.empty() && !absl::StrContains(endpoint, "://")) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("endpoints: '", endpoint, "' is not HOST:PORT; TLS is an option of its own"));
  }
  if (options.tls_key_pem.empty() != options.tls_cert_pem.empty()) {
    return absl::InvalidArgumentError("tls_key_pem, tls_cert_pem: give both or none");
  }
  for (const absl::Duration time :
       {options.attempt_timeout, options.transaction_timeout, options.heartbeat_interval,
        options.silence_max - options.heartbeat_interval}) {
    if (time > absl::ZeroDuration()) continue;
    return absl::InvalidArgumentError(
        "attempt_timeout, transaction_timeout, heartbeat_interval, silence_max: must be positive, "
        "and the last one longer than the interval");
  }
  return absl::OkStatus();
}

struct Wire::Grpc {
  std::vector<std::string> names;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  grpc::CompletionQueue queue;
  std::thread poller;
  Mutex mutex;
  CondVar changed;
  int awaited ABSL_GUARDED_BY(mutex) = 0;
};

struct Wire::Call {
  grpc::ClientContext context;
  std::string method;  // gRPC keeps the pointer
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
  grpc::ByteBuffer response;
  grpc::Status status;
};

// Its tags hold it, so that it lives until gRPC has let go of it.
class Wire::GrpcStream final : public Stream, public std::enable_shared_from_this<GrpcStream> {
 public:
  GrpcStream(Wire* wire, size_t member, std::string method, Handler handler)
      : wire_(wire), member_(member), method_(std::move(method)), handler_(std::move(handler)) {
    wire_->streams_.insert(this);
    if (!wire_->token_.empty()) context_.AddMetadata("token", wire_->token_);
    // A member that has lost the others ends the stream.
    context_.AddMetadata(kNeedsLeader, "true");
  }
  ~GrpcStream() override { wire_->streams_.erase(this); }

  void Start() {
    Grpc& grpc = *wire_->grpc_;
    wire_->Await(1);
    call_ = grpc.stubs[member_]->PrepareCall(&context_, method_, &grpc.queue);
    call_->StartCall(wire_->Tag([self = shared_from_this()](bool ok) { self->Started(ok); }));
  }
  bool Write(const std::string& message) override {
    if (ended_ || writes_.size() >= kWritesMax) return false;
    writes_.push_back(ToBuffer(message));
    if (started_ && writes_.size() == 1) WriteOne();
    return true;
  }
  void Cancel() override {
    handler_ = {};
    ended_ = true;
    context_.TryCancel();
  }
  void TryCancel() { context_.TryCancel(); }

 private:
  void Started(bool ok) {
    wire_->Await(-1);
    if (!ok) return Finish();
    started_ = true;
    if (!writes_.empty()) WriteOne();
    Read();
  }
  void WriteOne() {
    call_->Write(writes_.front(), wire_->Tag([self = shared_from_this()](bool ok) {
      self->writes_.pop_front();
      // If not ok the end comes by the read.
      if (ok && !self->writes_.empty()) self->WriteOne();
    }));
  }
  void Read() {
    call_->Read(&incoming_, wire_->Tag([self = shared_from_this()](bool ok) {
      if (!ok) return self->Finish();
      const auto bytes = FromBuffer(self->incoming_);
      if (!bytes.ok()) return self->context_.TryCancel(), self->Finish();
      if (self->handler_.message) {
        const auto message = self->handler_.message;  // it may cancel the stream
        message(*bytes);
      }
      self->Read();
    }));
  }
  void Finish() {
    ended_ = true;
    call_->Finish(&status_, wire_->Tag([self = shared_from_this()](bool) {
      const auto end = std::exchange(self->handler_, {}).end;
      absl::Status why = FromGrpc(self->status_, self->wire_->grpc_->names[self->member_]);
      if (why.ok()) why = absl::UnavailableError("etcd has ended the stream");
      if (end) end(why);
    }));
  }

  Wire* const wire_;
  const size_t member_;
  const std::string method_;
  Handler handler_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  std::deque<grpc::ByteBuffer> writes_;  // the first one is being written, once it started
  grpc::ByteBuffer incoming_;
  grpc::Status status_;
  bool started_ = false;
  bool ended_ = false;
};

Wire::Wire(node::EventLoop* loop, const Options& options)
    : loop_(loop), grpc_(std::make_unique<Grpc>()) {
  for (const std::string& endpoint : options.endpoints) {
    grpc_->names.push_back(endpoint);
    grpc_->stubs.push_back(std::make_unique<grpc::GenericStub>(Connect(options, endpoint)));
  }
  grpc_->poller = std::thread([this] { Poll(); });
}

Wire::~Wire() {
  FOREBAY_CHECK(outstanding_ == 0);
  grpc_->queue.Shutdown();
  Await(1);
  grpc_->poller.join();
}

void Wire::Poll() {
  using Status = grpc::CompletionQueue::NextStatus;
  void* tag = nullptr;
  bool ok = false;
  auto wait = kLook;
  while (true) {
    const Status status =
        grpc_->queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + wait);
    if (status == Status::SHUTDOWN) return;
    if (status == Status::GOT_EVENT) {
      TsanAcquire(tag);
      loop_->Post([this, tag, ok] { Completed(tag, ok); });
      continue;  // with all that have come
    }
    wait = kLook;
    MutexLock lock(&grpc_->mutex);
    if (grpc_->awaited > 0) continue;
    grpc_->changed.WaitUntil(&grpc_->mutex, std::chrono::steady_clock::now() + kLook);
    if (grpc_->awaited == 0) wait = std::chrono::milliseconds(0);
  }
}

void Wire::Await(int more) {
  MutexLock lock(&grpc_->mutex);
  grpc_->awaited += more;
  grpc_->changed.NotifyAll();
}

void* Wire::Tag(std::function<void(bool)> then) {
  ++outstanding_;
  auto* waiting = new Waiting{std::move(then)};
  TsanRelease(waiting);
  return waiting;
}

void Wire::Completed(void* tag, bool ok) {
  const std::unique_ptr<Waiting> waiting(static_cast<Waiting*>(tag));
  // What it starts is counted before it is let go.
  waiting->then(ok);
  --outstanding_;
  waiting->then = nullptr;
  if (outstanding_ == 0 && drained_) std::exchange(drained_, nullptr)();
}

void Wire::Unary(size_t member, const std::string& method, const std::string& request,
                 Deadline deadline, bool needs_leader, Done done) {
  auto call = std::make_shared<Call>();
  call->method = method;
  call->context.set_deadline(OnTheWall(deadline));
  if (!token_.empty()) call->context.AddMetadata("token", token_);
  if (needs_leader) call->context.AddMetadata(kNeedsLeader, "true");
  call->reader = grpc_->stubs[member]->PrepareUnaryCall(&call->context, call->method,
                                                        ToBuffer(request), &grpc_->queue);
  calls_.insert(call.get());
  Await(1);
  call->reader->StartCall();
  auto told = std::make_shared<Done>(std::move(done));
  call->reader->Finish(&call->response, &call->status, Tag([this, member, call, told](bool) {
    calls_.erase(call.get());
    Await(-1);
    if (!call->status.ok()) return (*told)(FromGrpc(call->status, grpc_->names[member]));
    (*told)(FromBuffer(call->response));
  }));
}

std::shared_ptr<Stream> Wire::Open(size_t member, const std::string& method,
                                   Stream::Handler handler) {
  auto stream = std::make_shared<GrpcStream>(this, member, method, std::move(handler));
  stream->Start();
  return stream;
}

void Wire::Cancel(std::function<void()> drained) {
  for (Call* call : calls_) call->context.TryCancel();
  for (GrpcStream* stream : streams_) stream->TryCancel();
  if (outstanding_ == 0) return drained();
  drained_ = std::move(drained);
}

}  // namespace forebay::etcd
