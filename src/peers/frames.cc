#include "peers/frames.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "codec/wire.h"

namespace forebay::peers {
namespace {

using codec::BytesTag;
using codec::Fixed32Tag;
using codec::VarintSize;
using codec::VarintTag;
using codec::WireReader;
using codec::WireWriter;

// Of PeerFrame.
constexpr uint32_t kOpening = BytesTag(1);
constexpr uint32_t kMessage = BytesTag(2);
// Of PeerMessage.
constexpr uint32_t kMachine = BytesTag(1);
constexpr uint32_t kPayload = BytesTag(2);
constexpr uint32_t kCrc = Fixed32Tag(3);
constexpr uint32_t kLeft = VarintTag(4);
// Of SnapshotPiece.
constexpr uint32_t kChunk = BytesTag(2);

// All tags here take one byte.
constexpr size_t BytesFieldSize(size_t size) { return 1 + VarintSize(size) + size; }
constexpr size_t kCrcFieldSize = 1 + sizeof(uint32_t);

size_t MessageSize(const MessageView& message) {
  return BytesFieldSize(message.machine.size()) + BytesFieldSize(message.payload.size()) +
         kCrcFieldSize + (message.left > 0 ? 1 + VarintSize(message.left) : 0);
}

char* PutVarint(uint64_t value, char* out) {
  while (value >= 0x80) {
    *out++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<char>(value);
  return out;
}

char* PutHead(uint32_t tag, size_t size, char* out) { return PutVarint(size, PutVarint(tag, out)); }

char* PutBytes(uint32_t tag, std::string_view bytes, char* out) {
  out = PutHead(tag, bytes.size(), out);
  if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
  return out + bytes.size();
}

char* PutCrc(uint32_t crc, char* out) {
  out = PutVarint(kCrc, out);
  std::memcpy(out, &crc, sizeof(crc));
  return out + sizeof(crc);
}

char* PutMessage(const MessageView& message, char* out) {
  out = PutHead(kMessage, MessageSize(message), out);
  out = PutBytes(kMachine, message.machine, out);
  out = PutHead(kPayload, message.payload.size(), out);
  const uint32_t crc =
      CopyCrc32c(out, message.payload.data(), message.payload.size(), Crc32c(message.machine));
  out = PutCrc(crc, out + message.payload.size());
  return message.left > 0 ? PutVarint(message.left, PutVarint(kLeft, out)) : out;
}

absl::Status Wrong(const char* what, const std::string& why) {
  return absl::DataLossError(absl::StrCat(what, ": ", why));
}

absl::Status CheckMachine(const char* what, std::string_view machine) {
  if (machine.empty() || machine.size() > kMachineBytesMax) {
    return Wrong(what, absl::StrCat("machine has ", machine.size(), " bytes, 1 to ",
                                    kMachineBytesMax, " are wanted"));
  }
  return absl::OkStatus();
}

absl::Status ReadMessage(WireReader r, MessageView* message) {
  uint32_t crc = 0;
  while (r.Next()) {
    switch (r.tag()) {
      case kMachine:
        message->machine = r.String();
        break;
      case kPayload:
        message->payload = r.Bytes();
        break;
      case kCrc:
        crc = r.Fixed<uint32_t>();
        break;
      case kLeft:
        message->left = r.Varint();
        break;
      default:
        r.Skip();
    }
  }
  if (!r.ok()) return Wrong("messages", "is no PeerMessage");
  FOREBAY_RETURN_IF_ERROR(CheckMachine("messages", message->machine));
  if (message->left > kMessageBytesMax || message->payload.size() > kMessageBytesMax) {
    return Wrong("messages", absl::StrCat("of more than ", kMessageBytesMax, " bytes"));
  }
  if (message->left > 0 && message->payload.empty()) {
    return Wrong("messages", "a piece of a message is empty");
  }
  if (Crc32c(message->payload, Crc32c(message->machine)) != crc) {
    return Wrong("messages", "the checksum is wrong");
  }
  return absl::OkStatus();
}

absl::Status ReadHead(WireReader r, SnapshotHeadView* head) {
  uint32_t crc = 0;
  while (r.Next()) {
    switch (r.tag()) {
      case BytesTag(1):
        head->opening = r.Bytes();
        break;
      case BytesTag(2):
        head->machine = r.String();
        break;
      case BytesTag(3):
        head->about = r.Bytes();
        break;
      case Fixed32Tag(4):
        crc = r.Fixed<uint32_t>();
        break;
      default:
        r.Skip();
    }
  }
  if (!r.ok()) return Wrong("head", "is no SnapshotHead");
  FOREBAY_RETURN_IF_ERROR(CheckMachine("head", head->machine));
  if (head->about.size() > kSnapshotHeadBytesMax) {
    return Wrong("head", absl::StrCat("about has ", head->about.size(), " bytes, at most ",
                                      kSnapshotHeadBytesMax));
  }
  if (Crc32c(head->about, Crc32c(head->machine)) != crc) {
    return Wrong("head", "the checksum is wrong");
  }
  return absl::OkStatus();
}

absl::Status ReadEnd(WireReader r, SnapshotEndView* end) {
  while (r.Next()) {
    switch (r.tag()) {
      case VarintTag(1):
        end->bytes = r.Varint();
        break;
      case Fixed32Tag(2):
        end->crc32c = r.Fixed<uint32_t>();
        break;
      default:
        r.Skip();
    }
  }
  return r.ok() ? absl::OkStatus() : Wrong("end", "is no SnapshotEnd");
}

}  // namespace

size_t FrameSize(std::string_view opening, absl::Span<const MessageView> messages) {
  size_t size = opening.empty() ? 0 : BytesFieldSize(opening.size());
  for (const MessageView& message : messages) size += BytesFieldSize(MessageSize(message));
  return size;
}

void WriteFrame(std::string_view opening, absl::Span<const MessageView> messages, char* out) {
  if (!opening.empty()) out = PutBytes(kOpening, opening, out);
  for (const MessageView& message : messages) out = PutMessage(message, out);
}

absl::Status ReadFrame(std::string_view bytes, FrameView* frame) {
  frame->opening.reset();
  frame->messages.clear();
  WireReader r(bytes);
  while (r.Next()) {
    switch (r.tag()) {
      case kOpening:
        // protobuf would merge them.
        if (frame->opening.has_value()) return Wrong("opening", "comes twice");
        frame->opening = r.Bytes();
        break;
      case kMessage: {
        if (!frame->messages.empty() && frame->messages.back().left > 0) {
          return Wrong("messages", "one follows a piece in the same frame");
        }
        if (frame->messages.size() == kFrameMessagesMax) {
          return Wrong("messages", absl::StrCat("has more than ", kFrameMessagesMax, " entries"));
        }
        const WireReader message = r.Message();
        if (!r.ok()) break;
        FOREBAY_RETURN_IF_ERROR(ReadMessage(message, &frame->messages.emplace_back()));
        break;
      }
      default:
        r.Skip();
    }
  }
  return r.ok() ? absl::OkStatus() : Wrong("frame", "is no PeerFrame");
}

absl::Status MessageJoiner::Add(const MessageView& piece, std::optional<MessageView>* whole) {
  whole->reset();
  if (left_ == 0) std::string().swap(payload_);  // of the message before
  if (left_ == 0 && piece.left == 0) {
    *whole = piece;
    return absl::OkStatus();
  }
  if (left_ == 0) {
    if (piece.payload.size() + piece.left > kMessageBytesMax) {
      return Wrong("messages", absl::StrCat("of more than ", kMessageBytesMax, " bytes"));
    }
    machine_ = piece.machine;
  } else if (piece.machine != machine_ || piece.payload.size() + piece.left != left_) {
    return Wrong("messages", "a piece is not the next one of its message");
  }
  payload_.append(piece.payload);
  left_ = piece.left;
  if (left_ == 0) *whole = MessageView{.machine = machine_, .payload = payload_};
  return absl::OkStatus();
}

std::string EncodeSnapshotHead(std::string_view opening, std::string_view machine,
                               std::string_view about) {
  std::string head;
  WireWriter writer(&head);
  writer.Message(1, opening);
  writer.Bytes(2, machine);
  writer.Bytes(3, about);
  writer.Fixed(4, Crc32c(about, Crc32c(machine)));
  std::string piece;
  WireWriter(&piece).Message(1, head);
  return piece;
}

std::string EncodeSnapshotEnd(uint64_t bytes, uint32_t crc32c) {
  std::string end;
  WireWriter writer(&end);
  writer.Varint(1, bytes);
  writer.Fixed(2, crc32c);
  std::string piece;
  WireWriter(&piece).Message(4, end);
  return piece;
}

size_t SnapshotChunkSize(std::string_view chunk) {
  return BytesFieldSize(chunk.size()) + kCrcFieldSize;
}

uint32_t WriteSnapshotChunk(std::string_view chunk, char* out) {
  out = PutHead(kChunk, chunk.size(), out);
  const uint32_t crc = CopyCrc32c(out, chunk.data(), chunk.size());
  PutCrc(crc, out + chunk.size());
  return crc;
}

absl::Status ReadSnapshotPiece(std::string_view bytes, SnapshotPieceView* piece) {
  *piece = {};
  int kinds = 0;
  uint32_t crc = 0;
  WireReader r(bytes);
  while (r.Next()) {
    switch (r.tag()) {
      case BytesTag(1):
        ++kinds;
        if (const WireReader head = r.Message(); r.ok()) {
          FOREBAY_RETURN_IF_ERROR(ReadHead(head, &piece->head.emplace()));
        }
        break;
      case kChunk:
        ++kinds;
        piece->chunk = r.Bytes();
        break;
      case kCrc:
        crc = r.Fixed<uint32_t>();
        break;
      case BytesTag(4):
        ++kinds;
        if (const WireReader end = r.Message(); r.ok()) {
          FOREBAY_RETURN_IF_ERROR(ReadEnd(end, &piece->end.emplace()));
        }
        break;
      default:
        r.Skip();
    }
  }
  if (!r.ok()) return Wrong("piece", "is no SnapshotPiece");
  if (kinds != 1) return Wrong("piece", "is not one of head, chunk and end");
  if (piece->head.has_value() || piece->end.has_value()) return absl::OkStatus();
  if (piece->chunk.empty() || piece->chunk.size() > kFrameBytesMax) {
    return Wrong("chunk", absl::StrCat("has ", piece->chunk.size(), " bytes, 1 to ", kFrameBytesMax,
                                       " are wanted"));
  }
  piece->chunk_crc32c = Crc32c(piece->chunk);
  return piece->chunk_crc32c == crc ? absl::OkStatus() : Wrong("chunk", "the checksum is wrong");
}

}  // namespace forebay::peers
