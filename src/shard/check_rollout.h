// What must hold of a pushed rollout's metadata, whatever state its lease is in.
//
// Pure functions. A refusal names the field as a path, the value and the limit.
#pragma once

#include <optional>
#include <string>

#include "codec/peer_messages.h"
#include "codec/source_settings.h"
#include "shard/messages.h"

namespace forebay::shard {

// Nothing: it is accepted. No outcome is made for what is good, as nearly everything is.
using Refusal = std::optional<PushOutcome>;

// Lengths, counts, rewards and versions. A version that was never announced is kInvalid, one of an
// abandoned branch kStale. `pinned`: the only version that is allowed, of an evaluation.
Refusal CheckRollout(const RolloutMeta& rollout, const codec::SourceSettings& settings,
                     const codec::VersionState& versions, const PolicyVersion* pinned);

// The bits of rewards_present when none lacks.
uint8_t AllRewards(const codec::SourceSettings& settings);

PushOutcome Refuse(PushResult result, const char* field, std::string message);

}  // namespace forebay::shard
