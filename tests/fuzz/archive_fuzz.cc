// Any bytes: decoding neither crashes nor over-allocates, and what decodes encodes to the same
// bytes again, since replicas compare states by their encodings.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "codec/archive.h"
#include "codec/source_settings.h"

namespace {

using forebay::PolicyVersion;
using forebay::RolloutId;
using forebay::StepId;
using forebay::codec::Decode;
using forebay::codec::Encode;
using forebay::codec::SourceSettings;

struct Leaf {
  bool flag = false;
  std::optional<double> number;

  template <class A>
  void Fields(A& a) {
    a(flag, number);
  }
};

// Every kind of field that the encoding knows, nested.
struct Everything {
  StepId step;
  RolloutId rollout;
  PolicyVersion version;
  std::string text;
  std::vector<std::pair<uint16_t, std::string>> pairs;
  std::vector<std::vector<uint8_t>> nested;
  std::vector<std::variant<uint32_t, std::string, Leaf>> choices;

  template <class A>
  void Fields(A& a) {
    a(step, rollout, version, text, pairs, nested, choices);
  }
};

template <class T>
void RoundTrip(std::string_view bytes) {
  T value;
  if (Decode(bytes, &value)) {
    FOREBAY_CHECK(Encode(value) == bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  RoundTrip<Everything>(bytes);
  RoundTrip<SourceSettings>(bytes);
  return 0;
}
