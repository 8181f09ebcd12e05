// Between the client's values and the messages of the contract.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "forebay/actor.h"
#include "forebay/client.h"
#include "forebay/rollout.h"
#include "forebay/v1/actor.pb.h"
#include "forebay/v1/types.pb.h"

namespace forebay::client {

PolicyVersion FromWire(const v1::PolicyVersion& version);
void ToWire(const PolicyVersion& version, v1::PolicyVersion* out);

Announcement FromWire(const v1::PolicyAnnouncement& announcement);
void ToWire(const Announcement& announcement, v1::PolicyAnnouncement* out);

void ToWire(const Usage& usage, v1::ClientUsage* out);

// A rollout's columns as they are sent: in its own order, but those of more than
// kSmallBytesPerToken bytes a token last, the largest at the end.
inline constexpr uint64_t kSmallBytesPerToken = 8;
std::vector<const Column*> SentColumns(const Rollout& rollout);
// With the columns in that order.
void ToWire(const Rollout& rollout, v1::RolloutHeader* out);
// Columns point into `payload`, which must have the header's bytes.
absl::StatusOr<Rollout> FromWire(const v1::RolloutHeader& header, std::string_view payload);

// The encoded header, checked as the daemon would check it.
absl::StatusOr<std::string> EncodeChecked(const v1::RolloutHeader& header);

// What each rollout of an answered push came to; INVALID_ARGUMENT with the field for one that is
// wrong.
absl::StatusOr<PushReceipt> ReceiptOf(const v1::PushOutcome& outcome);

}  // namespace forebay::client
