// The frame splitter: what it accepts protobuf accepts too, however the message is cut into slices.
// The first byte chooses the cut.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/prng.h"
#include "tests/unit/codec/header_agreement.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace forebay::codec;
  if (size == 0) return 0;
  static PushFrameView view;
  forebay::Prng prng(data[0]);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::vector<std::string_view> slices;
  for (std::string_view rest = bytes; !rest.empty();) {
    const size_t piece = std::min<size_t>(rest.size(), prng.Below(data[0] + 2));
    slices.push_back(rest.substr(0, piece));
    rest.remove_prefix(piece);
  }
  if (!view.Split(slices)) return 0;
  forebay::v1::PushFrame frame;
  const bool theirs = frame.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  const std::string difference = FrameDisagreement(view, frame);
  if (theirs != difference.empty()) {
    std::fprintf(stderr, "protobuf: %d, %s\n", theirs, difference.c_str());
    std::abort();
  }
  return 0;
}
