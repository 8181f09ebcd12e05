#include "storage/replace_file.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::storage {
namespace {

std::string PathOf(const std::string& folder, const std::string& name) {
  return absl::StrCat(folder, "/", name);
}

std::string AsideOf(const std::string& folder, const std::string& name) {
  return PathOf(folder, name) + ".tmp";
}

}  // namespace

absl::Status WriteAside(Blocking* disk, const std::string& folder, const std::string& name,
                        std::string_view bytes) {
  const std::string aside = AsideOf(folder, name);
  absl::Status gone = disk->Unlink(aside);
  if (!gone.ok() && io::ErrorOf(gone) != ENOENT) return gone;
  auto file = disk->Open(aside, io::OpenMode::kCreate);
  if (!file.ok()) return file.status();
  FOREBAY_RETURN_IF_ERROR(disk->Write(*file, 0, bytes));
  return disk->Sync(*file);
}

absl::Status PutInPlace(Blocking* disk, const std::string& folder, const std::string& name) {
  FOREBAY_RETURN_IF_ERROR(disk->Rename(AsideOf(folder, name), PathOf(folder, name)));
  return disk->SyncDirectory(folder);
}

absl::Status ReplaceFile(Blocking* disk, const std::string& folder, const std::string& name,
                         std::string_view bytes) {
  FOREBAY_RETURN_IF_ERROR(WriteAside(disk, folder, name, bytes));
  return PutInPlace(disk, folder, name);
}

absl::StatusOr<std::string> ReadFile(Blocking* disk, const std::string& path, size_t bytes_max) {
  auto file = disk->Open(path, io::OpenMode::kRead);
  if (!file.ok()) return file.status();
  const auto size = disk->Size(*file);
  if (!size.ok()) return size.status();
  if (*size > bytes_max) {
    return absl::DataLossError(
        absl::StrCat(path, ": has ", *size, " bytes, at most ", bytes_max, " were written"));
  }
  std::string bytes(*size, '\0');
  if (bytes.empty()) return bytes;
  const auto got = disk->Read(*file, 0, absl::MakeSpan(bytes));
  if (!got.ok()) return got.status();
  bytes.resize(*got);
  return bytes;
}

}  // namespace forebay::storage
