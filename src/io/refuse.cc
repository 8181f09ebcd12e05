#include "io/refuse.h"

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace forebay::io {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{1} << 62;

absl::Status Refuse(std::string_view operation, const File& file, const std::string& why) {
  return ErrnoStatus(EINVAL, operation, file.path(), why);
}

absl::Status CheckDirect(std::string_view operation, const File& file, const char* what,
                         uint64_t value) {
  if (!file.direct() || value % kAlignment == 0) return absl::OkStatus();
  return Refuse(
      operation, file,
      absl::StrCat("direct access: ", what, " ", value, " is no multiple of ", kAlignment));
}

absl::Status CheckCount(std::string_view operation, const File& file, size_t pieces) {
  if (pieces <= Disk::kPiecesMax) return absl::OkStatus();
  return Refuse(operation, file, absl::StrCat(pieces, " pieces, at most ", Disk::kPiecesMax));
}

absl::Status CheckPiece(std::string_view operation, const File& file, const char* data,
                        uint64_t size) {
  if (auto status = CheckDirect(operation, file, "size", size); !status.ok()) return status;
  return CheckDirect(operation, file, "address", reinterpret_cast<uintptr_t>(data));
}

absl::Status CheckRange(std::string_view operation, const File& file, uint64_t offset,
                        uint64_t bytes) {
  if (offset > kFileBytesMax || bytes > kFileBytesMax - offset) {
    return Refuse(operation, file, absl::StrCat("no file has a byte ", offset, " + ", bytes));
  }
  return CheckDirect(operation, file, "offset", offset);
}

}  // namespace

absl::Status RefuseWrite(const File& file, uint64_t offset, absl::Span<const ConstBuffer> pieces) {
  if (auto status = CheckCount("write", file, pieces.size()); !status.ok()) return status;
  uint64_t bytes = 0;
  for (const ConstBuffer& piece : pieces) {
    if (auto status = CheckPiece("write", file, piece.data, piece.size); !status.ok())
      return status;
    bytes += piece.size;
  }
  return CheckRange("write", file, offset, bytes);
}

absl::Status RefuseRead(const File& file, uint64_t offset,
                        absl::Span<const absl::Span<char>> pieces) {
  if (auto status = CheckCount("read", file, pieces.size()); !status.ok()) return status;
  uint64_t bytes = 0;
  for (const absl::Span<char> piece : pieces) {
    if (auto status = CheckPiece("read", file, piece.data(), piece.size()); !status.ok())
      return status;
    bytes += piece.size();
  }
  return CheckRange("read", file, offset, bytes);
}

absl::Status RefuseLength(std::string_view operation, const File& file, uint64_t bytes) {
  if (bytes <= kFileBytesMax) return absl::OkStatus();
  return Refuse(operation, file, absl::StrCat("no file has ", bytes, " bytes"));
}

}  // namespace forebay::io
