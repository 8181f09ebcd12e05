// AdminService, a file a family; and what the families share.
//
// Add...: before the server starts, on one thread. ForEachShard: thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/grpc/typed.h"
#include "server/services.h"

namespace forebay::server {

void AddSourceMethods(ServiceContext* context, MethodTable* methods);
void AddTaskMethods(ServiceContext* context, MethodTable* methods);
void AddTaskListMethods(ServiceContext* context, MethodTable* methods);
void AddReadRollout(ServiceContext* context, MethodTable* methods);
void AddRolloutMethods(ServiceContext* context, MethodTable* methods);
void AddDropMethods(ServiceContext* context, MethodTable* methods);
void AddClientMethods(ServiceContext* context, MethodTable* methods);
void AddStatusMethods(ServiceContext* context, MethodTable* methods);
void AddStorageMethods(ServiceContext* context, MethodTable* methods);
void AddVerifyMethods(ServiceContext* context, MethodTable* methods);
void AddRewindMethods(ServiceContext* context, MethodTable* methods);
void AddDriftMethods(ServiceContext* context, MethodTable* methods);
void AddEvalMethods(ServiceContext* context, MethodTable* methods);

template <class Request, class Response>
void AddAdmin(MethodTable* methods, ServiceContext* context, const char* name,
              void (*handler)(ServiceContext*, Request, TypedResponder<Response>)) {
  methods->AddUnary(
      absl::StrCat("/forebay.v1.AdminService/", name),
      TypedUnary<Request, Response>([context, handler](const CallContext&, Request request,
                                                       TypedResponder<Response> responder) {
        handler(context, std::move(request), std::move(responder));
      }));
}

// Visits the shards one after another, each inside its loop, then calls `done`. What the closures
// share needs no lock.
void ForEachShard(node::Engine* engine,
                  std::function<void(node::ShardLoop&, uint64_t now_ms)> visit,
                  std::function<void()> done, uint32_t first = 0);

}  // namespace forebay::server
