// A blocking client of raw byte buffers, and a server on a free loopback port, for the tests of the
// gRPC layer.
//
// One thread at a time, except that a server has its own.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/rpc_method.h>
#include <grpcpp/support/sync_stream.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "server/grpc/rpc_server.h"

namespace forebay::server {

inline grpc::ByteBuffer Body(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

inline std::string Text(grpc::ByteBuffer body) {
  grpc::Slice slice;
  EXPECT_TRUE(body.DumpToSingleSlice(&slice).ok());
  return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

class TestServer {
 public:
  explicit TestServer(MethodTable* methods, RpcServerOptions options = {}) {
    options.addresses = {"127.0.0.1:0"};
    auto started = RpcServer::Start(options, methods);
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    channel_ = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->ports()[0]),
                                         grpc::InsecureChannelCredentials(), arguments);
  }
  RpcServer& server() { return *server_; }
  const std::shared_ptr<grpc::Channel>& channel() { return channel_; }

  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  }

  grpc::Status Unary(const char* method, const std::string& request, std::string* response,
                     grpc::ClientContext* context) {
    const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::NORMAL_RPC);
    grpc::ByteBuffer answer;
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
            channel_.get(), rpc, context, Body(request), &answer);
    if (status.ok()) *response = Text(std::move(answer));
    return status;
  }
  grpc::Status Unary(const char* method, const std::string& request, std::string* response) {
    grpc::ClientContext context;
    SetDeadline(&context);
    return Unary(method, request, response, &context);
  }

  using ClientStream = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;
  std::unique_ptr<ClientStream> OpenStream(const char* method, grpc::ClientContext* context) {
    SetDeadline(context);
    const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::BIDI_STREAMING);
    return std::unique_ptr<ClientStream>(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
            channel_.get(), rpc, context));
  }

 private:
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace forebay::server
