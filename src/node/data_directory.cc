#include "node/data_directory.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "storage/log_blocking.h"
#include "storage/replace_file.h"

namespace forebay::node {
namespace {

constexpr char kFile[] = "run";
constexpr uint64_t kFormat = 1;
constexpr size_t kFileBytesMax = 4096;

absl::Status Differs(const char* entry, uint64_t is, uint64_t was, const std::string& folder) {
  return absl::FailedPreconditionError(
      absl::StrCat(entry, ": is ", is, ", but the run in ", folder, " was begun with ", was,
                   "; set it so, or give storage.directory a new path for a new run"));
}

// The file comes before all others, so where they are and it is not, it was lost.
absl::Status CheckNew(storage::Blocking* disk, const std::string& folder) {
  for (const char* name : {"ledger", "shard-0", "contents", "segments"}) {
    const std::string path = absl::StrCat(folder, "/", name);
    const auto entries = disk->List(path);
    if (io::ErrorOf(entries.status()) == ENOENT) continue;
    if (!entries.ok()) return entries.status();
    return absl::DataLossError(absl::StrCat(
        folder, "/", kFile, " is missing, and ", path,
        " is there: without it the run's files cannot be told from another's. Bring it back from a "
        "copy, or give storage.directory a new path for a new run; nothing was changed"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string EncodeIdentity(const RunIdentity& identity) {
  return absl::StrCat("format: ", kFormat, "\nrun: ", identity.run, "\nseed: ", identity.run_seed,
                      "\nshards: ", identity.shards, "\nstarts: ", identity.incarnation, "\n");
}

absl::StatusOr<RunIdentity> DecodeIdentity(std::string_view text) {
  std::map<std::string, uint64_t> values;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, ": ");
    uint64_t value = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &value) ||
        !values.emplace(parts[0], value).second) {
      return absl::DataLossError(absl::StrCat("the line '", line, "' is no 'name: number'"));
    }
  }
  for (const char* name : {"format", "run", "seed", "shards", "starts"}) {
    if (!values.contains(name)) return absl::DataLossError(absl::StrCat("lacks '", name, "'"));
  }
  if (values["format"] != kFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat("format: is ", values["format"], ", this program reads ", kFormat));
  }
  return RunIdentity{.run = values["run"],
                     .run_seed = values["seed"],
                     .shards = values["shards"],
                     .incarnation = values["starts"]};
}

absl::StatusOr<RunIdentity> ReadIdentity(io::Disk* disk, const std::string& path) {
  storage::Blocking blocking(disk);
  const std::string file = absl::StrCat(path, "/", kFile);
  auto bytes = storage::ReadFile(&blocking, file, kFileBytesMax);
  if (!bytes.ok()) return bytes.status();
  auto found = DecodeIdentity(*bytes);
  if (found.ok()) return found;
  return absl::Status(found.status().code(), absl::StrCat(file, ": ", found.status().message()));
}

absl::Status CheckOwner(io::Disk* disk, const std::string& folder, const RunIdentity& identity) {
  const auto owner = ReadIdentity(disk, folder);
  if (io::ErrorOf(owner.status()) == ENOENT) return absl::OkStatus();
  if (!owner.ok() || owner->run == identity.run) return owner.status();
  return absl::FailedPreconditionError(absl::StrCat(
      folder, " holds the rollouts of run ", absl::Hex(owner->run, absl::kZeroPad16),
      ", and this is run ", absl::Hex(identity.run, absl::kZeroPad16),
      ": give this run a storage.segment_directory of its own, or start the other one's daemon "
      "with its own storage.directory; if that run is given up, remove the folder. Nothing was "
      "changed"));
}

absl::Status TakeFolder(io::Disk* disk, const std::string& folder, const RunIdentity& identity) {
  FOREBAY_RETURN_IF_ERROR(CheckOwner(disk, folder, identity));
  storage::Blocking blocking(disk);
  const auto owner = ReadIdentity(disk, folder);
  return owner.ok() ? absl::OkStatus()
                    : storage::ReplaceFile(&blocking, folder, kFile, EncodeIdentity(identity));
}

absl::StatusOr<DataDirectory> DataDirectory::Open(io::Disk* disk, const std::string& path,
                                                  const RunIdentity& wanted) {
  storage::Blocking blocking(disk);
  FOREBAY_RETURN_IF_ERROR(blocking.MakeDirectory(path));
  auto lock = storage::DirectoryLock::Take(path);
  if (!lock.ok()) return lock.status();
  RunIdentity identity = wanted;
  if (const auto found = ReadIdentity(disk, path); found.ok()) {
    identity = *found;
    if (identity.shards != wanted.shards) {
      return Differs("shards", wanted.shards, identity.shards, path);
    }
    if (identity.run_seed != wanted.run_seed) {
      return Differs("run.seed", wanted.run_seed, identity.run_seed, path);
    }
  } else if (io::ErrorOf(found.status()) != ENOENT) {
    return found.status();
  } else {
    FOREBAY_RETURN_IF_ERROR(CheckNew(&blocking, path));
  }
  ++identity.incarnation;
  FOREBAY_RETURN_IF_ERROR(storage::ReplaceFile(&blocking, path, kFile, EncodeIdentity(identity)));
  return DataDirectory(path, identity, *std::move(lock));
}

}  // namespace forebay::node
