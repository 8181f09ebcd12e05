#include "node/coordinator_file.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "codec/archive.h"
#include "storage/replace_file.h"

namespace forebay::node {
namespace {

constexpr char kMagic[] = "FOBAYKEY";
constexpr size_t kMagicBytes = 8;
constexpr uint32_t kFormat = 1;

struct Head {
  uint32_t format = kFormat;
  uint32_t crc = 0;  // of the body
  uint64_t body_bytes = 0;
};
static_assert(sizeof(Head) == 16);
constexpr size_t kHeadBytes = kMagicBytes + sizeof(Head);
struct FileEntry {
  std::string key, value;
  uint64_t revision = 0;
  bool presence = false;
  template <class A>
  void Fields(A& a) {
    a(key, value, revision, presence);
  }
};

struct Body {
  uint64_t revision = 0;
  std::vector<FileEntry> entries;
  template <class A>
  void Fields(A& a) {
    a(revision, entries);
  }
};

}  // namespace

KeyState LocalKeys::Under(const std::string& prefix) const {
  KeyState state{.entries = {}, .revision = revision};
  for (auto at = entries.lower_bound(prefix);
       at != entries.end() && at->first.compare(0, prefix.size(), prefix) == 0; ++at) {
    state.entries.push_back({at->first, at->second.value, at->second.revision});
  }
  return state;
}

KeyValue LocalKeys::At(const std::string& key) const {
  const auto found = entries.find(key);
  if (found == entries.end()) return {.key = key};
  return {key, found->second.value, found->second.revision};
}

std::string EncodeKeys(const LocalKeys& keys) {
  Body body{.revision = keys.revision, .entries = {}};
  for (const auto& [key, entry] : keys.entries) {
    body.entries.push_back({key, entry.value, entry.revision, entry.presence != 0});
  }
  const std::string bytes = codec::Encode(body);
  const Head head{.crc = Crc32c(bytes), .body_bytes = bytes.size()};
  std::string out(kMagic, kMagicBytes);
  out.append(reinterpret_cast<const char*>(&head), sizeof(head));
  return out + bytes;
}

absl::StatusOr<LocalKeys> DecodeKeys(std::string_view bytes) {
  if (bytes.size() < kHeadBytes || bytes.substr(0, kMagicBytes) != kMagic) {
    return absl::DataLossError("does not begin as a coordinator's file does");
  }
  Head head;
  std::memcpy(&head, bytes.data() + kMagicBytes, sizeof(head));
  if (head.format != kFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat("format: is ", head.format, ", this program reads ", kFormat));
  }
  bytes.remove_prefix(kHeadBytes);
  if (bytes.size() != head.body_bytes || Crc32c(bytes) != head.crc) {
    return absl::DataLossError("its length or its checksum is wrong");
  }
  Body body;
  if (!codec::Decode(bytes, &body)) return absl::DataLossError("its entries cannot be read");
  LocalKeys keys{.entries = {}, .revision = body.revision};
  for (FileEntry& entry : body.entries) {
    const bool ordered = keys.entries.empty() || keys.entries.rbegin()->first < entry.key;
    if (!ordered || entry.revision == 0 || entry.revision > body.revision) {
      return absl::DataLossError("its entries are out of order");
    }
    keys.entries.emplace_hint(
        keys.entries.end(), std::move(entry.key),
        LocalEntry{std::move(entry.value), entry.revision, entry.presence ? uint64_t{1} : 0});
  }
  return keys;
}

absl::StatusOr<LocalKeys> ReadCoordinatorFile(storage::Blocking* disk, const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kCoordinatorFile);
  const auto bytes = storage::ReadFile(disk, path, CoordinatorLimits::kStateBytesMax);
  if (!bytes.ok()) return bytes.status();
  auto keys = DecodeKeys(*bytes);
  if (keys.ok()) return keys;
  return absl::Status(keys.status().code(),
                      absl::StrCat(path, ": ", keys.status().message(), "; it was not changed"));
}

}  // namespace forebay::node
