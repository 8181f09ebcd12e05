// Snapshots between transports and services over real connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "base/crc32c.h"
#include "base/prng.h"
#include "peers/channel.h"
#include "peers/frames.h"
#include "tests/unit/peers/world.h"
#include "tests/unit/server/rpc_client.h"

namespace forebay::peers {
namespace {

using ::testing::HasSubstr;

std::string RandomBytes(size_t size, uint64_t seed) {
  Prng prng(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(prng.Below(256));
  return bytes;
}

// What done was called with. Thread-safe.
class Outcome {
 public:
  absl::AnyInvocable<void(absl::Status)> Done() {
    return [this](absl::Status status) {
      FOREBAY_CHECK(!status_.has_value());
      status_ = std::move(status);
      told_.Notify();
    };
  }
  absl::Status Await() {
    if (!told_.WaitFor(kPatience)) return absl::InternalError("done was not called");
    return *status_;
  }

 private:
  std::optional<absl::Status> status_;
  Notification told_;
};

// The bytes in pieces of the size that is asked for.
std::function<std::string()> Pieces(std::string bytes, size_t piece) {
  auto at = std::make_shared<size_t>(0);
  return [bytes = std::move(bytes), piece, at] {
    std::string next = bytes.substr(*at, piece);
    *at += next.size();
    return next;
  };
}

// Never ends.
std::function<std::string()> Endless() {
  return [] { return std::string(100'000, 'x'); };
}

TEST(PeerSnapshot, OfFiftyMegabytesArrivesWhileMessagesGoOn) {
  Node two(kTwo);
  const auto transport = MakeTransport({{kTwo, two.address()}});
  const std::string bytes = RandomBytes((size_t{50} << 20) + 17, 1);
  Outcome outcome;
  two.port().HoldSnapshots(true);
  // Larger than a chunk may be.
  transport->SendSnapshot(kTwo, "shard-0", "about it", Pieces(bytes, 3'000'000), outcome.Done());
  ASSERT_TRUE(Becomes([&] { return !two.port().snapshots().empty(); }));
  transport->Send(kTwo, "ledger", "not behind it");
  ASSERT_EQ(two.port().Await(1).size(), 1u);
  two.port().HoldSnapshots(false);
  EXPECT_TRUE(outcome.Await().ok()) << outcome.Await();
  const auto snapshots = two.port().snapshots();
  ASSERT_EQ(snapshots.size(), 1u);
  EXPECT_EQ(snapshots[0].machine, "shard-0");
  EXPECT_EQ(snapshots[0].head, "about it");
  EXPECT_TRUE(snapshots[0].bytes == bytes);
  EXPECT_TRUE(snapshots[0].ended);
  EXPECT_EQ(StatsOf(transport.get(), kTwo).snapshots_sent, 1u);
  EXPECT_EQ(StatsOf(transport.get(), kTwo).snapshot_bytes_sent, bytes.size());
  EXPECT_EQ(two.Stats(kOne).snapshots_received, 1u);
  EXPECT_EQ(two.Stats(kOne).snapshot_bytes_received, bytes.size());
}

TEST(PeerSnapshot, AnEmptyOneAndSeveralAtOnceArrive) {
  Node two(kTwo);
  const auto transport = MakeTransport({{kTwo, two.address()}});
  constexpr size_t kSnapshots = 6;
  Outcome outcomes[kSnapshots];
  for (size_t i = 0; i < kSnapshots; ++i) {
    transport->SendSnapshot(kTwo, absl::StrCat("shard-", i), "",
                            Pieces(RandomBytes(i * 100'000, i), 1'000), outcomes[i].Done());
  }
  for (auto& outcome : outcomes) EXPECT_TRUE(outcome.Await().ok()) << outcome.Await();
  const auto snapshots = two.port().snapshots();
  ASSERT_EQ(snapshots.size(), kSnapshots);
  for (const TakenSnapshot& snapshot : snapshots) {
    const size_t i = static_cast<size_t>(snapshot.machine.back() - '0');
    EXPECT_TRUE(snapshot.bytes == RandomBytes(i * 100'000, i));
    EXPECT_TRUE(snapshot.ended);
  }
}

TEST(PeerSnapshot, WhatTheReceiverSaysIsWhatTheSenderHears) {
  Node two(kTwo);
  const auto transport = MakeTransport({{kTwo, two.address()}});
  {
    two.port().SetRules({.wanted = false});
    Outcome outcome;
    transport->SendSnapshot(kTwo, "ledger", "", Endless(), outcome.Done());
    EXPECT_TRUE(absl::IsAborted(outcome.Await())) << outcome.Await();
  }
  {
    two.port().SetRules({.bytes_max = 1'000'000});
    Outcome outcome;
    transport->SendSnapshot(kTwo, "ledger", "", Endless(), outcome.Done());
    EXPECT_TRUE(absl::IsAborted(outcome.Await())) << outcome.Await();
    EXPECT_THAT(std::string(outcome.Await().message()), HasSubstr("not wanted any more"));
  }
  {
    two.port().SetRules({.end = absl::ResourceExhaustedError("the disk is full")});
    Outcome outcome;
    transport->SendSnapshot(kTwo, "ledger", "", Pieces("bytes", 2), outcome.Done());
    EXPECT_TRUE(absl::IsResourceExhausted(outcome.Await())) << outcome.Await();
    EXPECT_THAT(std::string(outcome.Await().message()), HasSubstr("the disk is full"));
  }
  ASSERT_TRUE(Becomes([&] { return two.Stats(kOne).snapshots_refused == 3; }));
  EXPECT_EQ(StatsOf(transport.get(), kTwo).snapshots_failed, 3u);
  EXPECT_EQ(StatsOf(transport.get(), kTwo).snapshots_sent, 0u);
}

TEST(PeerSnapshot, TheReceiverHearsWhenTheSenderEndsInTheMiddle) {
  Node two(kTwo);
  Outcome outcome;
  {
    const auto transport = MakeTransport({{kTwo, two.address()}});
    transport->SendSnapshot(kTwo, "ledger", "", Endless(), outcome.Done());
    ASSERT_TRUE(Becomes([&] {
      const auto snapshots = two.port().snapshots();
      return !snapshots.empty() && snapshots[0].bytes.size() > 10'000'000;
    }));
  }
  EXPECT_TRUE(absl::IsCancelled(outcome.Await())) << outcome.Await();
  ASSERT_TRUE(Becomes([&] { return two.port().snapshots()[0].gone; }));
  EXPECT_FALSE(two.port().snapshots()[0].ended);
}

TEST(PeerSnapshot, TheSenderHearsWhenTheReceiverEndsInTheMiddle) {
  Node two(kTwo);
  const auto transport = MakeTransport({{kTwo, two.address()}});
  Outcome outcome;
  transport->SendSnapshot(kTwo, "ledger", "", Endless(), outcome.Done());
  ASSERT_TRUE(Becomes([&] {
    const auto snapshots = two.port().snapshots();
    return !snapshots.empty() && snapshots[0].bytes.size() > 10'000'000;
  }));
  two.Stop();
  EXPECT_FALSE(outcome.Await().ok());
  ASSERT_TRUE(Becomes([&] { return two.port().snapshots()[0].gone; }));
  EXPECT_FALSE(two.port().snapshots()[0].ended);
  // And there is nobody to send another one to.
  Outcome again;
  transport->SendSnapshot(kTwo, "ledger", "", Endless(), again.Done());
  EXPECT_TRUE(absl::IsUnavailable(again.Await())) << again.Await();
}

TEST(PeerSnapshot, AReceiverThatStandsStillIsGivenUp) {
  Node two(kTwo);
  two.port().HoldSnapshots(true);
  const auto transport = MakeTransport(
      {{kTwo, two.address()}},
      {.progress_timeout = absl::Milliseconds(500), .answer_timeout = absl::Milliseconds(500)});
  Outcome endless, short_one;
  transport->SendSnapshot(kTwo, "ledger", "", Endless(), endless.Done());
  transport->SendSnapshot(kTwo, "ledger", "", Pieces("bytes", 2), short_one.Done());
  EXPECT_TRUE(absl::IsDeadlineExceeded(endless.Await())) << endless.Await();
  EXPECT_TRUE(absl::IsDeadlineExceeded(short_one.Await())) << short_one.Await();
}

TEST(PeerSnapshot, ASenderThatStandsStillIsGivenUp) {
  Node two(kTwo, {}, {.progress_timeout = absl::Milliseconds(300)});
  const auto transport = MakeTransport({{kTwo, two.address()}});
  Outcome outcome;
  auto release = std::make_shared<Notification>();
  transport->SendSnapshot(
      kTwo, "ledger", "",
      [release, first = true]() mutable {
        if (std::exchange(first, false)) return std::string("first");
        release->Wait();
        return std::string("second");
      },
      outcome.Done());
  ASSERT_TRUE(
      Becomes([&] { return !two.port().snapshots().empty() && two.port().snapshots()[0].gone; }));
  EXPECT_FALSE(two.port().snapshots()[0].ended);
  release->Notify();
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome.Await())) << outcome.Await();
}

TEST(PeerSnapshot, ForNobodyOrForAnotherClusterIsRefused) {
  Node other(kTwo, {}, {.cluster = "production"});
  const auto transport = MakeTransport({{kTwo, other.address()}});
  Outcome nobody, another;
  transport->SendSnapshot(kThree, "ledger", "", Endless(), nobody.Done());
  EXPECT_TRUE(absl::IsNotFound(nobody.Await())) << nobody.Await();
  transport->SendSnapshot(kTwo, "ledger", "", Endless(), another.Done());
  EXPECT_TRUE(absl::IsFailedPrecondition(another.Await())) << another.Await();
  EXPECT_TRUE(other.port().snapshots().empty());
}

TEST(PeerSnapshot, MoreThanSoManyAtOnceAreRefused) {
  Node two(kTwo, {}, {.snapshots_max = 1}), three(kThree);
  const std::map<cluster::NodeId, std::string> peers = {{kTwo, two.address()},
                                                        {kThree, three.address()}};
  const auto one_at_once = MakeTransport(peers, {.snapshots_max = 1});
  const auto transport = MakeTransport(peers);
  two.port().HoldSnapshots(true);
  Outcome first, by_sender, by_receiver, other;
  one_at_once->SendSnapshot(kTwo, "ledger", "", Pieces("bytes", 2), first.Done());
  ASSERT_TRUE(Becomes([&] { return !two.port().snapshots().empty(); }));
  one_at_once->SendSnapshot(kThree, "ledger", "", Endless(), by_sender.Done());
  EXPECT_TRUE(absl::IsResourceExhausted(by_sender.Await())) << by_sender.Await();
  transport->SendSnapshot(kTwo, "ledger", "", Endless(), by_receiver.Done());
  EXPECT_TRUE(absl::IsResourceExhausted(by_receiver.Await())) << by_receiver.Await();
  transport->SendSnapshot(kThree, "ledger", "", Pieces("bytes", 2), other.Done());
  EXPECT_TRUE(other.Await().ok()) << other.Await();
  two.port().HoldSnapshots(false);
  EXPECT_TRUE(first.Await().ok()) << first.Await();
  // Then there is room for others.
  EXPECT_TRUE(Becomes([&] {
    Outcome next;
    one_at_once->SendSnapshot(kTwo, "ledger", "", Pieces("bytes", 2), next.Done());
    return next.Await().ok();
  }));
}

// Sends pieces as they are to a node and gives the end of the call.
grpc::Status SendPieces(const Node& node, const std::vector<std::string>& pieces) {
  const auto channel = grpc::CreateChannel(node.address(), grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  server::TestServer::SetDeadline(&context);
  const grpc::internal::RpcMethod rpc(kSnapshotMethod, grpc::internal::RpcMethod::BIDI_STREAMING);
  const std::unique_ptr<server::TestServer::ClientStream> stream(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          channel.get(), rpc, &context));
  for (const std::string& piece : pieces) stream->Write(server::Body(piece));
  stream->WritesDone();
  grpc::ByteBuffer answer;
  while (stream->Read(&answer)) {
  }
  return stream->Finish();
}

std::string Chunk(const std::string& chunk) {
  std::string bytes(SnapshotChunkSize(chunk), '\0');
  WriteSnapshotChunk(chunk, bytes.data());
  return bytes;
}

TEST(PeerSnapshot, WhatIsNotWholeIsNotTaken) {
  Node two(kTwo);
  const std::string head =
      EncodeSnapshotHead(Opening({.cluster = "test", .self = kOne}, kTwo), "ledger", "");
  const uint32_t crc = Crc32c("bytes");
  std::string flipped = Chunk("bytes");
  flipped[3] = static_cast<char>(flipped[3] ^ 4);
  EXPECT_EQ(SendPieces(two, {}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(SendPieces(two, {Chunk("bytes")}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(SendPieces(two, {head, head}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  for (const std::vector<std::string>& pieces :
       std::vector<std::vector<std::string>>{{head},
                                             {head, Chunk("bytes")},
                                             {head, flipped, EncodeSnapshotEnd(5, crc)},
                                             {head, Chunk("bytes"), EncodeSnapshotEnd(5, crc + 1)},
                                             {head, Chunk("bytes"), EncodeSnapshotEnd(6, crc)},
                                             {head, "no piece"}}) {
    EXPECT_EQ(SendPieces(two, pieces).error_code(), grpc::StatusCode::DATA_LOSS);
  }
  for (const TakenSnapshot& snapshot : two.port().snapshots()) EXPECT_FALSE(snapshot.ended);
  EXPECT_TRUE(SendPieces(two, {head, Chunk("bytes"), EncodeSnapshotEnd(5, crc)}).ok());
  EXPECT_TRUE(two.port().snapshots().back().ended);
}

}  // namespace
}  // namespace forebay::peers
