// Whether the hand decoders and the generated code understand the same of some bytes; for tests and
// fuzzers.
//
// Pure functions; safe from any thread. They return "" or what differs.
#pragma once

#include <google/protobuf/stubs/logging.h>

#include <cstring>
#include <string>
#include <string_view>

#include "codec/actor_messages.h"
#include "codec/push_frame.h"
#include "codec/rollout_header.h"
#include "forebay/v1/actor.pb.h"
#include "forebay/v1/types.pb.h"

namespace forebay::codec {

// Protobuf reports each string that is no UTF-8; here that is what we feed it.
inline const bool kQuiet = (google::protobuf::SetLogHandler(nullptr), true);

template <class A, class B>
bool SameBits(A a, B b) {
  static_assert(sizeof(A) == sizeof(B));
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

inline std::string CompareColumn(const RolloutHeader& header, const HeaderColumn& ours,
                                 const v1::Column& theirs) {
  if (ours.name != theirs.name()) return "name";
  if (static_cast<int>(ours.dtype) != theirs.dtype()) return "dtype";
  if (static_cast<int>(ours.domain) != theirs.domain()) return "domain";
  if (ours.inner_count != static_cast<uint32_t>(theirs.inner_size())) return "inner_count";
  for (uint32_t i = 0; i < ours.inner_count && i < kInnerDimensionsMax; ++i) {
    if (ours.inner[i] != theirs.inner(static_cast<int>(i))) return "inner";
  }
  if (!SameBits(ours.missing, theirs.missing())) return "missing";
  if (ours.bytes != theirs.bytes()) return "bytes";
  if (ours.crc32c.has_value() != theirs.has_crc32c()) return "has_crc32c";
  if (ours.crc32c.value_or(0) != theirs.crc32c()) return "crc32c";
  const auto parts = header.parts(ours);
  if (parts.size() != static_cast<size_t>(theirs.sequence_bytes_size())) return "parts";
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] != theirs.sequence_bytes(static_cast<int>(i))) return "sequence_bytes";
  }
  return "";
}

inline std::string CompareSequence(const RolloutHeader& header, const HeaderSequence& ours,
                                   const v1::Sequence& theirs) {
  if (ours.tokens != theirs.tokens()) return "tokens";
  if (ours.prompt_tokens != theirs.prompt_tokens()) return "prompt_tokens";
  if (ours.loss_tokens != theirs.loss_tokens()) return "loss_tokens";
  if (ours.advantage.has_value() != theirs.has_advantage()) return "has_advantage";
  if (!SameBits(ours.advantage.value_or(0), theirs.advantage())) return "advantage";
  const auto runs = header.versions(ours);
  if (runs.size() != static_cast<size_t>(theirs.versions_size())) return "versions";
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& run = theirs.versions(static_cast<int>(i));
    if (runs[i].offset != run.offset() || runs[i].branch != run.branch() ||
        runs[i].number != run.number() || runs[i].loss_tokens != run.loss_tokens()) {
      return "version run";
    }
  }
  if (ours.turns.count != static_cast<uint32_t>(theirs.turns_size())) return "turns";
  for (uint32_t i = 0; i < ours.turns.count; ++i) {
    const auto& turn = theirs.turns(static_cast<int>(i));
    const HeaderTurn& mine = header.turns[ours.turns.begin + i];
    if (mine.offset != turn.offset() || mine.tokens != turn.tokens()) return "turn";
  }
  return "";
}

inline std::string CompareHeader(const RolloutHeader& ours, const v1::RolloutHeader& theirs) {
  if (ours.attempt_id != theirs.attempt_id()) return "attempt_id";
  if (ours.token != theirs.token()) return "token";
  if (static_cast<int>(ours.status) != theirs.status()) return "status";
  if (ours.duration_ms != theirs.duration_ms()) return "duration_ms";
  if (ours.extra_json != theirs.extra_json()) return "extra_json";
  if (ours.partial != theirs.partial()) return "partial";
  if (ours.source != theirs.source()) return "source";
  if (ours.site != theirs.site()) return "site";
  if (ours.sequences.size() != static_cast<size_t>(theirs.sequences_size())) return "sequences";
  for (size_t i = 0; i < ours.sequences.size(); ++i) {
    const auto difference =
        CompareSequence(ours, ours.sequences[i], theirs.sequences(static_cast<int>(i)));
    if (!difference.empty()) return "sequences: " + difference;
  }
  if (ours.columns.size() != static_cast<size_t>(theirs.columns_size())) return "columns";
  for (size_t i = 0; i < ours.columns.size(); ++i) {
    const auto difference =
        CompareColumn(ours, ours.columns[i], theirs.columns(static_cast<int>(i)));
    if (!difference.empty()) return "columns: " + difference;
  }
  if (ours.rewards.size() != theirs.rewards().size()) return "rewards";
  for (const HeaderReward& reward : ours.rewards) {
    const auto at = theirs.rewards().find(std::string(reward.name));
    if (at == theirs.rewards().end()) return "reward name";
    if (!SameBits(reward.value, at->second)) return "reward value";
  }
  return "";
}

// Any bytes: both refuse them, or both understand the same. Headers over the limits are refused by
// us alone.
inline std::string HeaderDisagreement(std::string_view bytes, RolloutHeader* reused) {
  FieldError error;
  const bool ours = DecodeRolloutHeader(bytes, reused, &error);
  v1::RolloutHeader message;
  const bool theirs = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (!ours && error.message != "is no RolloutHeader") return "";
  if (ours != theirs) return ours ? "only we accept" : "only protobuf accepts";
  return ours ? CompareHeader(*reused, message) : "";
}

// A frame's headers and group are decoded later, so only what the splitter reads is compared; it
// refuses groups of the wire format, which proto3 cannot express.
inline std::string FrameDisagreement(const PushFrameView& ours, const v1::PushFrame& theirs) {
  if (ours.session() != theirs.session()) return "session";
  if (ours.frame() != theirs.frame()) return "frame";
  std::string payload;
  for (std::string_view piece : ours.payload()) payload.append(piece);
  if (payload.size() != ours.payload_bytes()) return "payload_bytes";
  if (payload != theirs.payload()) return "payload";
  if (ours.rollouts().size() != static_cast<size_t>(theirs.rollouts_size())) return "rollouts";
  for (size_t i = 0; i < ours.rollouts().size(); ++i) {
    RolloutHeader header;
    FieldError error;
    if (!DecodeRolloutHeader(ours.rollouts()[i], &header, &error)) {
      if (error.message != "is no RolloutHeader") continue;
      return "a rollout is refused";
    }
    const auto difference = CompareHeader(header, theirs.rollouts(static_cast<int>(i)));
    if (!difference.empty()) return difference;
  }
  if (ours.has_group() != theirs.has_group()) return "has_group";
  GroupHeader group;
  if (!DecodeGroupHeader(ours.group(), &group)) return "group is refused";
  if (group.source != theirs.group().source() || group.payload != theirs.group().payload() ||
      group.external_id != theirs.group().external_id() ||
      group.request_id != theirs.group().request_id()) {
    return "group";
  }
  return "";
}

inline std::string AcquireDisagreement(std::string_view bytes) {
  AcquireRequest ours;
  v1::AcquireRequest theirs;
  const bool mine = DecodeAcquireRequest(bytes, &ours);
  if (mine != theirs.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return "accepted";
  if (!mine) return "";
  if (ours.session != theirs.session() || ours.request_id != theirs.request_id() ||
      ours.max != theirs.max() || ours.loads_any_version != theirs.loads_any_version() ||
      ours.wait_ms != theirs.wait_ms()) {
    return "scalar";
  }
  if (ours.policy != theirs.version().policy() ||
      ours.version.branch != theirs.version().branch() ||
      ours.version.number != theirs.version().number()) {
    return "version";
  }
  if (ours.sources.size() != static_cast<size_t>(theirs.sources_size())) return "sources";
  for (size_t i = 0; i < ours.sources.size(); ++i) {
    if (ours.sources[i] != theirs.sources(static_cast<int>(i))) return "source";
  }
  return "";
}

// What `usage` holds is decoded by others.
inline std::string RenewDisagreement(std::string_view bytes) {
  RenewRequest ours;
  v1::RenewRequest theirs;
  const bool mine = DecodeRenewRequest(bytes, &ours);
  const bool parsed = theirs.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (mine != parsed) return "accepted";
  if (!mine) return "";
  const auto same = [](const auto& a, const auto& b) {
    return std::vector<std::decay_t<decltype(a[0])>>(b.begin(), b.end()) == a;
  };
  if (ours.session != theirs.session()) return "session";
  if (!same(ours.attempt_ids, theirs.attempt_ids())) return "attempt_ids";
  if (!same(ours.tokens, theirs.tokens())) return "tokens";
  if (!same(ours.generated_tokens, theirs.generated_tokens())) return "generated_tokens";
  return "";
}

}  // namespace forebay::codec
