// Strong types for ids, and how the ids that clients see are packed.
//
// Pure values; safe from any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace forebay {

// A number that cannot be mixed up with another kind of number. `Tag` only names the kind.
template <class Tag, class Rep = uint64_t>
struct StrongId {
  Rep value = 0;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  constexpr auto operator<=>(const StrongId&) const = default;
  template <class H>
  friend H AbslHashValue(H h, const StrongId& id) {
    return H::combine(std::move(h), id.value);
  }
};

using SourceId = StrongId<struct SourceTag, uint16_t>;        // dense, assigned by the ledger
using ShardId = StrongId<struct ShardTag, uint8_t>;           // 0 .. shards-1
using StepId = StrongId<struct StepTag, uint64_t>;            // the trainer's step number
using Revision = StrongId<struct RevisionTag, uint32_t>;      // of a step's plan, from 1
using Generation = StrongId<struct GenerationTag, uint64_t>;  // of an attached trainer, from 1
using SessionId = StrongId<struct SessionTag, uint64_t>;      // of an actor process
using LogPosition = StrongId<struct LogPositionTag, uint64_t>;
using PayloadId = StrongId<struct PayloadTag, uint64_t>;  // 0 means none
using EvalRunId = StrongId<struct EvalRunTag, uint64_t>;

// A slot in a shard's table with the generation of that slot: shard (8 bits) | generation (24) |
// slot (32). A reused slot has a new generation, so a stale id never finds another object.
template <class Tag>
struct SlotId : StrongId<Tag, uint64_t> {
  using StrongId<Tag, uint64_t>::StrongId;
  static constexpr uint32_t kGenerationMask = 0xffffff;
  static constexpr SlotId Make(ShardId shard, uint32_t generation, uint32_t slot) {
    return SlotId((uint64_t{shard.value} << 56) | (uint64_t{generation & kGenerationMask} << 32) |
                  slot);
  }
  constexpr ShardId shard() const { return ShardId(static_cast<uint8_t>(this->value >> 56)); }
  constexpr uint32_t generation() const {
    return static_cast<uint32_t>(this->value >> 32) & kGenerationMask;
  }
  constexpr uint32_t slot() const { return static_cast<uint32_t>(this->value); }
};

using GroupId = SlotId<struct GroupTag>;
using AttemptId = SlotId<struct AttemptTag>;
using RolloutId = SlotId<struct RolloutTag>;

// A task of one shard: source (16 bits) | index within the source (32 bits).
struct TaskId : StrongId<struct TaskTag, uint64_t> {
  using StrongId::StrongId;
  static constexpr TaskId Make(SourceId source, uint32_t index) {
    return TaskId((uint64_t{source.value} << 32) | index);
  }
  constexpr SourceId source() const { return SourceId(static_cast<uint16_t>(value >> 32)); }
  constexpr uint32_t index() const { return static_cast<uint32_t>(value); }
};

// Which weights: the branch (a rewind opens a new one) and the count of optimizer steps on it.
// The policy's name is kept beside it, once per run.
struct PolicyVersion {
  uint32_t branch = 0;
  uint32_t number = 0;
  constexpr auto operator<=>(const PolicyVersion&) const = default;
};

}  // namespace forebay
