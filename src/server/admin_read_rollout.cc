// AdminService: one rollout with its bytes, which are neither copied nor parsed on their way out.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codec/wire.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/rollout_messages.h"

namespace forebay::server {
namespace {

// Of a rollout, in one answer.
constexpr uint32_t kBytesMax = uint32_t{4} << 20;

// A call that is being answered.
struct Reading {
  RolloutId id;
  uint64_t offset = 0;
  uint32_t bytes_max = 0;
  Responder responder;
  std::string rollout;  // an encoded RolloutState
};
using ReadingRef = std::shared_ptr<Reading>;

std::string Text(RolloutId id) { return absl::StrCat(absl::Hex(id.value, absl::kZeroPad16)); }

absl::Status NoRollout(RolloutId id) {
  return absl::NotFoundError(
      absl::StrCat("rollout_id: ", Text(id),
                   " is no rollout that the buffer holds: it may be trained or dropped"));
}

grpc::Slice ToSlice(storage::BlockSlice slice) {
  return grpc::Slice(
      const_cast<char*>(slice.data), slice.size,
      [](void* held) { static_cast<storage::Block*>(held)->Unref(); }, slice.block.Release());
}

// An encoded ReadRolloutResponse.
absl::StatusOr<grpc::ByteBuffer> Encode(const Reading& reading,
                                        const storage::PayloadView& payload) {
  const uint64_t bytes = payload.bytes() - payload.header_bytes();
  if (reading.offset > bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "offset: is ", reading.offset, "; the columns have ", bytes, " bytes together"));
  }
  const uint64_t wanted = std::min<uint64_t>(reading.bytes_max, bytes - reading.offset);
  std::vector<storage::BlockSlice> pieces;
  FOREBAY_RETURN_IF_ERROR(payload.Slices(payload.header_bytes() + reading.offset, wanted, &pieces));
  std::string head;
  codec::WireWriter writer(&head);
  writer.Message(1, reading.rollout);
  writer.Message(2, payload.header());
  if (wanted > 0) writer.MessageHead(3, wanted);
  std::vector<grpc::Slice> slices;
  slices.emplace_back(head);
  for (auto& piece : pieces) slices.push_back(ToSlice(std::move(piece)));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

// The store does not have the bytes: the rollout has gone since, or they are lost.
void TellWhyMissing(ServiceContext* context, const ReadingRef& reading,
                    const absl::Status& missing) {
  context->engine->OnShard(
      reading->id.shard(), [reading, missing](node::ShardLoop& loop, uint64_t) {
        if (!FindRollout(loop.state(), reading->id).has_value()) {
          return reading->responder.Fail(NoRollout(reading->id));
        }
        reading->responder.Fail(absl::DataLossError(
            absl::StrCat("rollout ", Text(reading->id), ": ", missing.message(),
                         ": its bytes are lost, as the daemon's log said at its start")));
      });
}

bool LacksCold(const Reading& reading, const storage::PayloadView& payload) {
  const uint64_t hot = payload.bytes(storage::Part::kHot) - payload.header_bytes();
  const bool wanted = reading.bytes_max > 0 && reading.offset + reading.bytes_max > hot;
  return wanted && payload.bytes(storage::Part::kCold) > 0 && !payload.holds(storage::Part::kCold);
}

void Load(ServiceContext* context, PayloadId payload, storage::Parts parts,
          const ReadingRef& reading) {
  context->payloads->Load(
      {payload}, parts,
      [context, payload, reading](absl::StatusOr<std::vector<storage::PayloadView>> views) {
        if (absl::IsNotFound(views.status())) {
          return TellWhyMissing(context, reading, views.status());
        }
        if (!views.ok()) return reading->responder.Fail(views.status());
        if (LacksCold(*reading, views->front())) {
          views->clear();
          return Load(context, payload, storage::Parts::kAll, reading);
        }
        auto body = Encode(*reading, views->front());
        body.ok() ? reading->responder.Reply(*std::move(body))
                  : reading->responder.Fail(body.status());
      });
}

void ReadRollout(ServiceContext* context, const v1::ReadRolloutRequest& request,
                 Responder responder) {
  if (request.bytes_max() > kBytesMax) {
    return responder.Fail(absl::InvalidArgumentError(
        absl::StrCat("bytes_max: is ", request.bytes_max(), "; the limit is ", kBytesMax)));
  }
  const RolloutId id(request.rollout_id());
  if (id.shard().value >= context->engine->shards()) return responder.Fail(NoRollout(id));
  if (auto presence = context->engine->Presence(id.shard()); !presence.ok())
    return responder.Fail(presence);
  auto reading = std::make_shared<Reading>(
      Reading{id, request.offset(), request.bytes_max(), std::move(responder), {}});
  context->engine->OnShard(id.shard(), [context, reading](node::ShardLoop& loop, uint64_t) {
    const auto view = FindRollout(loop.state(), reading->id);
    if (!view.has_value()) return reading->responder.Fail(NoRollout(reading->id));
    v1::RolloutState state;
    ToWire(*context, *context->catalog->Get(), loop.state(), *view, &state);
    reading->rollout = state.SerializeAsString();
    Load(context, view->payload, storage::Parts::kHot, reading);
  });
}

}  // namespace

void AddReadRollout(ServiceContext* context, MethodTable* methods) {
  methods->AddUnary("/forebay.v1.AdminService/ReadRollout",
                    [context](const CallContext&, grpc::ByteBuffer body, Responder responder) {
                      v1::ReadRolloutRequest request;
                      if (!ParseBody(&body, &request)) {
                        return responder.Fail(absl::InvalidArgumentError(
                            "the request is no forebay.v1.ReadRolloutRequest"));
                      }
                      ReadRollout(context, request, std::move(responder));
                    });
}

}  // namespace forebay::server
