// What the log and the peers carry: no bytes make decoding crash or over-allocate, and what decodes
// encodes to the same bytes again.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "codec/archive.h"
#include "codec/peer_channel.h"
#include "codec/peer_messages.h"
#include "ledger/commands.h"
#include "shard/messages.h"

namespace {

template <class T>
void RoundTrip(std::string_view bytes) {
  T value;
  if (forebay::codec::Decode(bytes, &value)) {
    FOREBAY_CHECK(forebay::codec::Encode(value) == bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  RoundTrip<forebay::shard::Command>(bytes);
  RoundTrip<forebay::ledger::Command>(bytes);
  RoundTrip<forebay::codec::ToShard>(bytes);
  RoundTrip<forebay::codec::ToLedger>(bytes);
  RoundTrip<forebay::codec::NumberedMessage>(bytes);
  RoundTrip<forebay::codec::PeerOutbox>(bytes);
  return 0;
}
