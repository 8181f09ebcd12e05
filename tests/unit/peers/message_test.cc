// Messages between transports and services over real connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "forebay/v1/peer.pb.h"
#include "peers/channel.h"
#include "peers/frames.h"
#include "server/grpc/auth.h"
#include "tests/unit/peers/relay.h"
#include "tests/unit/peers/world.h"
#include "tests/unit/server/rpc_client.h"

namespace forebay::peers {
namespace {

using ::testing::HasSubstr;

// Keeps what a transport says is wrong. Thread-safe.
class Troubles {
 public:
  std::function<void(cluster::NodeId, const absl::Status&)> Listener() {
    return [this](cluster::NodeId, const absl::Status& why) {
      MutexLock lock(&mutex_);
      told_.push_back(why);
    };
  }
  std::vector<absl::Status> told() {
    MutexLock lock(&mutex_);
    return told_;
  }

 private:
  Mutex mutex_;
  std::vector<absl::Status> told_ ABSL_GUARDED_BY(mutex_);
};

// Sends until something has come that was not there before.
bool GetsThrough(GrpcPeerTransport* transport, cluster::NodeId to, RecordingPort* port) {
  const size_t before = port->messages().size();
  return Becomes([&] {
    transport->Send(to, "ledger", "hello");
    return port->messages().size() > before;
  });
}

TEST(PeerMessages, ArriveInOrderOnAQuietLine) {
  Node one(kOne), two(kTwo);
  const auto from_one = MakeTransport({{kTwo, two.address()}});
  const auto from_two = MakeTransport({{kOne, one.address()}}, {.self = kTwo});
  constexpr size_t kMessages = 20'000;
  for (size_t i = 0; i < kMessages; ++i) {
    from_one->Send(kTwo, i % 2 == 0 ? "ledger" : "shard-0", absl::StrCat("a", i));
    from_two->Send(kOne, "ledger", absl::StrCat("b", i));
  }
  const auto at_two = two.port().Await(kMessages);
  const auto at_one = one.port().Await(kMessages);
  ASSERT_EQ(at_two.size(), kMessages);
  ASSERT_EQ(at_one.size(), kMessages);
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(at_two[i].first, i % 2 == 0 ? "ledger" : "shard-0");
    ASSERT_EQ(at_two[i].second, absl::StrCat("a", i));
    ASSERT_EQ(at_one[i].second, absl::StrCat("b", i));
  }
  ASSERT_TRUE(Becomes([&] { return StatsOf(from_one.get(), kTwo).sent_messages == kMessages; }));
  const PeerStats sent = StatsOf(from_one.get(), kTwo);
  EXPECT_TRUE(sent.connected);
  EXPECT_EQ(sent.address, two.address());
  EXPECT_EQ(sent.connects, 1u);
  EXPECT_EQ(sent.failures, 0u);
  EXPECT_EQ(sent.dropped_messages, 0u);
  EXPECT_EQ(sent.queued_bytes, 0u);
  ASSERT_TRUE(Becomes([&] { return two.Stats(kOne).received_messages == kMessages; }));
  EXPECT_EQ(two.Stats(kOne).received_bytes, sent.sent_bytes);
  EXPECT_LE(two.Stats(kOne).last_heard, absl::Now());
  EXPECT_GT(two.Stats(kOne).last_heard, absl::Now() - absl::Hours(1));
}

TEST(PeerMessages, ALargeOneGoesInPiecesBetweenOthers) {
  Node two(kTwo);
  const auto transport = MakeTransport({{kTwo, two.address()}});
  std::string large(size_t{20} << 20, '\0');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * i >> 7);
  transport->Send(kTwo, "ledger", "before");
  transport->Send(kTwo, "ledger", large);
  transport->Send(kTwo, "shard-0", "");
  transport->Send(kTwo, "ledger", std::string(kFrameBytesMax, 'f'));
  transport->Send(kTwo, "ledger", "after");
  const auto messages = two.port().Await(5);
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0].second, "before");
  EXPECT_TRUE(messages[1].second == large);
  EXPECT_EQ(messages[2], RecordingPort::Message("shard-0", ""));
  EXPECT_TRUE(messages[3].second == std::string(kFrameBytesMax, 'f'));
  EXPECT_EQ(messages[4].second, "after");
  ASSERT_TRUE(Becomes([&] { return StatsOf(transport.get(), kTwo).queued_bytes == 0; }));
  EXPECT_EQ(StatsOf(transport.get(), kTwo).sent_messages, 5u);
}

TEST(PeerMessages, OneThatIsTooLargeOrForNobodyIsDropped) {
  Node two(kTwo);
  const auto transport = MakeTransport({{kTwo, two.address()}});
  transport->Send(kThree, "ledger", "nobody");
  transport->Send(kTwo, "ledger", std::string(kMessageBytesMax + 1, 'x'));
  transport->Send(kTwo, "ledger", "good");
  const auto messages = two.port().Await(1);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].second, "good");
  EXPECT_EQ(StatsOf(transport.get(), kTwo).dropped_messages, 1u);
  EXPECT_EQ(StatsOf(transport.get(), kTwo).dropped_bytes, kMessageBytesMax + 1);
}

TEST(PeerMessages, GoOnAfterThePeerHasDiedAndComeBack) {
  Node two(kTwo);
  Troubles troubles;
  const auto transport =
      MakeTransport({{kTwo, two.address()}}, {.on_trouble = troubles.Listener()});
  ASSERT_TRUE(GetsThrough(transport.get(), kTwo, &two.port()));
  for (int i = 0; i < 3; ++i) {
    two.Stop();
    ASSERT_TRUE(Becomes([&] { return !StatsOf(transport.get(), kTwo).connected; }));
    // Nobody is there: what is sent is dropped, and soon at once.
    const uint64_t dropped = StatsOf(transport.get(), kTwo).dropped_messages;
    ASSERT_TRUE(Becomes([&] {
      transport->Send(kTwo, "ledger", "lost");
      return StatsOf(transport.get(), kTwo).dropped_messages > dropped + 10;
    }));
    two.Start();
    ASSERT_TRUE(GetsThrough(transport.get(), kTwo, &two.port()));
    EXPECT_TRUE(Becomes([&] { return StatsOf(transport.get(), kTwo).connected; }));
  }
  EXPECT_EQ(StatsOf(transport.get(), kTwo).connects, 4u);
  EXPECT_GE(StatsOf(transport.get(), kTwo).failures, 3u);
  // The same reason is not told again and again.
  ASSERT_FALSE(troubles.told().empty());
  EXPECT_LE(troubles.told().size(), 3u);
  EXPECT_THAT(std::string(troubles.told()[0].message()), HasSubstr(two.address()));
}

// A node whose streams are not read after the first frame.
class DeafStream final : public server::StreamHandler {
 public:
  void OnStart(server::Stream& stream, const server::CallContext& /*call*/) override {
    stream.Read();
  }
  void OnMessage(server::Stream& stream, grpc::ByteBuffer /*body*/) override {
    v1::PeerWelcome welcome;
    welcome.set_node(kTwo.value);
    welcome.set_protocol(kProtocol);
    stream.Write(server::Body(welcome.SerializeAsString()));
  }
  void OnHalfClose(server::Stream& /*stream*/) override {}
};

TEST(PeerMessages, APeerThatDoesNotReadCostsItsOwnQueueAndNobodyElses) {
  server::MethodTable methods;
  methods.AddStream(kMessagesMethod, [] { return std::make_unique<DeafStream>(); });
  server::TestServer deaf(&methods);
  Node three(kThree);
  constexpr size_t kQueue = size_t{4} << 20;
  const auto transport = MakeTransport(
      {{kTwo, absl::StrCat("127.0.0.1:", deaf.server().ports()[0])}, {kThree, three.address()}},
      {.queue_bytes_max = kQueue});
  for (int i = 0; i < 1'000; ++i) {
    transport->Send(kTwo, "ledger", std::string(32'768, 'x'));
    transport->Send(kThree, "ledger", absl::StrCat(i));
  }
  ASSERT_EQ(three.port().Await(1'000).size(), 1'000u);
  EXPECT_EQ(StatsOf(transport.get(), kThree).dropped_messages, 0u);
  ASSERT_TRUE(Becomes([&] { return StatsOf(transport.get(), kTwo).connected; }));
  const PeerStats stats = StatsOf(transport.get(), kTwo);
  EXPECT_LE(stats.queued_bytes, kQueue);
  EXPECT_GT(stats.queued_bytes, kQueue / 2);
  EXPECT_GT(stats.dropped_messages, 500u);
  EXPECT_EQ(stats.failures, 0u);
}

TEST(PeerMessages, AStreamOnWhichNothingMovesIsGivenUp) {
  server::MethodTable methods;
  methods.AddStream(kMessagesMethod, [] { return std::make_unique<DeafStream>(); });
  server::TestServer deaf(&methods);
  Troubles troubles;
  const auto transport = MakeTransport(
      {{kTwo, absl::StrCat("127.0.0.1:", deaf.server().ports()[0])}},
      {.progress_timeout = absl::Milliseconds(300), .on_trouble = troubles.Listener()});
  ASSERT_TRUE(Becomes([&] {
    transport->Send(kTwo, "ledger", std::string(100'000, 'x'));
    return StatsOf(transport.get(), kTwo).connects >= 2;
  }));
  ASSERT_FALSE(troubles.told().empty());
  EXPECT_TRUE(absl::IsDeadlineExceeded(troubles.told()[0]));
}

TEST(PeerMessages, APortThatBlocksDoesNotBlockWhoSends) {
  Node two(kTwo);
  two.port().Hold(true);
  const auto transport =
      MakeTransport({{kTwo, two.address()}},
                    {.queue_bytes_max = size_t{64} << 20, .keepalive = absl::Minutes(1)});
  constexpr size_t kMessages = 5'000;
  for (size_t i = 0; i < kMessages; ++i) {
    transport->Send(kTwo, "ledger", std::string(10'000, static_cast<char>('a' + i % 26)));
  }
  EXPECT_LE(two.port().messages().size(), 1u);
  two.port().Hold(false);
  const auto messages = two.port().Await(kMessages);
  ASSERT_EQ(messages.size(), kMessages);
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(messages[i].second[0], static_cast<char>('a' + i % 26));
  }
}

TEST(PeerMessages, AFrozenPeersConnectionIsDroppedAndOpenedAnew) {
  Node two(kTwo);
  Relay relay(two.tcp_port());
  const auto transport = MakeTransport(
      {{kTwo, relay.address()}},
      {.keepalive_timeout = absl::Milliseconds(500), .connect_timeout = absl::Milliseconds(500)});
  ASSERT_TRUE(GetsThrough(transport.get(), kTwo, &two.port()));
  // Without a word to say, and with many.
  for (const bool busy : {false, true}) {
    relay.Freeze(true);
    ASSERT_TRUE(Becomes([&] {
      if (busy) transport->Send(kTwo, "ledger", std::string(50'000, 'x'));
      return !StatsOf(transport.get(), kTwo).connected;
    }));
    relay.Freeze(false);
    ASSERT_TRUE(GetsThrough(transport.get(), kTwo, &two.port()));
  }
}

TEST(PeerMessages, AnotherClusterOrNodeIsRefusedAndThatIsToldOnce) {
  Node other(kTwo, {}, {.cluster = "production"});
  Node three(kThree);
  Troubles troubles;
  const auto transport =
      MakeTransport({{kTwo, other.address()}}, {.on_trouble = troubles.Listener()});
  const auto fail_some = [&] {
    const uint64_t failures = StatsOf(transport.get(), kTwo).failures;
    return Becomes([&] {
      transport->Send(kTwo, "ledger", "secret");
      return StatsOf(transport.get(), kTwo).failures >= failures + 4;
    });
  };
  ASSERT_TRUE(fail_some());
  ASSERT_EQ(troubles.told().size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(troubles.told()[0]));
  EXPECT_THAT(std::string(troubles.told()[0].message()), HasSubstr("production"));
  EXPECT_TRUE(other.port().messages().empty());
  EXPECT_FALSE(StatsOf(transport.get(), kTwo).connected);
  EXPECT_EQ(StatsOf(transport.get(), kTwo).connects, 0u);
  // The address is that of another node.
  transport->SetPeers({{kTwo, three.address()}});
  ASSERT_TRUE(fail_some());
  EXPECT_TRUE(three.port().messages().empty());
}

TEST(PeerMessages, FollowAnAddressThatChanges) {
  Node here(kTwo), there(kTwo);
  const auto transport = MakeTransport({{kTwo, here.address()}});
  ASSERT_TRUE(GetsThrough(transport.get(), kTwo, &here.port()));
  transport->SetPeers({{kTwo, there.address()}});
  ASSERT_TRUE(Becomes([&] {
    transport->Send(kTwo, "ledger", "moved");
    return !there.port().messages().empty();
  }));
  for (const auto& [machine, bytes] : here.port().messages()) EXPECT_EQ(bytes, "hello");
  // The same again changes nothing; none at all ends it.
  transport->SetPeers({{kTwo, there.address()}});
  EXPECT_EQ(StatsOf(transport.get(), kTwo).failures, 0u);
  transport->SetPeers({});
  transport->Send(kTwo, "ledger", "nobody");
  PeerStatsMap stats;
  transport->GetStats(&stats);
  EXPECT_TRUE(stats.empty());
}

TEST(PeerMessages, NeedATokenOfTheRoleWhereTokensAreWanted) {
  server::TokenAuthorizer authorizer;
  authorizer.AddToken("the-peers-token", server::Role::kPeer);
  authorizer.AddToken("an-actors-token", server::Role::kActor);
  authorizer.AddRule("/forebay.v1.PeerService/", server::Role::kPeer);
  Node two(kTwo, {.authorize = [&](std::string_view method, std::string_view token) {
             return authorizer.Check(method, token);
           }});
  for (const auto& [token, code] :
       {std::pair("", absl::StatusCode::kUnauthenticated),
        std::pair("an-actors-token", absl::StatusCode::kPermissionDenied)}) {
    Troubles troubles;
    const auto refused =
        MakeTransport({{kTwo, two.address()}}, {.token = token, .on_trouble = troubles.Listener()});
    refused->Send(kTwo, "ledger", "hello");
    ASSERT_TRUE(Becomes([&] { return !troubles.told().empty(); }));
    EXPECT_EQ(troubles.told()[0].code(), code);
  }
  EXPECT_TRUE(two.port().messages().empty());
  const auto transport = MakeTransport({{kTwo, two.address()}}, {.token = "the-peers-token"});
  EXPECT_TRUE(GetsThrough(transport.get(), kTwo, &two.port()));
}

// Speaks to a node frame by frame.
class RawStream {
 public:
  explicit RawStream(const Node& node)
      : channel_(grpc::CreateChannel(node.address(), grpc::InsecureChannelCredentials())) {
    server::TestServer::SetDeadline(&context_);
    const grpc::internal::RpcMethod rpc(kMessagesMethod, grpc::internal::RpcMethod::BIDI_STREAMING);
    stream_.reset(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
            channel_.get(), rpc, &context_));
  }
  void Write(const v1::PeerFrame& frame) {
    stream_->Write(server::Body(frame.SerializeAsString()));
  }
  grpc::Status End() {
    stream_->WritesDone();
    grpc::ByteBuffer answer;
    while (stream_->Read(&answer)) {
    }
    return stream_->Finish();
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::unique_ptr<server::TestServer::ClientStream> stream_;
};

v1::PeerFrame Opened(uint32_t protocol = kProtocol) {
  v1::PeerFrame frame;
  frame.mutable_opening()->set_cluster("test");
  frame.mutable_opening()->set_from(1);
  frame.mutable_opening()->set_to(2);
  frame.mutable_opening()->set_protocol(protocol);
  return frame;
}

void AddMessage(const std::string& payload, uint32_t crc_difference, v1::PeerFrame* frame) {
  auto* message = frame->add_messages();
  message->set_machine("ledger");
  message->set_payload(payload);
  message->set_crc32c(Crc32c("ledger" + payload) ^ crc_difference);
}

TEST(PeerMessages, AWrongChecksumEndsTheStreamAndNothingOfTheFrameIsDelivered) {
  Node two(kTwo);
  RawStream stream(two);
  v1::PeerFrame first = Opened(), second;
  AddMessage("good", 0, &first);
  AddMessage("good too", 0, &second);
  AddMessage("bad", 1, &second);
  stream.Write(first);
  stream.Write(second);
  EXPECT_EQ(stream.End().error_code(), grpc::StatusCode::DATA_LOSS);
  const auto messages = two.port().messages();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].second, "good");
  EXPECT_EQ(two.Stats(kOne).corrupt_frames, 1u);
}

TEST(PeerMessages, WhatIsNoOpeningIsRefused) {
  Node two(kTwo);
  v1::PeerFrame frame;
  AddMessage("too early", 0, &frame);
  {
    RawStream stream(two);
    stream.Write(frame);
    EXPECT_EQ(stream.End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  {
    RawStream stream(two);
    stream.Write(Opened());
    stream.Write(Opened());
    EXPECT_EQ(stream.End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  v1::PeerFrame newer = Opened(kProtocol + 1), ourselves = Opened(), nobody = Opened();
  ourselves.mutable_opening()->set_from(2);
  nobody.mutable_opening()->set_from(0);
  for (v1::PeerFrame refused : {newer, ourselves, nobody}) {
    AddMessage("too early", 0, &refused);
    RawStream stream(two);
    stream.Write(refused);
    const grpc::Status status = stream.End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(), HasSubstr("opening."));
  }
  EXPECT_TRUE(two.port().messages().empty());
}

TEST(PeerTransport, EndsWhileMessagesAreOnTheirWay) {
  Node two(kTwo);
  for (int i = 0; i < 50; ++i) {
    const auto transport = MakeTransport({{kTwo, two.address()}});
    for (int j = 0; j <= i; ++j) transport->Send(kTwo, "ledger", std::string(10'000, 'x'));
    if (i % 2 == 0) {
      ASSERT_TRUE(GetsThrough(transport.get(), kTwo, &two.port()));
    }
  }
}

TEST(PeerTransport, RefusesOptionsThatMakeNoSense) {
  const auto why_not = [](const PeerTransportOptions& options) {
    const auto transport = GrpcPeerTransport::Create(options);
    EXPECT_TRUE(absl::IsInvalidArgument(transport.status()));
    return std::string(transport.status().message());
  };
  EXPECT_THAT(why_not({.self = kOne}), HasSubstr("cluster"));
  EXPECT_THAT(why_not({.cluster = "test"}), HasSubstr("self"));
  EXPECT_THAT(why_not({.cluster = "test", .self = kOne, .tls = {.key = "x"}}),
              HasSubstr("tls.key"));
  EXPECT_THAT(why_not({.cluster = "test", .self = kOne, .tls = {.root = "/a/path"}}),
              HasSubstr("tls.root"));
  EXPECT_THAT(why_not({.cluster = "test", .self = kOne, .keepalive = absl::ZeroDuration()}),
              HasSubstr("times"));
}

}  // namespace
}  // namespace forebay::peers
