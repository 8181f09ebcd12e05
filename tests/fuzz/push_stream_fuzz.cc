// The frames of a push on their way into the store: whatever headers and payload say, memory that
// was taken for them is given back, and what is taken over has all its bytes. Frames follow each
// other in the input, each after its length in two bytes.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "codec/name_table.h"
#include "codec/push_frame.h"
#include "server/grpc/incoming_rollout.h"
#include "storage/ram_payload_store.h"

namespace {

using namespace forebay;

constexpr uint64_t kMemory = 8 << 20;
const std::vector<std::string> kColdColumns = {"routed_experts", "logprobs"};

std::shared_ptr<const codec::NameTable> Names() {
  static const auto names = [] {
    auto table = std::make_shared<codec::NameTable>();
    codec::SourceSettings settings;
    settings.rewards = {{"reward", 1.0}};
    settings.required_columns = {"tokens"};
    table->Add(settings);
    return std::shared_ptr<const codec::NameTable>(std::move(table));
  }();
  return names;
}

// Takes a frame as a stream does; false if it would end the stream.
bool TakeFrame(std::string_view bytes, codec::PushFrameView* frame,
               server::IncomingRollouts* incoming, storage::RamPayloadStore* store) {
  const std::string_view half = bytes.substr(0, bytes.size() / 2);
  const std::vector<std::string_view> slices = {half, bytes.substr(half.size())};
  if (!frame->Split(slices)) return false;
  if (incoming->left() > 0 && !frame->rollouts().empty()) return false;
  if (incoming->left() == 0) {
    incoming->Begin(Names(), frame->rollouts().size());
    const codec::HeaderRules rules{.rollout_bytes_max = kMemory};
    for (const std::string_view header : frame->rollouts()) {
      if (!incoming->Add(header, rules, store->budget()).ok()) return false;
    }
  }
  if (frame->payload_bytes() > incoming->left()) return false;
  const uint64_t memory = incoming->TakeUnreserved();
  if (memory > 0 && !store->budget().TryReserve(memory)) std::abort();  // all else is given back
  const uint32_t begin = incoming->ended();
  incoming->Fill(frame->payload(), &store->budget());
  server::PushBatch batch;
  std::vector<uint32_t> indexes;
  std::vector<server::RefusedRollout> refused;
  const auto payloads = incoming->Take(begin, &batch, &indexes, &refused);
  FOREBAY_CHECK(payloads.size() == batch.rollouts.size() && payloads.size() == indexes.size());
  std::vector<PayloadId> ids(payloads.size());
  for (const storage::PayloadBuilder& payload : payloads) FOREBAY_CHECK(payload.left() == 0);
  store->Finish(payloads, absl::MakeSpan(ids), nullptr);
  std::vector<storage::PayloadView> views;
  FOREBAY_CHECK(store->Open(ids, &views).ok());
  store->Free(ids);
  if (incoming->left() == 0) incoming->Clear();
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  storage::RamPayloadStore store({.bytes_max = kMemory, .completion_reserve_bytes = 0});
  codec::PushFrameView frame;
  {
    server::IncomingRollouts incoming(kColdColumns);
    while (rest.size() >= 2) {
      const size_t length = static_cast<uint8_t>(rest[0]) | static_cast<uint8_t>(rest[1]) << 8;
      rest.remove_prefix(2);
      if (!TakeFrame(rest.substr(0, length), &frame, &incoming, &store)) break;
      rest.remove_prefix(std::min(length, rest.size()));
    }
  }
  FOREBAY_CHECK(store.use().budget.used_bytes == 0);
  return 0;
}
