// Ends pushes that stopped half-way, so that the memory reserved for the rest of a rollout is not
// held for nobody.
//
//   no bytes for limits.push_stall_ms  AND  others wait for payload memory, or the lease is over
//     -> the stream ends RESOURCE_EXHAUSTED, its memory goes back; who is still there pushes again
//
// Tick on the ticker's thread. Everything in the context outlives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "server/grpc/push_watch.h"
#include "server/services.h"

namespace forebay::server {

class PushStalls {
 public:
  PushStalls(ServiceContext* context, PushWatch* watch) : context_(context), watch_(watch) {}
  void Tick(uint64_t now_ms);

 private:
  void End(const PushWatch::Stalled& push, const char* why, bool for_memory);

  ServiceContext* const context_;
  PushWatch* const watch_;
  std::atomic<bool> busy_{false};  // the shards are being asked
};

}  // namespace forebay::server
