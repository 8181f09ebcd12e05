// Serves ActorService.Push and PushGroup: frames in, payload bytes into the store, metadata to the
// engine, replies in order.
//
//   frame -> split -> decode and check headers -> reserve memory (wait if there is none: the stream
//   is not read on)
//         -> copy with crc into the store -> engine -> reply
//
// A stream's thread runs all of it; the engine answers from any thread. Bytes in flight per stream
// are bounded by PushLimits. A rollout that is refused is answered for, its payload skipped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "codec/name_table.h"
#include "codec/rollout_header.h"
#include "server/grpc/push_watch.h"
#include "server/grpc/rpc.h"
#include "shard/messages.h"
#include "storage/payload_store.h"

namespace forebay::server {

// What a rollout brings that its source's settings decide about.
struct PushedNames {
  uint64_t column_bits = 0;  // NameTable::ColumnBits
  codec::Range rewards;      // in PushBatch::rewards
};

// Rollouts of one frame (or of one large rollout's frames) that are stored and checked.
struct PushBatch {
  SessionId session;
  std::shared_ptr<const codec::NameTable> names;  // what the bits and numbers mean
  // `rewards_present` and `reward` are unset: they follow from the rewards by the settings of the
  // attempt's source.
  std::vector<shard::RolloutMeta> rollouts;
  std::vector<PushedNames> named;  // parallel
  std::vector<codec::NumberedReward> rewards;
};

struct PushGroupRequest {
  uint64_t request_id = 0;
  std::string source, external_id, payload;
};

// One entry a rollout, in the batch's order. The message of an accepted one is empty.
using PushAnswer = std::function<void(std::vector<shard::PushOutcome> outcomes)>;

// What the handler needs of the rest of the daemon. Thread-safe; `answer` is called once, from any
// thread. The engine owns the payloads of a batch from the call on: refused ones it frees.
class PushEngine {
 public:
  virtual ~PushEngine() = default;
  virtual std::shared_ptr<const codec::NameTable> Names() = 0;
  virtual void Push(PushBatch batch, PushAnswer answer) = 0;
  virtual void PushGroup(PushBatch batch, PushGroupRequest group, PushAnswer answer) = 0;
};

struct PushLimits {
  uint64_t rollout_bytes_max = uint64_t{1} << 30;
  // Frames that are read but not answered, and their bytes; beyond, the stream is not read on.
  uint32_t frames_in_flight_max = 64;
  uint64_t bytes_in_flight_max = uint64_t{32} << 20;
};

struct PushOptions {
  PushEngine* engine = nullptr;
  storage::PayloadStore* store = nullptr;
  PushLimits limits;
  // Columns that are cold where no other one follows them in a rollout.
  std::vector<std::string> cold_columns;
  // Knows of the streams that wait for the rest of a rollout; none: nobody looks after them.
  PushWatch* watch = nullptr;
};

// The options are copied; engine, store and watch outlive the server.
StreamFactory MakePushStream(const PushOptions& options);
StreamFactory MakePushGroupStream(const PushOptions& options);

}  // namespace forebay::server
