#include "server/grpc/rpc_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "base/sync.h"
#include "codec/wire.h"
#include "server/grpc/health.h"
#include "server/grpc/reflection.h"
#include "server/grpc/status.h"
#include "tests/unit/server/rpc_client.h"

namespace forebay::server {
namespace {

using ::testing::HasSubstr;

// Echoes each message; ends when the client has.
class EchoStream : public StreamHandler {
 public:
  void OnStart(Stream& stream, const CallContext& /*call*/) override { stream.Read(); }
  void OnMessage(Stream& stream, grpc::ByteBuffer body) override {
    stream.Write(std::move(body));
    stream.Read();
  }
  void OnHalfClose(Stream& stream) override { stream.Finish(absl::OkStatus()); }
  void OnDrain(Stream& stream) override { stream.Finish(absl::UnavailableError("shutting down")); }
};

void AddEcho(MethodTable* methods) {
  methods->AddUnary("/test.Echo/Unary",
                    [](const CallContext&, grpc::ByteBuffer body, Responder responder) {
                      responder.Reply(std::move(body));
                    });
  methods->AddStream("/test.Echo/Stream", [] { return std::make_unique<EchoStream>(); });
}

TEST(RpcServer, AnswersAUnaryCall) {
  MethodTable methods;
  AddEcho(&methods);
  TestServer server(&methods);
  std::string answer;
  ASSERT_TRUE(server.Unary("/test.Echo/Unary", "hello", &answer).ok());
  EXPECT_EQ(answer, "hello");
}

TEST(RpcServer, AnswersFromAnotherThread) {
  MethodTable methods;
  std::vector<std::thread> threads;
  methods.AddUnary("/test.Echo/Later", [&threads](const CallContext&, grpc::ByteBuffer body,
                                                  Responder responder) {
    threads.emplace_back([body = std::move(body), responder = std::move(responder)]() mutable {
      responder.Reply(std::move(body));
    });
  });
  TestServer server(&methods);
  for (int i = 0; i < 100; ++i) {
    std::string answer;
    ASSERT_TRUE(server.Unary("/test.Echo/Later", std::to_string(i), &answer).ok());
    EXPECT_EQ(answer, std::to_string(i));
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RpcServer, RefusesAnUnknownMethod) {
  MethodTable methods;
  AddEcho(&methods);
  TestServer server(&methods);
  std::string answer;
  const grpc::Status status = server.Unary("/test.Echo/Nothing", "", &answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("/test.Echo/Nothing"));
}

TEST(RpcServer, SendsCodeMessageAndRetryTime) {
  MethodTable methods;
  methods.AddUnary("/test.Echo/Full",
                   [](const CallContext&, grpc::ByteBuffer, Responder responder) {
                     responder.Fail(WithRetryAfter(absl::ResourceExhaustedError("full"), 250));
                   });
  TestServer server(&methods);
  grpc::ClientContext context;
  TestServer::SetDeadline(&context);
  std::string answer;
  const grpc::Status status = server.Unary("/test.Echo/Full", "", &answer, &context);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "full");
  const auto& trailing = context.GetServerTrailingMetadata();
  const auto at = trailing.find(kRetryAfterKey);
  ASSERT_NE(at, trailing.end());
  EXPECT_EQ(at->second, "250");
}

TEST(RpcServer, ADroppedResponderAnswersInternal) {
  MethodTable methods;
  methods.AddUnary("/test.Echo/Dropped", [](const CallContext&, grpc::ByteBuffer, Responder) {});
  TestServer server(&methods);
  std::string answer;
  EXPECT_EQ(server.Unary("/test.Echo/Dropped", "", &answer).error_code(),
            grpc::StatusCode::INTERNAL);
}

TEST(RpcServer, TheHandlerSeesCancellation) {
  MethodTable methods;
  Notification called;
  Notification cancelled;
  std::optional<Responder> held;
  methods.AddUnary("/test.Echo/Hang",
                   [&](const CallContext&, grpc::ByteBuffer, Responder responder) {
                     held.emplace(std::move(responder));
                     held->OnCancel([&] { cancelled.Notify(); });
                     called.Notify();
                   });
  TestServer server(&methods);
  grpc::ClientContext context;
  TestServer::SetDeadline(&context);
  auto call = std::async(std::launch::async, [&] {
    std::string answer;
    return server.Unary("/test.Echo/Hang", "", &answer, &context).error_code();
  });
  called.Wait();
  EXPECT_FALSE(held->cancelled());
  context.TryCancel();
  EXPECT_EQ(call.get(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(cancelled.WaitFor(absl::Seconds(20)));
  EXPECT_TRUE(held->cancelled());
  held->Reply(Body("too late"));  // dropped, and does no harm
  std::string answer;
  EXPECT_EQ(server.Unary("/test.Echo/None", "", &answer).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST(RpcServer, TheHandlerSeesTheDeadlinePass) {
  MethodTable methods;
  Notification cancelled;
  std::optional<Responder> held;
  methods.AddUnary(
      "/test.Echo/Hang", [&](const CallContext& call, grpc::ByteBuffer, Responder responder) {
        EXPECT_LT(call.deadline(), std::chrono::system_clock::now() + std::chrono::seconds(30));
        held.emplace(std::move(responder));
        held->OnCancel([&] { cancelled.Notify(); });
      });
  TestServer server(&methods);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  std::string answer;
  EXPECT_EQ(server.Unary("/test.Echo/Hang", "", &answer, &context).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(cancelled.WaitFor(absl::Seconds(20)));
}

TEST(RpcServer, AStreamAnswersInOrderAndEnds) {
  MethodTable methods;
  AddEcho(&methods);
  TestServer server(&methods);
  grpc::ClientContext context;
  auto stream = server.OpenStream("/test.Echo/Stream", &context);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(stream->Write(Body(std::to_string(i))));
  stream->WritesDone();
  grpc::ByteBuffer body;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(stream->Read(&body));
    EXPECT_EQ(Text(body), std::to_string(i));
  }
  EXPECT_FALSE(stream->Read(&body));
  EXPECT_TRUE(stream->Finish().ok());
}

// Writes 1 MiB messages as long as its queue is short, and remembers how long it got.
class FloodStream : public StreamHandler {
 public:
  FloodStream(int messages, std::atomic<size_t>* longest)
      : messages_(messages), longest_(longest) {}
  void OnStart(Stream& stream, const CallContext& /*call*/) override { Produce(stream); }
  void OnMessage(Stream& /*stream*/, grpc::ByteBuffer /*body*/) override {}
  void OnHalfClose(Stream& /*stream*/) override {}
  void OnDrained(Stream& stream) override { Produce(stream); }

 private:
  void Produce(Stream& stream) {
    while (messages_ > 0 && stream.queued_bytes() <= kDrainedBytes) {
      stream.Write(Body(std::string(size_t{1} << 20, 'x')));
      *longest_ = std::max(longest_->load(), stream.queued_bytes());
      if (--messages_ == 0) stream.Finish(absl::OkStatus());
    }
  }
  int messages_;
  std::atomic<size_t>* longest_;
};

TEST(RpcServer, AStreamWithAShortQueueDeliversMuch) {
  MethodTable methods;
  std::atomic<size_t> longest{0};
  methods.AddStream("/test.Flood/Run", [&] { return std::make_unique<FloodStream>(64, &longest); });
  TestServer server(&methods);
  grpc::ClientContext context;
  auto stream = server.OpenStream("/test.Flood/Run", &context);
  grpc::ByteBuffer body;
  size_t bytes = 0;
  while (stream->Read(&body)) bytes += body.Length();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(bytes, size_t{64} << 20);
  EXPECT_LE(longest.load(), StreamHandler::kDrainedBytes + (size_t{1} << 20));
}

TEST(RpcServer, TooLargeAMessageIsRefused) {
  MethodTable methods;
  AddEcho(&methods);
  TestServer server(&methods, {.message_bytes_max = 1 << 20});
  std::string answer;
  EXPECT_EQ(server.Unary("/test.Echo/Unary", std::string(2 << 20, 'x'), &answer).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(server.Unary("/test.Echo/Unary", "small", &answer).ok());
}

TEST(RpcServer, TooManyCallsAreRefused) {
  MethodTable methods;
  AddEcho(&methods);
  TestServer server(&methods, {.calls_max = 1});
  grpc::ClientContext context;
  auto stream = server.OpenStream("/test.Echo/Stream", &context);
  ASSERT_TRUE(stream->Write(Body("x")));
  grpc::ByteBuffer body;
  ASSERT_TRUE(stream->Read(&body));
  std::string answer;
  EXPECT_EQ(server.Unary("/test.Echo/Unary", "", &answer).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(RpcServer, AuthorizesBeforeTheHandlerRuns) {
  MethodTable methods;
  AddEcho(&methods);
  RpcServerOptions options;
  options.authorize = [](std::string_view method, std::string_view token) {
    EXPECT_EQ(method, "/test.Echo/Unary");
    return token == "secret" ? absl::OkStatus() : absl::UnauthenticatedError("who?");
  };
  TestServer server(&methods, options);
  std::string answer;
  EXPECT_EQ(server.Unary("/test.Echo/Unary", "", &answer).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  grpc::ClientContext context;
  TestServer::SetDeadline(&context);
  context.AddMetadata("authorization", "Bearer secret");
  EXPECT_TRUE(server.Unary("/test.Echo/Unary", "in", &answer, &context).ok());
  EXPECT_EQ(answer, "in");
}

TEST(RpcServer, TheGateRefusesWithTrailersAndLetsInAgain) {
  MethodTable methods;
  AddEcho(&methods);
  std::atomic<bool> open{false};
  RpcServerOptions options;
  options.admit = [&open](std::string_view method) {
    if (open || method == "/test.Echo/Stream") return absl::OkStatus();
    return WithTrailer(absl::UnavailableError("not here"), "test-where", "over there");
  };
  TestServer server(&methods, options);
  {
    grpc::ClientContext context;
    TestServer::SetDeadline(&context);
    std::string answer;
    const grpc::Status status = server.Unary("/test.Echo/Unary", "in", &answer, &context);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(status.error_message(), "not here");
    const auto& trailing = context.GetServerTrailingMetadata();
    ASSERT_NE(trailing.find("test-where"), trailing.end());
    EXPECT_EQ(trailing.find("test-where")->second, "over there");
  }
  grpc::ClientContext context;
  auto stream = server.OpenStream("/test.Echo/Stream", &context);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  open = true;
  std::string answer;
  EXPECT_TRUE(server.Unary("/test.Echo/Unary", "in", &answer).ok());
  EXPECT_EQ(answer, "in");
}

TEST(RpcServer, EndCallsAnswersAllButThoseThatAreKept) {
  MethodTable methods;
  AddEcho(&methods);
  methods.AddStream("/test.Echo/Kept", [] { return std::make_unique<EchoStream>(); });
  Notification called;
  Notification ended;
  std::optional<Responder> held;
  methods.AddUnary("/test.Echo/Hang",
                   [&](const CallContext&, grpc::ByteBuffer, Responder responder) {
                     held.emplace(std::move(responder));
                     held->OnCancel([&] { ended.Notify(); });
                     called.Notify();
                   });
  TestServer server(&methods);
  grpc::ByteBuffer body;
  grpc::ClientContext stream_context, kept_context;
  auto stream = server.OpenStream("/test.Echo/Stream", &stream_context);
  auto kept = server.OpenStream("/test.Echo/Kept", &kept_context);
  for (auto* each : {stream.get(), kept.get()}) {
    ASSERT_TRUE(each->Write(Body("x")));
    ASSERT_TRUE(each->Read(&body));
  }
  auto hang = std::async(std::launch::async, [&] {
    std::string answer;
    return server.Unary("/test.Echo/Hang", "", &answer);
  });
  called.Wait();
  server.server().EndCalls(absl::UnavailableError("deposed"),
                           [](std::string_view method) { return method == "/test.Echo/Kept"; });
  EXPECT_FALSE(stream->Read(&body));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "deposed");
  EXPECT_EQ(hang.get().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(ended.WaitFor(absl::Seconds(20)));
  EXPECT_TRUE(held->cancelled());
  held->Reply(Body("too late"));
  // The kept one goes on, and so do new ones.
  ASSERT_TRUE(kept->Write(Body("y")));
  ASSERT_TRUE(kept->Read(&body));
  EXPECT_EQ(Text(body), "y");
  kept->WritesDone();
  EXPECT_TRUE(kept->Finish().ok());
  std::string answer;
  EXPECT_TRUE(server.Unary("/test.Echo/Unary", "in", &answer).ok());
}

TEST(RpcServer, EndCallsDropsWhatIsQueued) {
  MethodTable methods;
  std::atomic<size_t> longest{0};
  methods.AddStream("/test.Flood/Run",
                    [&] { return std::make_unique<FloodStream>(10'000, &longest); });
  TestServer server(&methods);
  grpc::ClientContext context;
  auto stream = server.OpenStream("/test.Flood/Run", &context);
  grpc::ByteBuffer body;
  ASSERT_TRUE(stream->Read(&body));
  server.server().EndCalls(absl::UnavailableError("deposed"), [](auto) { return false; });
  size_t messages = 1;
  while (stream->Read(&body)) ++messages;
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_LT(messages, 10'000u);
}

TEST(RpcServer, ShutdownEndsStreamsAndCancelsWhatHangs) {
  MethodTable methods;
  AddEcho(&methods);
  Notification called;
  std::optional<Responder> held;
  methods.AddUnary("/test.Echo/Hang",
                   [&](const CallContext&, grpc::ByteBuffer, Responder responder) {
                     held.emplace(std::move(responder));
                     called.Notify();
                   });
  TestServer server(&methods);
  grpc::ClientContext stream_context;
  auto stream = server.OpenStream("/test.Echo/Stream", &stream_context);
  ASSERT_TRUE(stream->Write(Body("x")));
  grpc::ByteBuffer body;
  ASSERT_TRUE(stream->Read(&body));
  auto hang = std::async(std::launch::async, [&] {
    std::string answer;
    return server.Unary("/test.Echo/Hang", "", &answer).error_code();
  });
  called.Wait();
  server.server().Shutdown(std::chrono::milliseconds(100));
  EXPECT_FALSE(stream->Read(&body));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(hang.get(), grpc::StatusCode::OK);
  held->Reply(Body("the server is gone"));
}

TEST(RpcServer, SaysWhichAddressIsTaken) {
  MethodTable methods;
  AddEcho(&methods);
  TestServer first(&methods);
  const std::string address = "127.0.0.1:" + std::to_string(first.server().ports()[0]);
  const auto second = RpcServer::Start({.addresses = {address}}, &methods);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
}

TEST(RpcServer, RefusesPlainTextBeyondLoopback) {
  MethodTable methods;
  const auto server = RpcServer::Start({.addresses = {"0.0.0.0:0"}}, &methods);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RpcServer, CountsCallsByMethod) {
  MethodTable methods;
  AddEcho(&methods);
  {
    TestServer server(&methods);
    std::string answer;
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(server.Unary("/test.Echo/Unary", "x", &answer).ok());
    server.server().Shutdown(std::chrono::milliseconds(1000));
  }
  const MethodStats& stats = methods.Find("/test.Echo/Unary")->stats;
  EXPECT_EQ(stats.ended[0].load(), 5u);
  EXPECT_EQ(stats.running.load(), 0u);
  EXPECT_EQ(stats.received_messages.load(), 5u);
}

TEST(Health, ChecksAndWatches) {
  MethodTable methods;
  Health health;
  AddEcho(&methods);
  health.AddTo(&methods);
  TestServer server(&methods);
  std::string answer;
  ASSERT_TRUE(server.Unary("/grpc.health.v1.Health/Check", "", &answer).ok());
  EXPECT_EQ(answer, std::string("\x08\x01"));
  EXPECT_TRUE(server.Unary("/grpc.health.v1.Health/Check", "\x0a\x09test.Echo", &answer).ok());
  EXPECT_EQ(server.Unary("/grpc.health.v1.Health/Check", "\x0a\x04none", &answer).error_code(),
            grpc::StatusCode::NOT_FOUND);

  grpc::ClientContext context;
  auto watch = server.OpenStream("/grpc.health.v1.Health/Watch", &context);
  ASSERT_TRUE(watch->Write(Body("")));
  watch->WritesDone();
  grpc::ByteBuffer body;
  ASSERT_TRUE(watch->Read(&body));
  EXPECT_EQ(Text(body), std::string("\x08\x01"));
  health.SetServing(false);
  ASSERT_TRUE(watch->Read(&body));
  EXPECT_EQ(Text(body), std::string("\x08\x02"));
  context.TryCancel();
  watch->Finish();
}

TEST(Reflection, ListsServicesAndGivesFiles) {
  MethodTable methods;
  AddEcho(&methods);
  AddReflection(&methods);
  TestServer server(&methods);
  grpc::ClientContext context;
  auto stream =
      server.OpenStream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &context);
  std::string list_services;
  codec::WireWriter(&list_services).Message(7, "");
  std::string file;
  codec::WireWriter(&file).Bytes(3, "google/protobuf/descriptor.proto");
  std::string unknown;
  codec::WireWriter(&unknown).Bytes(4, "no.such.Symbol");
  grpc::ByteBuffer body;
  ASSERT_TRUE(stream->Write(Body(list_services)));
  ASSERT_TRUE(stream->Read(&body));
  EXPECT_THAT(Text(body), HasSubstr("test.Echo"));
  ASSERT_TRUE(stream->Write(Body(file)));
  ASSERT_TRUE(stream->Read(&body));
  EXPECT_THAT(Text(body), HasSubstr("FileDescriptorSet"));
  ASSERT_TRUE(stream->Write(Body(unknown)));
  ASSERT_TRUE(stream->Read(&body));
  EXPECT_THAT(Text(body), HasSubstr("no such file or symbol"));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

}  // namespace
}  // namespace forebay::server
