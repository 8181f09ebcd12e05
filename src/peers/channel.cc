#include "peers/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "forebay/v1/peer.pb.h"
#include "peers/frames.h"

namespace forebay::peers {
namespace {

bool IsTls(const PeerTls& tls) { return tls.tls || !tls.root.empty() || !tls.key.empty(); }

std::shared_ptr<grpc::ChannelCredentials> Credentials(const PeerTls& tls) {
  if (!IsTls(tls)) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = tls.root;
  ssl.pem_private_key = tls.key;
  ssl.pem_cert_chain = tls.cert;
  return grpc::SslCredentials(ssl);
}

int Ms(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

}  // namespace

absl::Status CheckOptions(const PeerTransportOptions& options) {
  if (options.cluster.empty()) return absl::InvalidArgumentError("cluster: is empty");
  if (options.self.value == 0) return absl::InvalidArgumentError("self: is 0");
  if (options.tls.key.empty() != options.tls.cert.empty()) {
    return absl::InvalidArgumentError("tls.cert, tls.key: give both or none");
  }
  for (const auto& [name, pem] :
       {std::pair("tls.root", &options.tls.root), std::pair("tls.cert", &options.tls.cert)}) {
    // gRPC says what is wrong with them only in its own log.
    if (pem->empty() || absl::StrContains(*pem, "-----BEGIN CERTIFICATE-----")) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, ": holds no certificate in PEM"));
  }
  if (!options.tls.key.empty() && !absl::StrContains(options.tls.key, "PRIVATE KEY-----")) {
    return absl::InvalidArgumentError("tls.key: holds no private key in PEM");
  }
  for (const absl::Duration time :
       {options.keepalive, options.keepalive_timeout, options.connect_timeout, options.backoff_min,
        options.progress_timeout, options.answer_timeout}) {
    if (time >= absl::Milliseconds(1) && time <= absl::Hours(24)) continue;
    return absl::InvalidArgumentError("the times must be 1 ms to 24 h");
  }
  if (options.backoff_max < options.backoff_min) {
    return absl::InvalidArgumentError("backoff_max: is below backoff_min");
  }
  return absl::OkStatus();
}

std::shared_ptr<grpc::Channel> Connect(const PeerTransportOptions& options,
                                       const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // What gRPC calls the least backoff is how long it tries to connect.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Ms(options.connect_timeout));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Ms(options.connect_timeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Ms(options.keepalive));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Ms(options.keepalive_timeout));
  // A node that only sends pings all the same.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  // Nothing is sent twice unless this code decides so, and peers are reached directly.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, Credentials(options.tls), arguments);
}

void Authorize(const PeerTransportOptions& options, grpc::ClientContext* context) {
  if (options.token.empty()) return;
  context->AddMetadata("authorization", absl::StrCat("Bearer ", options.token));
}

std::string Opening(const PeerTransportOptions& options, cluster::NodeId to) {
  v1::PeerOpening opening;
  opening.set_cluster(options.cluster);
  opening.set_from(options.self.value);
  opening.set_to(to.value);
  opening.set_protocol(kProtocol);
  return opening.SerializeAsString();
}

absl::Status FromGrpc(const grpc::Status& status, cluster::NodeId peer,
                      const std::string& address) {
  const std::string who = absl::StrCat("node ", peer.value, " at ", address, ": ");
  if (status.ok()) return absl::UnavailableError(absl::StrCat(who, "it has ended the stream"));
  // The numbers of the codes are the same.
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(who, status.error_message()));
}

}  // namespace forebay::peers
