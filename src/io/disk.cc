#include "io/disk.h"

#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace forebay::io {
namespace {

constexpr std::string_view kErrnoUrl = "forebay/errno";

std::string NameOf(int error) {
  const char* name = strerrorname_np(error);
  return name == nullptr ? absl::StrCat("errno ", error) : name;
}

}  // namespace

int ErrorOf(const absl::Status& status) {
  const auto payload = status.GetPayload({kErrnoUrl.data(), kErrnoUrl.size()});
  int error = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &error)) return 0;
  return error;
}

absl::Status ErrnoStatus(int error, std::string_view operation, std::string_view path) {
  const char* text = strerrordesc_np(error);
  return ErrnoStatus(error, operation, path, text == nullptr ? "unknown error" : text);
}

absl::Status ErrnoStatus(int error, std::string_view operation, std::string_view path,
                         std::string_view why) {
  const auto view = [](std::string_view text) {
    return absl::string_view(text.data(), text.size());
  };
  absl::Status status(
      absl::ErrnoToStatusCode(error),
      absl::StrCat(view(operation), " ", view(path), ": ", NameOf(error), ", ", view(why)));
  status.SetPayload(view(kErrnoUrl), absl::Cord(absl::StrCat(error)));
  return status;
}

}  // namespace forebay::io
