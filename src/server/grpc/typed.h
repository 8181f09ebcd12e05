// Protobuf messages on top of the raw layer: for the methods that are not hot.
//
// A TypedResponder may be used from any thread, once.
#pragma once

#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/grpc/rpc.h"

namespace forebay::server {

template <class Message>
bool ParseBody(grpc::ByteBuffer* body, Message* message) {
  grpc::ProtoBufferReader reader(body);
  return reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
}

template <class Message>
grpc::ByteBuffer SerializeBody(const Message& message) {
  grpc::Slice slice(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

template <class Response>
class TypedResponder {
 public:
  explicit TypedResponder(Responder responder) : responder_(std::move(responder)) {}
  void Reply(const Response& response) { responder_.Reply(SerializeBody(response)); }
  void Fail(const absl::Status& status) { responder_.Fail(status); }
  bool cancelled() const { return responder_.cancelled(); }
  Deadline deadline() const { return responder_.deadline(); }
  void OnCancel(Task task) { responder_.OnCancel(std::move(task)); }

 private:
  Responder responder_;
};

template <class Request, class Response>
UnaryHandler TypedUnary(
    std::function<void(const CallContext&, Request, TypedResponder<Response>)> handler) {
  return [handler = std::move(handler)](const CallContext& call, grpc::ByteBuffer body,
                                        Responder responder) {
    Request request;
    if (!ParseBody(&body, &request)) {
      responder.Fail(absl::InvalidArgumentError(
          absl::StrCat("the request is no ", Request::descriptor()->full_name())));
      return;
    }
    handler(call, std::move(request), TypedResponder<Response>(std::move(responder)));
  };
}

}  // namespace forebay::server
