#include "ctl/rollout_reader.h"

#include <algorithm>
#include <utility>

namespace forebay::ctl {
namespace {

// As much as the daemon gives at once; a multiple of every value's size.
constexpr uint32_t kPieceBytes = uint32_t{4} << 20;
constexpr uint64_t kValueBytesMax = 8;

}  // namespace

absl::StatusOr<RolloutReader> RolloutReader::Open(const Context& context, uint64_t rollout) {
  v1::ReadRolloutRequest request;
  request.set_rollout_id(rollout);
  request.set_bytes_max(kPieceBytes);
  auto response = context.Ask<v1::ReadRolloutResponse>("ReadRollout", request);
  if (!response.ok()) return response.status();
  RolloutReader reader(context);
  reader.first_ = *std::move(response);
  return reader;
}

int RolloutReader::FindColumn(std::string_view name) const {
  for (int i = 0; i < header().columns_size(); ++i) {
    if (header().columns(i).name() == name) return i;
  }
  return -1;
}

uint64_t RolloutReader::OffsetOf(int column) const {
  uint64_t offset = 0;
  for (int i = 0; i < column; ++i) offset += header().columns(i).bytes();
  return offset;
}

absl::Status RolloutReader::ReadColumn(int column, Sink sink, uint64_t bytes_max) const {
  const uint64_t begin = OffsetOf(column);
  const uint64_t end = begin + std::min(header().columns(column).bytes(), bytes_max);
  uint64_t at = begin;
  const std::string_view known = first_.data();
  if (known.size() > begin) {
    std::string_view piece = known.substr(begin, end - begin);
    if (piece.size() < end - begin)
      piece = piece.substr(0, piece.size() / kValueBytesMax * kValueBytesMax);
    if (!piece.empty()) {
      if (auto status = sink(piece); !status.ok()) return status;
    }
    at += piece.size();
  }
  while (at < end) {
    v1::ReadRolloutRequest request;
    request.set_rollout_id(state().rollout_id());
    request.set_offset(at);
    request.set_bytes_max(static_cast<uint32_t>(std::min<uint64_t>(end - at, kPieceBytes)));
    const auto response = context_->Ask<v1::ReadRolloutResponse>("ReadRollout", request);
    if (!response.ok()) return response.status();
    if (response->data().size() != request.bytes_max()) {
      return absl::InternalError(absl::StrCat("column '", header().columns(column).name(),
                                              "': the daemon gave ", response->data().size(),
                                              " bytes of ", request.bytes_max()));
    }
    if (auto status = sink(response->data()); !status.ok()) return status;
    at += response->data().size();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RolloutReader::ReadColumn(int column, uint64_t bytes_max) const {
  std::string bytes;
  const auto status = ReadColumn(
      column,
      [&bytes](std::string_view piece) {
        bytes += piece;
        return absl::OkStatus();
      },
      bytes_max);
  if (!status.ok()) return status;
  return bytes;
}

}  // namespace forebay::ctl
