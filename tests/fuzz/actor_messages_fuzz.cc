// The decoders of the actor's small messages against protobuf's.
#include <cstdio>
#include <cstdlib>

#include "tests/unit/codec/header_agreement.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace forebay::codec;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string acquire = AcquireDisagreement(bytes);
  const std::string renew = RenewDisagreement(bytes);
  if (!acquire.empty() || !renew.empty()) {
    std::fprintf(stderr, "acquire: %s, renew: %s\n", acquire.c_str(), renew.c_str());
    std::abort();
  }
  TaskContent content;
  DecodeTaskContent(bytes, &content);
  GroupHeader group;
  DecodeGroupHeader(bytes, &group);
  return 0;
}
