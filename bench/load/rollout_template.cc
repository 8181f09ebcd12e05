#include "bench/load/rollout_template.h"

#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"
#include "codec/wire.h"
#include "forebay/v1/actor.pb.h"

namespace forebay::bench {
namespace {

// attempt_id and token are the header's first fields, of fixed size, so they can be set in place.
constexpr size_t kAttemptAt = 1;
constexpr size_t kTokenAt = kAttemptAt + sizeof(uint64_t) + 1;
static_assert(v1::RolloutHeader::kAttemptIdFieldNumber == 1);
static_assert(v1::RolloutHeader::kTokenFieldNumber == 2);

}  // namespace

std::vector<ColumnShape> PlainColumns() {
  return {
      {"tokens", v1::DTYPE_U32, 4}, {"loss_mask", v1::DTYPE_U8, 1}, {"logprobs", v1::DTYPE_F32, 4}};
}

std::vector<ColumnShape> FiveColumns() {
  std::vector<ColumnShape> columns = PlainColumns();
  columns.push_back({"teacher_logprobs", v1::DTYPE_F32, 4});
  columns.push_back({"values", v1::DTYPE_F32, 4});
  return columns;
}

std::vector<ColumnShape> RoutedColumns() {
  constexpr uint32_t kLayers = 60, kExperts = 10;
  std::vector<ColumnShape> columns = PlainColumns();
  columns.push_back({"routed_experts", v1::DTYPE_I16, kLayers * kExperts * 2, {kLayers, kExperts}});
  return columns;
}

uint32_t BytesPerToken(const std::vector<ColumnShape>& columns) {
  uint32_t bytes = 0;
  for (const ColumnShape& column : columns) bytes += column.item_bytes;
  return bytes;
}

RolloutTemplate::RolloutTemplate(uint32_t tokens, const std::vector<ColumnShape>& columns,
                                 const char* payload, double reward)
    : payload_(payload, size_t{tokens} * BytesPerToken(columns)) {
  v1::RolloutHeader header;
  header.set_attempt_id(1);
  header.set_token(1);
  header.set_status(v1::ROLLOUT_STATUS_FINISHED);
  v1::Sequence* sequence = header.add_sequences();
  sequence->set_tokens(tokens);
  sequence->set_prompt_tokens(tokens / 4);
  sequence->set_loss_tokens(tokens - tokens / 4);
  size_t at = 0;
  for (const ColumnShape& shape : columns) {
    v1::Column* column = header.add_columns();
    const size_t bytes = size_t{tokens} * shape.item_bytes;
    column->set_name(shape.name);
    column->set_dtype(shape.dtype);
    column->set_domain(v1::DOMAIN_TOKEN);
    column->mutable_inner()->Add(shape.inner.begin(), shape.inner.end());
    column->set_bytes(bytes);
    column->set_crc32c(Crc32c({payload + at, bytes}));
    at += bytes;
  }
  (*header.mutable_rewards())["reward"] = reward;
  header.set_duration_ms(1000);
  const std::string encoded = header.SerializeAsString();
  FOREBAY_CHECK(encoded[0] == static_cast<char>(codec::Fixed64Tag(1)));
  FOREBAY_CHECK(encoded[kTokenAt - 1] == static_cast<char>(codec::Fixed32Tag(2)));
  codec::WireWriter(&entry_).Message(v1::PushFrame::kRolloutsFieldNumber, encoded);
  header_at_ = entry_.size() - encoded.size();
}

void RolloutTemplate::AppendHeader(const Lease& lease, std::string* frame) const {
  const size_t at = frame->size();
  frame->append(entry_);
  char* const header = frame->data() + at + header_at_;
  std::memcpy(header + kAttemptAt, &lease.attempt_id, sizeof(lease.attempt_id));
  std::memcpy(header + kTokenAt, &lease.token, sizeof(lease.token));
}

bool ReadLeases(std::string_view acquire_response, std::vector<Lease>* leases) {
  codec::WireReader response(acquire_response);
  while (response.Next()) {
    if (response.tag() != codec::BytesTag(v1::AcquireResponse::kAssignmentsFieldNumber)) {
      response.Skip();
      continue;
    }
    codec::WireReader assignment = response.Message();
    Lease lease;
    // They come first; the rest of an assignment is of no use to a load.
    while ((lease.attempt_id == 0 || lease.token == 0) && assignment.Next()) {
      if (assignment.tag() == codec::Fixed64Tag(v1::Assignment::kAttemptIdFieldNumber)) {
        lease.attempt_id = assignment.Fixed<uint64_t>();
      } else if (assignment.tag() == codec::Fixed32Tag(v1::Assignment::kTokenFieldNumber)) {
        lease.token = assignment.Fixed<uint32_t>();
      } else {
        assignment.Skip();
      }
    }
    if (!assignment.ok()) return false;
    leases->push_back(lease);
  }
  return response.ok();
}

}  // namespace forebay::bench
