// What the log and the peers carry: no bytes make decoding crash or over-allocate, and what decodes
// encodes to the same bytes again; as text for people it is no longer than asked for.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "codec/archive.h"
#include "codec/peer_channel.h"
#include "codec/peer_messages.h"
#include "ledger/commands.h"
#include "node/command_text.h"
#include "shard/messages.h"

namespace {

template <class T>
void RoundTrip(std::string_view bytes) {
  T value;
  if (forebay::codec::Decode(bytes, &value)) {
    FOREBAY_CHECK(forebay::codec::Encode(value) == bytes);
  }
}

void ShowAsText(std::string_view machine, std::string_view bytes) {
  constexpr size_t kMost = 100;
  const auto text = forebay::node::TextOfRecord(machine, bytes, kMost);
  FOREBAY_CHECK(!text.has_value() || text->fields.size() <= kMost + 3);
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
  for (const char* machine : {"shard-0", "ledger", "contents"}) ShowAsText(machine, bytes);
  return 0;
}
