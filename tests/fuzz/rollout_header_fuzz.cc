// The header decoder against protobuf's, and the checks on whatever it accepts.
#include <cstdio>
#include <cstdlib>

#include "codec/header_decoder.h"
#include "tests/unit/codec/header_agreement.h"

namespace {

int Die(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace forebay::codec;
  static RolloutHeader header;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const std::string difference = HeaderDisagreement(bytes, &header); !difference.empty()) {
    return Die(difference);
  }
  FieldError error;
  // One that has seen other headers gives the same header, and the same judgement.
  static HeaderDecoder decoder;
  const RolloutHeader* const known = decoder.Decode(bytes, &error);
  if (!DecodeRolloutHeader(bytes, &header, &error)) return known == nullptr ? 0 : Die("accepts");
  forebay::v1::RolloutHeader message;
  if (known == nullptr || !message.ParseFromArray(data, static_cast<int>(size)))
    return Die("refuses");
  if (const std::string difference = CompareHeader(*known, message); !difference.empty()) {
    return Die(difference);
  }
  const FieldError judgement = CheckRolloutHeader(header, size);
  if (CheckRolloutHeader(*known, size).message != judgement.message) return Die("judgement");
  if (!judgement.ok()) return 0;
  decoder.Remember(bytes);
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
