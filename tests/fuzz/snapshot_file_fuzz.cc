// A snapshot file of any bytes; what passes all checks is what would be written again.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "storage/snapshot_format.h"

namespace {

using namespace forebay::storage;

// All chunks, if the file is right.
bool Read(std::string_view file, SnapshotHead* head, std::string* written) {
  const auto decoded = DecodeSnapshotHead(file);
  if (!decoded.ok()) return false;
  *head = *decoded;
  *written = EncodeSnapshotHead(*head);
  file.remove_prefix(SnapshotHead::kBytes);
  SnapshotTotals read, again;
  while (true) {
    const std::string_view chunk_head = file.substr(0, SnapshotChunkHead::kBytes);
    const auto size = read.BytesOf(chunk_head);
    if (!size.ok()) return false;
    file.remove_prefix(SnapshotChunkHead::kBytes);
    if (*size == 0) break;
    const std::string_view chunk = file.substr(0, *size);
    if (!read.Check(chunk_head, chunk).ok()) return false;
    *written += again.Add(chunk);
    *written += chunk;
    file.remove_prefix(chunk.size());
  }
  *written += again.End();
  return read.CheckFooter(file).ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  if (const auto position = ParseSnapshotName(file.substr(0, 64))) {
    FOREBAY_CHECK(SnapshotName(*position) == file.substr(0, 64));
  }
  SnapshotHead head;
  std::string written;
  if (Read(file, &head, &written)) {
    FOREBAY_CHECK(written == file);
  }
  return 0;
}
