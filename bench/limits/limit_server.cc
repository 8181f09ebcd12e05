#include "bench/limits/limit_server.h"

#include <absl/strings/str_cat.h>

#include <chrono>

namespace forebay::bench {
namespace {

// Enough that a burst of unary calls never waits for the next request to be armed.
constexpr int kArmedCalls = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<LimitServer>> LimitServer::Start(const LimitServerOptions& options) {
  auto self = std::unique_ptr<LimitServer>(new LimitServer);
  grpc::ServerBuilder builder;
  std::vector<int> ports(options.addresses.size());
  for (size_t i = 0; i < options.addresses.size(); ++i) {
    builder.AddListeningPort(options.addresses[i], grpc::InsecureServerCredentials(), &ports[i]);
  }
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  if (options.minimal_stack) builder.AddChannelArgument(GRPC_ARG_MINIMAL_STACK, 1);
  if (!options.bandwidth_probe) builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  for (const auto& [name, value] : options.arguments) builder.AddChannelArgument(name, value);
  builder.RegisterAsyncGenericService(&self->shared_.service);
  self->shared_.queue = builder.AddCompletionQueue();
  self->server_ = builder.BuildAndStart();
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i] == 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", options.addresses[i]));
    }
    if (self->port_ == 0 && ports[i] > 1) self->port_ = ports[i];
  }
  if (self->server_ == nullptr) return absl::UnavailableError("cannot start the server");
  for (int i = 0; i < kArmedCalls; ++i) LimitCall::Await(&self->shared_);
  return self;
}

LimitServer::~LimitServer() {
  if (server_ == nullptr) {
    // Building failed; gRPC wants the queue shut down and drained all the same.
    shared_.queue->Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (shared_.queue->Next(&tag, &ok)) {
    }
  }
}

void LimitServer::Run() {
  void* tag = nullptr;
  bool ok = false;
  bool stopped = false;
  while (shared_.queue->Next(&tag, &ok)) {
    if (tag == nullptr) {
      stopped = true;
      shared_.queue->Shutdown();
      continue;
    }
    auto* event = static_cast<LimitCall::Event*>(tag);
    if (stopped) {
      event->call->Drop();
    } else {
      (event->call->*event->handle)(ok);
    }
  }
}

void LimitServer::Shutdown() {
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  // A handler that still runs may begin an operation, so the queue is shut down by the thread that
  // runs handlers.
  stop_.Set(shared_.queue.get(), std::chrono::system_clock::now(), nullptr);
}

}  // namespace forebay::bench
