#include "server/grpc/rpc_server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/server_credentials.h>

#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/grpc/call.h"
#include "server/grpc/files.h"
#include "server/grpc/poller.h"

namespace forebay::server {
namespace {

// Enough that a burst of calls never waits for the next request to be armed.
constexpr int kArmedCalls = 256;
constexpr int kKeepaliveMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
// Peers ping each second (src/peers), and a client that pings more often than this is cut off.
constexpr int kClientPingIntervalMs = 500;

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Credentials(const TlsFiles& tls) {
  if (tls.certificate.empty()) return grpc::InsecureServerCredentials();
  auto certificate = ReadFile("tls.cert", tls.certificate);
  if (!certificate.ok()) return certificate.status();
  auto key = ReadFile("tls.key", tls.key);
  if (!key.ok()) return key.status();
  grpc::SslServerCredentialsOptions options(
      tls.client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                            : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  if (!tls.client_ca.empty()) {
    auto ca = ReadFile("tls.client_ca", tls.client_ca);
    if (!ca.ok()) return ca.status();
    options.pem_root_certs = *std::move(ca);
  }
  options.pem_key_cert_pairs.push_back({*std::move(key), *std::move(certificate)});
  return grpc::SslServerCredentials(options);
}

bool IsUnix(const std::string& address) { return absl::StartsWith(address, "unix:"); }

// gRPC does not say why it cannot listen.
absl::Status CannotListen(const std::string& address, const TlsFiles& tls) {
  const std::string why = WhyNotListen(address);
  if (!why.empty()) {
    return absl::UnavailableError(absl::StrCat(IsUnix(address) ? "listen.unix" : "listen.grpc",
                                               ": cannot listen on ", address, ": ", why));
  }
  if (tls.certificate.empty() || IsUnix(address)) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "tls.cert, tls.key: '", tls.certificate, "' and '", tls.key,
      "' are not a PEM certificate chain and its key",
      tls.client_ca.empty()
          ? ""
          : absl::StrCat(", or tls.client_ca '", tls.client_ca, "' holds no PEM certificate")));
}

bool IsLoopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.");
}

absl::Status CheckOptions(const RpcServerOptions& options) {
  if (options.addresses.empty()) return absl::InvalidArgumentError("no address to listen on");
  if (options.io_threads < 1 || options.io_threads > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("io_threads is ", options.io_threads, ", must be 1 to 64"));
  }
  for (const std::string& address : options.addresses) {
    if (IsUnix(address) || IsLoopback(address) || options.allow_remote_without_tls ||
        !options.tls.certificate.empty()) {
      continue;
    }
    return absl::FailedPreconditionError(
        absl::StrCat(address, " is not loopback, and neither TLS nor remote access is on"));
  }
  return absl::OkStatus();
}

}  // namespace

class RpcServer::Impl {
 public:
  absl::Status Start(const RpcServerOptions& options, MethodTable* methods,
                     std::vector<int>* ports);
  void EndCalls(const absl::Status& status,
                const std::function<bool(std::string_view method)>& keep);
  void Shutdown(std::chrono::milliseconds drain);
  grpc::CompletionQueue* shared_queue() { return pollers_.front()->queue(); }
  ~Impl();

 private:
  CallShared shared_;
  std::function<void()> before_queues_end_;
  std::vector<std::unique_ptr<Poller>> pollers_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::thread> threads_;
};

absl::Status RpcServer::Impl::Start(const RpcServerOptions& options, MethodTable* methods,
                                    std::vector<int>* ports) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  auto credentials = Credentials(options.tls);
  if (!credentials.ok()) return credentials.status();
  shared_.methods = methods;
  shared_.authorize = options.authorize;
  shared_.admit = options.admit;
  shared_.calls_max = options.calls_max;
  before_queues_end_ = options.before_queues_end;

  grpc::ServerBuilder builder;
  ports->assign(options.addresses.size(), 0);
  for (size_t i = 0; i < options.addresses.size(); ++i) {
    const auto& with =
        IsUnix(options.addresses[i]) ? grpc::InsecureServerCredentials() : *credentials;
    builder.AddListeningPort(options.addresses[i], with, &(*ports)[i]);
  }
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.message_bytes_max));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  // gRPC would widen the receive window by measured bandwidth times delay. On one machine that only
  // fills memory with bytes that wait to be read, at half as much CPU again for the page faults.
  // Large messages still open the window as they need.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // A peer that is gone without a word is noticed; idle actors may ping.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kClientPingIntervalMs);
  builder.RegisterAsyncGenericService(&shared_.service);
  for (int i = 0; i < options.io_threads; ++i) {
    pollers_.push_back(std::make_unique<Poller>(builder.AddCompletionQueue()));
  }
  server_ = builder.BuildAndStart();
  for (size_t i = 0; i < ports->size(); ++i) {
    if ((*ports)[i] == 0) {
      return CannotListen(options.addresses[i], options.tls);
    }
    if (IsUnix(options.addresses[i])) (*ports)[i] = 0;
  }
  if (server_ == nullptr) return absl::UnavailableError("cannot start the server");
  for (const auto& poller : pollers_) {
    for (int i = 0; i < kArmedCalls; ++i) Call::Await(&shared_, poller.get());
    threads_.emplace_back([&poller] { poller->Run(); });
  }
  return absl::OkStatus();
}

void RpcServer::Impl::EndCalls(const absl::Status& status,
                               const std::function<bool(std::string_view method)>& keep) {
  FOREBAY_CHECK(!status.ok());
  for (const auto& poller : pollers_) {
    poller->mailbox()->Post([&poller, status, keep] {
      poller->ForEachCall([&](Call* call) {
        if (!keep(call->method())) call->End(status);
      });
    });
  }
}

void RpcServer::Impl::Shutdown(std::chrono::milliseconds drain) {
  if (threads_.empty()) return;
  for (const auto& poller : pollers_) {
    poller->mailbox()->Post(
        [&poller] { poller->ForEachCall([](Call* call) { call->OnServerDrain(); }); });
  }
  server_->Shutdown(std::chrono::system_clock::now() + drain);
  if (before_queues_end_) before_queues_end_();
  for (const auto& poller : pollers_) poller->StopSoon();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

RpcServer::Impl::~Impl() {
  if (!threads_.empty()) {
    Shutdown(std::chrono::milliseconds(0));
    return;
  }
  // Start failed before the threads ran; gRPC wants the server stopped and the queues drained all
  // the same.
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  for (const auto& poller : pollers_) {
    if (poller->running()) poller->StopNow();
  }
}

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RpcServer::~RpcServer() = default;

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcServerOptions& options,
                                                            MethodTable* methods) {
  auto impl = std::make_unique<Impl>();
  std::vector<int> ports;
  if (absl::Status status = impl->Start(options, methods, &ports); !status.ok()) return status;
  auto server = std::unique_ptr<RpcServer>(new RpcServer(std::move(impl)));
  server->ports_ = std::move(ports);
  return server;
}

void RpcServer::EndCalls(const absl::Status& status,
                         std::function<bool(std::string_view method)> keep) {
  impl_->EndCalls(status, keep);
}

grpc::CompletionQueue* RpcServer::shared_queue() { return impl_->shared_queue(); }

void RpcServer::Shutdown(std::chrono::milliseconds drain) { impl_->Shutdown(drain); }

}  // namespace forebay::server
