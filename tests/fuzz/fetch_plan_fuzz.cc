// Any fetch of columns, of rollouts with any header that a push would take: the answer's pieces are
// as long as its layout says, or the request is refused. The input is two messages, each after its
// length in two bytes: a rollout's header, a FetchRequest.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "codec/rollout_header.h"
#include "server/grpc/fetch_plan.h"
#include "storage/ram_payload_store.h"

namespace {

using namespace forebay;

const bool kQuiet = (google::protobuf::SetLogHandler(nullptr), true);
constexpr uint64_t kPayloadMax = 1 << 20;
constexpr uint64_t kTokensMax = 1 << 20;

std::string_view TakePart(std::string_view* rest) {
  if (rest->size() < 2) return {};
  const size_t length = static_cast<uint8_t>((*rest)[0]) | static_cast<uint8_t>((*rest)[1]) << 8;
  const std::string_view part = rest->substr(2, length);
  rest->remove_prefix(2 + part.size());
  return part;
}

// The last column is cold.
PayloadId Store(std::string_view header, const codec::RolloutHeader& decoded,
                storage::PayloadStore* store) {
  const uint64_t payload_bytes = decoded.payload_bytes();
  const uint64_t cold_bytes = decoded.columns.empty() ? 0 : decoded.columns.back().bytes;
  const uint64_t bytes = header.size() + payload_bytes - cold_bytes;
  FOREBAY_CHECK(store->budget().TryReserve(storage::PayloadBuilder::Footprint(bytes, cold_bytes)));
  storage::PayloadBuilder builder(&store->budget(), bytes, cold_bytes);
  builder.AppendHeader(header);
  builder.Append(std::string(payload_bytes, '\1'), 0);
  PayloadId id;
  store->Finish({&builder, 1}, {&id, 1}, nullptr);
  return id;
}

// The slots of a plan that took the rollout whole; none if it is too large to be worth it here.
std::vector<ledger::Slot> Slots(const codec::RolloutHeader& header, PayloadId payload) {
  std::vector<ledger::Slot> slots;
  uint64_t tokens = 0;
  for (uint32_t i = 0; i < header.sequences.size(); ++i) {
    const auto& sequence = header.sequences[i];
    tokens += sequence.tokens;
    slots.push_back({.payload = payload,
                     .rollout = RolloutId(1),
                     .sequence = i,
                     .sequence_count = static_cast<uint32_t>(header.sequences.size()),
                     .tokens = sequence.tokens,
                     .prompt_tokens = sequence.prompt_tokens,
                     .loss_tokens = sequence.loss_tokens,
                     .version = 3,
                     .mask_below = i % 2 == 0 ? 0 : 4u});
  }
  if (tokens > kTokensMax) slots.clear();
  return slots;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view encoded = TakePart(&rest);
  const std::string_view asked = TakePart(&rest);
  codec::RolloutHeader header;
  codec::FieldError error;
  v1::FetchRequest request;
  if (!codec::DecodeRolloutHeader(encoded, &header, &error) || encoded.empty() ||
      !codec::CheckRolloutHeader(header, encoded.size()).ok() ||
      header.payload_bytes() > kPayloadMax ||
      !request.ParseFromArray(asked.data(), static_cast<int>(asked.size()))) {
    return 0;
  }
  storage::RamPayloadStore store({.bytes_max = 8 << 20, .completion_reserve_bytes = 0});
  server::FetchView view;
  view.slots = Slots(header, Store(encoded, header, &store));
  for (const auto& slot : view.slots) view.padded_tokens += slot.tokens;
  view.padded_tokens = (view.padded_tokens + 7) / 8 * 8;
  std::vector<storage::PayloadView> held;
  const auto ids = server::PayloadsOf(request, view);
  FOREBAY_CHECK(store.Open(ids, storage::Parts::kHot, &held).ok());
  const auto wanted = server::PartsOf(request, view, held);
  if (!wanted.empty()) held.clear();
  for (const auto& [id, parts] : wanted) FOREBAY_CHECK(store.Open({id}, parts, &held).ok());
  const auto plan = server::FetchPlanner().Plan(request, view, held);
  if (!plan.ok()) return 0;
  uint64_t pieces = 0;
  for (const server::FetchPiece& piece : plan->pieces) pieces += piece.size;
  v1::MicroBatchLayout layout;
  FOREBAY_CHECK(layout.ParseFromString(plan->layout));
  uint64_t columns = 0;
  for (const auto& column : layout.columns()) columns += column.bytes();
  FOREBAY_CHECK(pieces == plan->bytes && pieces == columns);
  FOREBAY_CHECK(layout.columns_size() == request.columns_size() + request.reward_keys_size());
  return 0;
}
