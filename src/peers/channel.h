// Connections to peers as gRPC wants them described.
//
// Pure functions; safe from any thread.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "peers/options.h"

namespace forebay::peers {

inline constexpr char kMessagesMethod[] = "/forebay.v1.PeerService/Messages";
inline constexpr char kSnapshotMethod[] = "/forebay.v1.PeerService/Snapshot";

// InvalidArgument names the option.
absl::Status CheckOptions(const PeerTransportOptions& options);

// A new connection, opened by the first call on it. Each attempt to reach a peer has its own, so
// that when to try again is decided here, and addresses are looked up anew.
std::shared_ptr<grpc::Channel> Connect(const PeerTransportOptions& options,
                                       const std::string& address);
void Authorize(const PeerTransportOptions& options, grpc::ClientContext* context);
// The encoded PeerOpening of a stream to `to`.
std::string Opening(const PeerTransportOptions& options, cluster::NodeId to);

// Unavailable if the peer ended the stream without a reason.
absl::Status FromGrpc(const grpc::Status& status, cluster::NodeId peer, const std::string& address);

}  // namespace forebay::peers
