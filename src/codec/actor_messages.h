// The actor's small messages, encoded and decoded by hand: what Acquire, Push and Renew exchange
// most.
//
// Pure functions over values; one value belongs to one thread. Decoded views point into the input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "codec/limits.h"
#include "codec/rollout_header.h"

namespace forebay::codec {

// The fields external_id, payload and attributes of an Assignment, encoded: what the content store
// keeps of a task.
void AppendTaskContent(std::string_view external_id, std::string_view payload,
                       std::string_view attributes, std::string* out);

struct TaskContent {
  std::string_view external_id, payload, attributes;
};
bool DecodeTaskContent(std::string_view bytes, TaskContent* content);

// forebay.v1.Assignment without the fields of the task's content.
struct AssignmentFields {
  uint64_t attempt_id = 0;
  uint32_t token = 0;
  uint64_t seed = 0;
  uint64_t group_id = 0;
  uint32_t attempt = 0;
  uint32_t source = 0;
  PolicyVersion version;
  uint32_t lease_ms = 0;
  uint64_t eval_run = 0;
  uint64_t task_id = 0;
};

// Appends `assignments` entry of an AcquireResponse. `content`: as AppendTaskContent made it.
// `partial`: an encoded Partial, or empty. Entries may come in any order with other fields.
void AppendAssignment(const AssignmentFields& fields, std::string_view content,
                      std::string_view partial, std::string* out);
// The other fields of AcquireResponse; `source_infos` are encoded SourceInfo messages.
void AppendAcquireTail(absl::Span<const std::string> source_infos, std::string_view reason,
                       uint32_t retry_after_ms, std::string* out);

struct AcquireRequest {
  uint64_t session = 0;
  uint64_t request_id = 0;
  uint32_t max = 0;
  std::vector<std::string_view> sources;
  std::string_view policy;
  PolicyVersion version;
  bool loads_any_version = false;
  uint32_t wait_ms = 0;
  void Clear();
};
bool DecodeAcquireRequest(std::string_view bytes, AcquireRequest* request);

struct RenewRequest {
  uint64_t session = 0;
  std::vector<uint64_t> attempt_ids;
  std::vector<uint32_t> tokens;
  std::vector<uint32_t> generated_tokens;
  std::string_view usage;  // an encoded ClientUsage; the last one sent
  void Clear();
};
bool DecodeRenewRequest(std::string_view bytes, RenewRequest* request);

// An entry of PushReply.outcomes. `result`: forebay.v1.PushResult.
struct OutcomeFields {
  uint32_t index = 0;
  uint64_t attempt_id = 0;
  uint32_t result = 0;
  std::string_view field;
  std::string_view message;
};
void AppendPushReply(uint64_t frame, uint32_t accepted, absl::Span<const OutcomeFields> outcomes,
                     std::string* out);

}  // namespace forebay::codec
