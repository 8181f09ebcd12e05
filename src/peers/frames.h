// The messages of peer.proto that carry much, encoded and decoded in place: frames of messages and
// pieces of snapshots.
//
// Pure functions over values; one value belongs to one thread. Decoded views point into the input,
// and all checksums of what is returned have been compared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace forebay::peers {

inline constexpr uint32_t kProtocol = 1;
inline constexpr size_t kMachineBytesMax = 64;
// A message, in as many frames as it needs. Larger than any command with what goes with it.
inline constexpr size_t kMessageBytesMax = size_t{48} << 20;
// Of payload in one frame; and of a snapshot's chunk.
inline constexpr size_t kFrameBytesMax = size_t{1} << 20;
inline constexpr size_t kFrameMessagesMax = 65'536;
inline constexpr size_t kSnapshotHeadBytesMax = size_t{1} << 20;
// Counted for each message that waits, beside its payload.
inline constexpr size_t kMessageOverheadBytes = 64;

// forebay.v1.PeerMessage. Plain value.
struct MessageView {
  std::string_view machine;
  std::string_view payload;
  uint64_t left = 0;
};

// The bytes of a PeerFrame; `opening` is an encoded PeerOpening, or empty.
size_t FrameSize(std::string_view opening, absl::Span<const MessageView> messages);
// Writes FrameSize bytes.
void WriteFrame(std::string_view opening, absl::Span<const MessageView> messages, char* out);

struct FrameView {
  std::optional<std::string_view> opening;  // encoded
  std::vector<MessageView> messages;
};
// DataLoss names what is wrong.
absl::Status ReadFrame(std::string_view bytes, FrameView* frame);

// Puts the messages of one stream together from their pieces.
class MessageJoiner {
 public:
  // DataLoss if the piece does not go on where the last one ended. Else `whole` is a message, or
  // unset if more of it follows; its payload is good until the next call.
  absl::Status Add(const MessageView& piece, std::optional<MessageView>* whole);

 private:
  std::string machine_, payload_;
  uint64_t left_ = 0;
};

// forebay.v1.SnapshotHead and SnapshotEnd. Plain values.
struct SnapshotHeadView {
  std::string_view opening;  // encoded
  std::string_view machine;
  std::string_view about;
};
struct SnapshotEndView {
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};
// forebay.v1.SnapshotPiece: one of the three is set.
struct SnapshotPieceView {
  std::optional<SnapshotHeadView> head;
  std::string_view chunk;
  uint32_t chunk_crc32c = 0;
  std::optional<SnapshotEndView> end;
};
std::string EncodeSnapshotHead(std::string_view opening, std::string_view machine,
                               std::string_view about);
std::string EncodeSnapshotEnd(uint64_t bytes, uint32_t crc32c);
size_t SnapshotChunkSize(std::string_view chunk);
// Writes SnapshotChunkSize bytes and gives the chunk's checksum. The chunk is not empty.
uint32_t WriteSnapshotChunk(std::string_view chunk, char* out);
// DataLoss names what is wrong.
absl::Status ReadSnapshotPiece(std::string_view bytes, SnapshotPieceView* piece);

}  // namespace forebay::peers
