#include "client/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace forebay::client {
namespace {

constexpr int kReconnectMinMs = 50;
constexpr int kReconnectMaxMs = 500;
constexpr int kResolveMinMs = 500;
// How long a call looks for a connection that was lost before it says that it is.
constexpr absl::Duration kConnectLook = absl::Milliseconds(200);
// A channel that is left meanwhile is not waited for.
constexpr absl::Duration kLeftLook = absl::Milliseconds(20);
// What gRPC calls the least backoff: how long it tries to connect at least before it gives up.
constexpr int kConnectTimeoutMs = 10'000;

std::shared_ptr<grpc::ChannelCredentials> Credentials(const ConnectOptions& options) {
  if (!IsTls(options)) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = options.tls_root_pem;
  ssl.pem_private_key = options.tls_key_pem;
  ssl.pem_cert_chain = options.tls_cert_pem;
  return grpc::SslCredentials(ssl);
}

std::shared_ptr<grpc::Channel> MakeChannel(const ConnectOptions& options,
                                           const std::string& address) {
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
  return grpc::CreateCustomChannel(address, Credentials(options), arguments);
}

}  // namespace

Channel::Channel(const ConnectOptions& options, std::string address)
    : address_(std::move(address)), grpc_(MakeChannel(options, address_)) {}

void Channel::LetConnect(absl::Time deadline) const {
  if (grpc_->GetState(false) != GRPC_CHANNEL_TRANSIENT_FAILURE) return;
  absl::Time now = absl::Now();
  // The call itself, which knows why there is no connection, needs some of the time.
  const absl::Time until = now + std::min(kConnectLook, (deadline - now) / 2);
  for (; now < until && !left_; now = absl::Now()) {
    const absl::Time look = std::min(until, now + kLeftLook);
    if (grpc_->WaitForConnected(absl::ToChronoTime(look))) return;
  }
}

void Channel::ConnectNow() const { grpc::experimental::ChannelResetConnectionBackoff(grpc_.get()); }

bool Channel::Enter(grpc::ClientContext* context) {
  const std::lock_guard lock(mutex_);
  if (left_) return false;
  calls_.insert(context);
  return true;
}

void Channel::Exit(grpc::ClientContext* context) {
  const std::lock_guard lock(mutex_);
  calls_.erase(context);
}

void Channel::Leave() {
  // Under the lock, so that no context goes away meanwhile.
  const std::lock_guard lock(mutex_);
  left_ = true;
  for (grpc::ClientContext* call : calls_) call->TryCancel();
}

bool IsTls(const ConnectOptions& options) {
  return options.tls || !options.tls_root_pem.empty() || !options.tls_key_pem.empty();
}

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

void Authorize(const ConnectOptions& options, grpc::ClientContext* context) {
  if (!options.token.empty()) {
    context->AddMetadata("authorization", absl::StrCat("Bearer ", options.token));
  }
}

}  // namespace forebay::client
