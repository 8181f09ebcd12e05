#include "peers/frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "forebay/v1/peer.pb.h"

namespace forebay::peers {
namespace {

using ::testing::HasSubstr;

std::string Frame(std::string_view opening, const std::vector<MessageView>& messages) {
  std::string bytes(FrameSize(opening, messages), '\0');
  WriteFrame(opening, messages, bytes.data());
  return bytes;
}

// A frame as protobuf writes it, with right checksums.
v1::PeerFrame Messages(const std::vector<std::pair<std::string, std::string>>& messages) {
  v1::PeerFrame frame;
  for (const auto& [machine, payload] : messages) {
    auto* message = frame.add_messages();
    message->set_machine(machine);
    message->set_payload(payload);
    message->set_crc32c(Crc32c(machine + payload));
  }
  return frame;
}

std::string WhyNot(const std::string& bytes) {
  FrameView frame;
  const absl::Status status = ReadFrame(bytes, &frame);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  return std::string(status.message());
}

TEST(PeerFrame, IsWhatProtobufWrites) {
  v1::PeerFrame frame = Messages({{"ledger", "one"}, {"shard-0", std::string(300, 'x')}});
  frame.mutable_opening()->set_cluster("c");
  frame.mutable_messages(1)->set_left(1'000);
  const std::string opening = frame.opening().SerializeAsString();
  EXPECT_EQ(
      Frame(opening, {{.machine = "ledger", .payload = "one"},
                      {.machine = "shard-0", .payload = std::string(300, 'x'), .left = 1'000}}),
      frame.SerializeAsString());
}

TEST(PeerFrame, ReadsWhatItWrites) {
  const std::string large(200'000, 'y');
  const std::string bytes = Frame("opening", {{.machine = "ledger", .payload = ""},
                                              {.machine = "shard-0", .payload = large},
                                              {.machine = "m", .payload = "z", .left = 7}});
  FrameView frame;
  ASSERT_TRUE(ReadFrame(bytes, &frame).ok());
  EXPECT_EQ(frame.opening, "opening");
  ASSERT_EQ(frame.messages.size(), 3u);
  EXPECT_EQ(frame.messages[0].machine, "ledger");
  EXPECT_EQ(frame.messages[0].payload, "");
  EXPECT_EQ(frame.messages[1].payload, large);
  EXPECT_EQ(frame.messages[1].left, 0u);
  EXPECT_EQ(frame.messages[2].left, 7u);
  // The same view again, for a stream reads one frame after another.
  ASSERT_TRUE(ReadFrame("", &frame).ok());
  EXPECT_FALSE(frame.opening.has_value());
  EXPECT_TRUE(frame.messages.empty());
}

TEST(PeerFrame, AnyFlippedBitOfAMessageIsNoticed) {
  const std::string whole = Frame(
      "", {{.machine = "ledger", .payload = "what is said"}, {.machine = "m", .payload = "n"}});
  FrameView before;
  ASSERT_TRUE(ReadFrame(whole, &before).ok());
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    FrameView frame;
    if (!ReadFrame(bytes, &frame).ok()) continue;
    // A message that became an unknown field, or an opening, is one that was lost; none may differ.
    for (const MessageView& message : frame.messages) {
      EXPECT_TRUE(message.payload == "what is said" || message.payload == "n") << bit;
      EXPECT_TRUE(message.machine == "ledger" || message.machine == "m") << bit;
    }
  }
}

TEST(PeerFrame, RefusesAWrongChecksum) {
  v1::PeerFrame frame = Messages({{"ledger", "right"}, {"ledger", "wrong"}});
  frame.mutable_messages(1)->set_payload("wrung");
  EXPECT_THAT(WhyNot(frame.SerializeAsString()), HasSubstr("checksum"));
  // The bytes are the same, but the name has changed places with them.
  frame = Messages({{"ledger", "right"}});
  frame.mutable_messages(0)->set_machine("shard-0");
  EXPECT_THAT(WhyNot(frame.SerializeAsString()), HasSubstr("checksum"));
}

TEST(PeerFrame, RefusesWhatNoPeerSends) {
  EXPECT_THAT(WhyNot(Messages({{"", "x"}}).SerializeAsString()), HasSubstr("0 bytes"));
  EXPECT_THAT(WhyNot(Messages({{std::string(kMachineBytesMax + 1, 'm'), "x"}}).SerializeAsString()),
              HasSubstr("machine has 65 bytes"));
  const std::string two = Messages({{"m", "x"}, {"m", "y"}}).SerializeAsString();
  EXPECT_THAT(WhyNot(two.substr(0, two.size() - 1)), HasSubstr("no PeerFrame"));
  EXPECT_THAT(WhyNot("not a frame"), HasSubstr("no PeerFrame"));

  v1::PeerFrame pieces = Messages({{"m", "x"}, {"m", "y"}});
  pieces.mutable_messages(0)->set_left(1);
  EXPECT_THAT(WhyNot(pieces.SerializeAsString()), HasSubstr("follows a piece"));
  pieces = Messages({{"m", ""}});
  pieces.mutable_messages(0)->set_left(1);
  EXPECT_THAT(WhyNot(pieces.SerializeAsString()), HasSubstr("empty"));
  pieces.mutable_messages(0)->set_left(kMessageBytesMax + 1);
  EXPECT_THAT(WhyNot(pieces.SerializeAsString()), HasSubstr("of more than"));

  const std::string opening = Frame("opening", {});
  EXPECT_THAT(WhyNot(opening + opening), HasSubstr("comes twice"));
  std::string many;
  const std::string one = Messages({{"m", ""}}).SerializeAsString();
  for (size_t i = 0; i < kFrameMessagesMax; ++i) many += one;
  FrameView frame;
  EXPECT_TRUE(ReadFrame(many, &frame).ok());
  EXPECT_THAT(WhyNot(many + one), HasSubstr("more than 65536 entries"));
}

TEST(MessageJoiner, JoinsPiecesAndPassesOthersOn) {
  MessageJoiner joiner;
  std::optional<MessageView> whole;
  ASSERT_TRUE(joiner.Add({.machine = "m", .payload = "alone"}, &whole).ok());
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->payload, "alone");
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(joiner.Add({.machine = "m", .payload = "one ", .left = 9}, &whole).ok());
    EXPECT_FALSE(whole.has_value());
    ASSERT_TRUE(joiner.Add({.machine = "m", .payload = "two ", .left = 5}, &whole).ok());
    EXPECT_FALSE(whole.has_value());
    ASSERT_TRUE(joiner.Add({.machine = "m", .payload = "three"}, &whole).ok());
    ASSERT_TRUE(whole.has_value());
    EXPECT_EQ(whole->machine, "m");
    EXPECT_EQ(whole->payload, "one two three");
  }
}

TEST(MessageJoiner, RefusesPiecesThatDoNotFollow) {
  std::optional<MessageView> whole;
  const MessageView first{.machine = "m", .payload = "12345", .left = 5};
  for (const MessageView& second :
       {MessageView{.machine = "n", .payload = "67890"},
        MessageView{.machine = "m", .payload = "6789"},
        MessageView{.machine = "m", .payload = "678901"},
        MessageView{.machine = "m", .payload = "67", .left = 4}, first}) {
    MessageJoiner joiner;
    ASSERT_TRUE(joiner.Add(first, &whole).ok());
    EXPECT_TRUE(absl::IsDataLoss(joiner.Add(second, &whole)));
  }
  MessageJoiner joiner;
  EXPECT_TRUE(absl::IsDataLoss(
      joiner.Add({.machine = "m", .payload = "1", .left = kMessageBytesMax}, &whole)));
}

SnapshotPieceView Piece(const std::string& bytes) {
  SnapshotPieceView piece;
  const absl::Status status = ReadSnapshotPiece(bytes, &piece);
  EXPECT_TRUE(status.ok()) << status;
  return piece;
}

std::string WhyNoPiece(const std::string& bytes) {
  SnapshotPieceView piece;
  const absl::Status status = ReadSnapshotPiece(bytes, &piece);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  return std::string(status.message());
}

std::string Chunk(const std::string& chunk) {
  std::string bytes(SnapshotChunkSize(chunk), '\0');
  EXPECT_EQ(WriteSnapshotChunk(chunk, bytes.data()), Crc32c(chunk));
  return bytes;
}

TEST(SnapshotPiece, ReadsWhatItWrites) {
  const std::string head = EncodeSnapshotHead("opening", "ledger", "about it");
  const SnapshotPieceView first = Piece(head);
  ASSERT_TRUE(first.head.has_value());
  EXPECT_EQ(first.head->opening, "opening");
  EXPECT_EQ(first.head->machine, "ledger");
  EXPECT_EQ(first.head->about, "about it");
  const std::string bytes = Chunk("some bytes");
  const SnapshotPieceView chunk = Piece(bytes);
  EXPECT_EQ(chunk.chunk, "some bytes");
  EXPECT_EQ(chunk.chunk_crc32c, Crc32c("some bytes"));
  const SnapshotPieceView end = Piece(EncodeSnapshotEnd(10, 77));
  ASSERT_TRUE(end.end.has_value());
  EXPECT_EQ(end.end->bytes, 10u);
  EXPECT_EQ(end.end->crc32c, 77u);
  EXPECT_TRUE(Piece(EncodeSnapshotEnd(0, 0)).end.has_value());
}

TEST(SnapshotPiece, IsWhatProtobufWrites) {
  v1::SnapshotPiece chunk;
  chunk.set_chunk("some bytes");
  chunk.set_crc32c(Crc32c("some bytes"));
  EXPECT_EQ(Chunk("some bytes"), chunk.SerializeAsString());
  v1::SnapshotPiece head;
  head.mutable_head()->mutable_opening()->set_cluster("c");
  head.mutable_head()->set_machine("ledger");
  head.mutable_head()->set_about("about it");
  head.mutable_head()->set_crc32c(Crc32c("ledgerabout it"));
  EXPECT_EQ(EncodeSnapshotHead(head.head().opening().SerializeAsString(), "ledger", "about it"),
            head.SerializeAsString());
  v1::SnapshotPiece end;
  end.mutable_end()->set_bytes(10);
  end.mutable_end()->set_crc32c(77);
  EXPECT_EQ(EncodeSnapshotEnd(10, 77), end.SerializeAsString());
}

TEST(SnapshotPiece, RefusesWhatNoPeerSends) {
  std::string bytes = Chunk("some bytes");
  bytes[5] = static_cast<char>(bytes[5] ^ 1);
  EXPECT_THAT(WhyNoPiece(bytes), HasSubstr("checksum"));
  bytes = EncodeSnapshotHead("opening", "ledger", "about it");
  EXPECT_THAT(WhyNoPiece(bytes.substr(0, bytes.size() - 1)), HasSubstr("no SnapshotPiece"));
  v1::SnapshotPiece head;
  head.mutable_head()->set_machine("ledger");
  EXPECT_THAT(WhyNoPiece(head.SerializeAsString()), HasSubstr("checksum"));
  EXPECT_THAT(WhyNoPiece(EncodeSnapshotHead("", "", "x")), HasSubstr("0 bytes"));
  EXPECT_THAT(WhyNoPiece(EncodeSnapshotHead("", "m", std::string(kSnapshotHeadBytesMax + 1, 'x'))),
              HasSubstr("about has"));
  EXPECT_THAT(WhyNoPiece(""), HasSubstr("not one of"));
  EXPECT_THAT(WhyNoPiece(Chunk("x") + EncodeSnapshotEnd(1, 1)), HasSubstr("not one of"));
  EXPECT_THAT(WhyNoPiece(Chunk("")), HasSubstr("0 bytes"));
  EXPECT_THAT(WhyNoPiece(Chunk(std::string(kFrameBytesMax + 1, 'x'))), HasSubstr("1 to"));
}

}  // namespace
}  // namespace forebay::peers
