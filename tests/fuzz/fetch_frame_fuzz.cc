// The client's reading of a fetch: the frame splitter takes what protobuf takes, but for groups,
// which proto3 cannot say, however the frame is cut, and putting frames together fills what the
// layout announces and nothing else. The first byte chooses the cut.
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "client/assembly.h"
#include "client/fetch_frame.h"
#include "forebay/v1/trainer.pb.h"

namespace {

using forebay::client::FetchFrameView;

constexpr uint64_t kWorthMemory = 1 << 20;
const bool kQuiet = (google::protobuf::SetLogHandler(nullptr), true);

std::vector<std::string_view> Cut(std::string_view bytes, uint8_t how) {
  forebay::Prng prng(how);
  std::vector<std::string_view> pieces;
  while (!bytes.empty()) {
    const size_t piece = std::min<size_t>(bytes.size(), prng.Below(how + 2u));
    pieces.push_back(bytes.substr(0, piece));
    bytes.remove_prefix(piece);
  }
  return pieces;
}

bool HasGroups(const forebay::v1::FetchFrame& frame) {
  const auto& unknown = frame.GetReflection()->GetUnknownFields(frame);
  for (int i = 0; i < unknown.field_count(); ++i) {
    if (unknown.field(i).type() == google::protobuf::UnknownField::TYPE_GROUP) return true;
  }
  return false;
}

// What of the frame the client understood otherwise than protobuf; "" if nothing.
const char* Difference(const FetchFrameView& view, const forebay::v1::FetchFrame& frame) {
  if (view.id != frame.id()) return "id";
  if (view.has_layout != frame.has_layout()) return "has_layout";
  if (view.last != frame.last()) return "last";
  if (view.error_code != frame.error_code()) return "error_code";
  if (view.error_message != frame.error_message()) return "error_message";
  std::string data;
  for (const std::string_view part : view.data) data += part;
  if (data != frame.data()) return "data";
  forebay::v1::MicroBatchLayout layout;
  if (!layout.ParseFromString(view.layout)) return "layout";
  // By their bytes, for a layout may hold what is no number.
  if (layout.SerializeAsString() != frame.layout().SerializeAsString()) return "layout";
  return "";
}

// Sizes that a machine might have, and that are a waste to allocate here.
bool Large(const std::string& encoded) {
  forebay::v1::MicroBatchLayout layout;
  if (!layout.ParseFromString(encoded)) return false;
  bool impossible = false;
  uint64_t bytes = 0;
  for (const auto& column : layout.columns()) {
    impossible |= __builtin_add_overflow(bytes, column.bytes(), &bytes);
  }
  return !impossible && bytes > kWorthMemory && bytes < uint64_t{1} << 50;
}

void PutTogether(const FetchFrameView& view, const forebay::client::FetchSpec& spec) {
  if (spec.allocate == nullptr && Large(view.layout)) return;
  forebay::client::Assembly assembly(&spec);
  // Twice, as an answer of two frames.
  if (!assembly.Add(view).ok()) return;
  if (!assembly.complete() && !assembly.Add(view).ok()) return;
  if (assembly.complete() && assembly.bytes() <= kWorthMemory) {
    const forebay::client::MicroBatch batch = assembly.Take();
    uint64_t bytes = 0;
    for (const auto& column : batch.columns) bytes += column.bytes.size();
    if (bytes != assembly.bytes()) std::abort();
    if (batch.padded_tokens <= kWorthMemory) {
      const size_t rows = batch.PositionIds().size();
      if (batch.TokenIndexes().size() != batch.padded_tokens || rows < batch.padded_tokens)
        std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto pieces = Cut(bytes, data[0]);
  FetchFrameView view;
  const bool read = ReadFetchFrame(pieces, &view);
  forebay::v1::FetchFrame frame;
  // A layout that cannot be parsed is found by the assembly, after the frame.
  if (frame.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    const char* difference = read ? Difference(view, frame) : HasGroups(frame) ? "" : "refused";
    if (*difference != '\0') {
      std::fprintf(stderr, "not as protobuf has it: %s\n", difference);
      std::abort();
    }
  }
  if (!read) return 0;
  forebay::client::FetchSpec spec;
  PutTogether(view, spec);
  // And into places that the caller gives.
  std::deque<std::string> places;
  spec.allocate = [&places](std::string_view /*name*/, size_t column_bytes) -> void* {
    if (column_bytes > kWorthMemory) return nullptr;
    return places.emplace_back(column_bytes, '\0').data();
  };
  PutTogether(view, spec);
  return 0;
}
