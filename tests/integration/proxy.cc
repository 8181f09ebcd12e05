#include "tests/integration/proxy.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/sync_stream.h>

#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "forebay/v1/actor.pb.h"
#include "forebay/v1/admin.pb.h"
#include "forebay/v1/trainer.pb.h"
#include "server/grpc/status.h"

namespace forebay::integration {
namespace {

using grpc::internal::RpcMethod;

absl::Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context) {
  absl::Status out(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto after = trailers.find(server::kRetryAfterKey);
  uint32_t ms = 0;
  if (after != trailers.end() &&
      absl::SimpleAtoi(absl::string_view(after->second.data(), after->second.size()), &ms)) {
    return server::WithRetryAfter(std::move(out), ms);
  }
  return out;
}

}  // namespace

struct Proxy::State {
  std::shared_ptr<grpc::Channel> channel;
  std::mutex mutex;  // guards all below
  bool stopped = false;
  std::set<grpc::ClientContext*> calls;
  std::vector<std::thread> threads;

  bool Enter(grpc::ClientContext* context) {
    const std::lock_guard lock(mutex);
    if (stopped) return false;
    calls.insert(context);
    return true;
  }
  void Exit(grpc::ClientContext* context) {
    const std::lock_guard lock(mutex);
    calls.erase(context);
  }
  // False if it was stopped, and then nothing runs.
  bool Run(std::function<void()> work) {
    const std::lock_guard lock(mutex);
    if (!stopped) threads.emplace_back(std::move(work));
    return !stopped;
  }
};

namespace {

void PassOn(const std::shared_ptr<Proxy::State>& state, const std::string& method,
            const grpc::ByteBuffer& body, server::Responder* responder) {
  grpc::ClientContext context;
  context.set_deadline(responder->deadline());
  if (!state->Enter(&context)) return responder->Fail(absl::UnavailableError("stopped"));
  grpc::ByteBuffer answer;
  const grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
      state->channel.get(), RpcMethod(method.c_str(), RpcMethod::NORMAL_RPC), &context, body,
      &answer);
  state->Exit(&context);
  if (status.ok()) {
    responder->Reply(std::move(answer));
  } else {
    responder->Fail(FromGrpc(status, context));
  }
}

class PassedStream final : public server::StreamHandler {
 public:
  PassedStream(std::shared_ptr<Proxy::State> state, std::string method)
      : call_(std::make_shared<Call>()) {
    call_->state = std::move(state);
    call_->method = std::move(method);
  }

  void OnStart(server::Stream& stream, const server::CallContext&) override {
    Call& call = *call_;
    if (!call.state->Enter(&call.context)) return stream.Finish(absl::UnavailableError("stopped"));
    call.stream.reset(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
            call.state->channel.get(), RpcMethod(call.method.c_str(), RpcMethod::BIDI_STREAMING),
            &call.context));
    server::Stream* const to = &stream;
    const server::StreamRef ref = stream.ref();
    const bool runs = call.state->Run([held = call_, ref, to] {
      grpc::ByteBuffer body;
      while (held->stream->Read(&body)) ref.Post([to, body] { to->Write(body); });
      const grpc::Status status = held->stream->Finish();
      held->state->Exit(&held->context);
      ref.Post([to, end = FromGrpc(status, held->context)] { to->Finish(end); });
    });
    if (!runs) call.context.TryCancel();
    stream.Read();
  }
  void OnMessage(server::Stream& stream, grpc::ByteBuffer body) override {
    call_->stream->Write(body);
    stream.Read();
  }
  void OnHalfClose(server::Stream&) override { call_->stream->WritesDone(); }
  void OnDrain(server::Stream& stream) override {
    stream.Finish(absl::UnavailableError("shutting down"));
  }
  void OnDone() override { call_->context.TryCancel(); }

 private:
  struct Call {
    std::shared_ptr<Proxy::State> state;
    std::string method;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream;
  };
  const std::shared_ptr<Call> call_;
};

}  // namespace

Proxy::Proxy(const std::string& backend) : state_(std::make_shared<State>()) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  state_->channel =
      grpc::CreateCustomChannel(backend, grpc::InsecureChannelCredentials(), arguments);
}

Proxy::~Proxy() { Stop(); }

void Proxy::Stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopped = true;
    for (grpc::ClientContext* call : state_->calls) call->TryCancel();
    threads.swap(state_->threads);
  }
  for (std::thread& thread : threads) thread.join();
}

void Proxy::AddTo(server::MethodTable* methods) {
  for (const auto* file :
       {v1::AcquireRequest::descriptor()->file(), v1::OpenStepRequest::descriptor()->file(),
        v1::GetStatusRequest::descriptor()->file()}) {
    const auto* service = file->service(0);
    for (int i = 0; i < service->method_count(); ++i) {
      const auto* method = service->method(i);
      const std::string name = absl::StrCat("/", service->full_name(), "/", method->name());
      if (method->client_streaming() || method->server_streaming()) {
        methods->AddStream(
            name, [state = state_, name] { return std::make_unique<PassedStream>(state, name); });
        continue;
      }
      methods->AddUnary(name,
                        [state = state_, name](const server::CallContext&, grpc::ByteBuffer body,
                                               server::Responder responder) {
                          auto held = std::make_shared<server::Responder>(std::move(responder));
                          // Not run, it answers by being dropped.
                          state->Run([state, name, body = std::move(body), held] {
                            PassOn(state, name, body, held.get());
                          });
                        });
    }
  }
}

}  // namespace forebay::integration
