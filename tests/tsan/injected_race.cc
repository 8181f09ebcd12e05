// A race on purpose: the threads that serve one completion queue add to one plain counter, with
// `race` unguarded, with `clean` under a lock. With the daemon's own options and suppressions
// ThreadSanitizer has to report the first and nothing else.

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/tsan.h"

namespace {

constexpr int kThreads = 4;  // On each side.
constexpr int kCalls = 100;  // By each client.

bool racing = false;
std::mutex guard;
int handled = 0;

void Count() {
  std::unique_lock<std::mutex> lock(guard, std::defer_lock);
  if (!racing) lock.lock();
  ++handled;
}

// Accepts calls one after another and answers each with an error status.
void Serve(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue) {
  struct Call {
    grpc::GenericServerContext context;
    grpc::GenericServerAsyncReaderWriter stream{&context};
    bool answered = false;
  };
  const auto accept = [&] {
    auto* call = new Call;
    forebay::TsanRelease(call);
    service->RequestCall(&call->context, &call->stream, queue, queue, call);
  };
  accept();
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
    forebay::TsanAcquire(tag);
    std::unique_ptr<Call> call(static_cast<Call*>(tag));
    if (!ok || call->answered) continue;
    Count();
    call->answered = true;
    Call* kept = call.release();
    forebay::TsanRelease(kept);
    kept->stream.Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no"), kept);
    accept();
  }
}

void Call(const std::string& target) {
  grpc::GenericStub stub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
  for (int i = 0; i < kCalls; ++i) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
    grpc::Status status;
    auto reader = stub.PrepareUnaryCall(&context, "/race/Race", request, &queue);
    reader->StartCall();
    reader->Finish(&response, &status, &context);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
  }
}

}  // namespace

int main(int argc, char** argv) {
  racing = argc > 1 && std::string_view(argv[1]) == "race";
  grpc::ServerBuilder builder;
  int port = 0;
  grpc::AsyncGenericService service;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterAsyncGenericService(&service);
  const auto queue = builder.AddCompletionQueue();
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::vector<std::thread> servers;
  std::vector<std::thread> clients;
  for (int i = 0; i < kThreads; ++i) {
    servers.emplace_back([&] { Serve(&service, queue.get()); });
    clients.emplace_back([&] { Call("127.0.0.1:" + std::to_string(port)); });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  server->Shutdown();
  queue->Shutdown();
  for (std::thread& thread : servers) {
    thread.join();
  }
  std::printf("%d calls handled\n", handled);
  return 0;
}
