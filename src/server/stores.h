// What the engine needs of the stores: where dead bytes go, and how much room is left.
//
// Thread-safe. The stores outlive it.
#pragma once

#include <string_view>
#include <vector>

#include "base/hash.h"
#include "node/engine.h"
#include "storage/content_store.h"
#include "storage/payload_store.h"

namespace forebay::server {

// What makes two tasks of one id the same task.
inline uint64_t TaskContentHash(std::string_view payload, std::string_view attributes) {
  return HashCombine(Hash64(payload), Hash64(attributes, 1));
}

class Stores final : public node::DeadBytes {
 public:
  Stores(storage::PayloadStore* payloads, storage::ContentStore* contents)
      : payloads_(payloads), contents_(contents) {}

  void FreePayloads(const std::vector<PayloadId>& ids) override { payloads_->Free(ids); }
  void FreeContents(const std::vector<PayloadId>& ids) override { contents_->Kill(ids); }
  absl::Status Recovered(const Named& /*named*/) override { return absl::OkStatus(); }
  uint64_t FreePayloadBytes() const override {
    const auto use = payloads_->budget().use();
    const uint64_t taken = use.used_bytes + use.waiting_bytes + use.completion_reserve_bytes;
    return taken < use.bytes_max ? use.bytes_max - taken : 0;
  }
  uint64_t PayloadBytesMax() const override { return payloads_->budget().use().bytes_max; }

 private:
  storage::PayloadStore* const payloads_;
  storage::ContentStore* const contents_;
};

}  // namespace forebay::server
