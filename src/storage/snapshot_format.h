// The bytes of a snapshot file: a head, chunks, a footer. docs/formats/snapshot.md has the grammar
// and an example.
//
// Pure functions and values. What decoders refuse they describe; their caller knows the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"

namespace forebay::storage {

inline constexpr uint32_t kSnapshotFormat = 1;
inline constexpr uint64_t kSnapshotChunkBytesMax = uint64_t{64} << 20;

struct SnapshotHead {
  static constexpr size_t kBytes = 128;
  std::string machine;
  LogPosition position;  // of the last record that it holds
  uint64_t epoch = 0;
  uint64_t incarnation = 0;
  bool operator==(const SnapshotHead&) const = default;
};
std::string EncodeSnapshotHead(const SnapshotHead& head);
absl::StatusOr<SnapshotHead> DecodeSnapshotHead(std::string_view bytes);

// Before each chunk; the one of no bytes says that the footer follows.
struct SnapshotChunkHead {
  static constexpr size_t kBytes = 8;
  uint32_t bytes = 0;
  uint32_t crc = 0;
};

// What footer and chunks are held against; grows chunk by chunk.
class SnapshotTotals {
 public:
  static constexpr size_t kFooterBytes = 32;
  // The head to write before the chunk, which is neither empty nor longer than
  // kSnapshotChunkBytesMax.
  std::string Add(std::string_view chunk);
  // The end's mark and the footer.
  std::string End() const;

  // The bytes of the chunk whose head it is, 0 at the end.
  absl::StatusOr<uint32_t> BytesOf(std::string_view head) const;
  // Takes a chunk that was read, with its head.
  absl::Status Check(std::string_view head, std::string_view chunk);
  // The bytes after the end's mark.
  absl::Status CheckFooter(std::string_view footer) const;

  uint64_t bytes() const { return bytes_; }

 private:
  uint32_t CrcOf(std::string_view chunk) const;
  std::string Footer() const;

  uint64_t count_ = 0;
  uint64_t bytes_ = 0;
  uint32_t crc_ = 0;  // of all chunks' bytes
};

// "snapshot-00000000000000001234".
std::string SnapshotName(LogPosition position);
// What it is called while it grows.
std::string UnfinishedSnapshotName(LogPosition position);
bool IsUnfinishedSnapshotName(std::string_view name);
// Nothing if it is no name of a finished snapshot.
std::optional<LogPosition> ParseSnapshotName(std::string_view name);

}  // namespace forebay::storage
