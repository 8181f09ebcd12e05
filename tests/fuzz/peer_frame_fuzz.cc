// What peers send: frames of messages and pieces of snapshots. What is taken is what protobuf
// reads, with the right checksums; and what has the right checksums and keeps to the limits is
// taken. The first byte chooses between the two kinds.
#include <google/protobuf/stubs/logging.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/crc32c.h"
#include "forebay/v1/peer.pb.h"
#include "peers/frames.h"

namespace {

using namespace forebay;
using namespace forebay::peers;

// Refusals are what is looked for.
const bool kQuiet = (google::protobuf::SetLogHandler(nullptr), true);

bool Parse(std::string_view bytes, google::protobuf::MessageLite* message) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

// They are read by protobuf itself, when the rest is taken.
bool OpeningIsGood(std::string_view bytes) {
  v1::PeerOpening opening;
  return Parse(bytes, &opening);
}

void Agree(const FrameView& ours, const v1::PeerFrame& theirs) {
  FOREBAY_CHECK(ours.opening.has_value() == theirs.has_opening());
  FOREBAY_CHECK(ours.messages.size() == static_cast<size_t>(theirs.messages_size()));
  for (int i = 0; i < theirs.messages_size(); ++i) {
    const MessageView& message = ours.messages[static_cast<size_t>(i)];
    FOREBAY_CHECK(message.machine == theirs.messages(i).machine());
    FOREBAY_CHECK(message.payload == theirs.messages(i).payload());
    FOREBAY_CHECK(message.left == theirs.messages(i).left());
    FOREBAY_CHECK(Crc32c(message.payload, Crc32c(message.machine)) == theirs.messages(i).crc32c());
  }
}

void Join(const FrameView& frame) {
  MessageJoiner joiner;
  for (const MessageView& piece : frame.messages) {
    std::optional<MessageView> whole;
    if (!joiner.Add(piece, &whole).ok()) return;
    FOREBAY_CHECK(whole.has_value() == (piece.left == 0));
  }
}

void ReadFrames(std::string_view bytes) {
  FrameView frame;
  v1::PeerFrame theirs;
  if (ReadFrame(bytes, &frame).ok() && OpeningIsGood(frame.opening.value_or(""))) {
    FOREBAY_CHECK(Parse(bytes, &theirs));
    Agree(frame, theirs);
    Join(frame);
  }
  // Few inputs have good checksums: so they are made good.
  if (!Parse(bytes, &theirs)) return;
  bool within_limits = true, goes_on = false;
  for (auto& message : *theirs.mutable_messages()) {
    message.set_crc32c(Crc32c(message.payload(), Crc32c(message.machine())));
    within_limits &= !message.machine().empty() && message.machine().size() <= kMachineBytesMax &&
                     message.left() <= kMessageBytesMax &&
                     (message.left() == 0 || !message.payload().empty()) && !goes_on;
    goes_on = message.left() > 0;
  }
  const std::string mended = theirs.SerializeAsString();
  FOREBAY_CHECK(ReadFrame(mended, &frame).ok() == within_limits);
  if (!within_limits) return;
  Agree(frame, theirs);
  const std::string opening(frame.opening.value_or(""));
  std::string again(FrameSize(opening, frame.messages), '\0');
  WriteFrame(opening, frame.messages, again.data());
  v1::PeerFrame reread;
  FOREBAY_CHECK(Parse(again, &reread) && reread.messages_size() == theirs.messages_size());
}

void ReadPieces(std::string_view bytes) {
  SnapshotPieceView piece;
  v1::SnapshotPiece theirs;
  if (ReadSnapshotPiece(bytes, &piece).ok() &&
      (!piece.head.has_value() || OpeningIsGood(piece.head->opening))) {
    FOREBAY_CHECK(piece.head.has_value() + piece.end.has_value() + !piece.chunk.empty() == 1);
    if (Parse(bytes, &theirs)) {
      FOREBAY_CHECK(piece.head.has_value() == theirs.has_head());
      FOREBAY_CHECK(piece.end.has_value() == theirs.has_end());
      FOREBAY_CHECK(piece.chunk == theirs.chunk());
    } else {
      FOREBAY_CHECK(piece.head.has_value());  // with an opening that is no good before the last one
    }
  }
  if (!Parse(bytes, &theirs) || theirs.chunk().empty() || theirs.has_head() || theirs.has_end()) {
    return;
  }
  std::string again(SnapshotChunkSize(theirs.chunk()), '\0');
  const uint32_t crc = WriteSnapshotChunk(theirs.chunk(), again.data());
  FOREBAY_CHECK(ReadSnapshotPiece(again, &piece).ok());
  FOREBAY_CHECK(piece.chunk == theirs.chunk() && piece.chunk_crc32c == crc);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  data[0] % 2 == 0 ? ReadFrames(bytes) : ReadPieces(bytes);
  return 0;
}
