// The header decoder against protobuf's, and the checks on whatever it accepts.
#include <cstdio>
#include <cstdlib>

#include "tests/unit/codec/header_agreement.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace forebay::codec;
  static RolloutHeader header;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const std::string difference = HeaderDisagreement(bytes, &header); !difference.empty()) {
    std::fprintf(stderr, "%s\n", difference.c_str());
    std::abort();
  }
  FieldError error;
  if (!DecodeRolloutHeader(bytes, &header, &error)) return 0;
  if (!CheckRolloutHeader(header, size).ok()) return 0;
  // What passed the checks can be cut into sequences that add up.
  for (const HeaderColumn& column : header.columns) {
    uint64_t sum = 0;
    for (size_t i = 0; i < header.sequences.size(); ++i) {
      sum += SequencePartBytes(header, column, i);
    }
    if (sum != column.bytes) std::abort();
  }
  return 0;
}
