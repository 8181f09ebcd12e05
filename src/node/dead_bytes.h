// What the engine tells the stores of payloads and task contents.
//
// Thread-safe, by whoever implements it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "codec/keep_rule.h"

namespace forebay::node {

// Where freed payloads and task contents go.
class DeadBytes {
 public:
  virtual ~DeadBytes() = default;
  virtual void FreePayloads(const std::vector<PayloadId>& payloads) = 0;
  virtual void FreeContents(const std::vector<PayloadId>& contents) = 0;
  virtual uint64_t PayloadBytesMax() const { return 0; }  // 0: no limit
  // Bytes that new groups may still count on.
  virtual uint64_t FreePayloadBytes() const = 0;
  // What the recovered machines name, before anything else happens; all other bytes are garbage.
  // `wanted`: by steps that are not committed.
  struct Named {
    std::vector<PayloadId> payloads;
    std::vector<PayloadId> contents;
    std::vector<std::pair<StepId, std::vector<PayloadId>>> wanted;
    // False: a shard is absent, and what it names is not known. Then nothing is garbage.
    bool all = true;
  };
  // The payloads of them that are lost.
  virtual absl::StatusOr<std::vector<PayloadId>> Recovered(const Named& named) = 0;
  // A step will fetch these, in this order, and no others; none any more if it is empty.
  virtual void Want(StepId step, std::vector<PayloadId> payloads) = 0;
  // Nobody reads these for long, if ever.
  virtual void Cool(const std::vector<PayloadId>& payloads) = 0;
  // Bytes of committed steps that may stay for a rewind.
  virtual uint64_t RetentionBytesMax() const { return 0; }
  // Whether there is no room for more payloads on the disk.
  virtual bool StoreFull() const { return false; }
  // ... and which of their rollouts stay for people, of whom there are so many bytes now.
  virtual codec::KeepRule Keep(uint64_t) { return {}; }
};

}  // namespace forebay::node
