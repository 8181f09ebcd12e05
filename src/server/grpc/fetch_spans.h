// Which version of which engine sampled which tokens, in the layout of a micro-batch.
//
// Not thread-safe; the headers outlive the writer.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codec/rollout_header.h"
#include "forebay/v1/trainer.pb.h"

namespace forebay::server {

class SpanWriter {
 public:
  explicit SpanWriter(v1::MicroBatchLayout* layout) : layout_(*layout) {}
  // The spans of the next sequence of the micro-batch; `version` is that of one without runs.
  void Add(const codec::RolloutHeader& header, uint32_t sequence, uint32_t version);

 private:
  uint32_t EngineIndex(std::string_view name);

  v1::MicroBatchLayout& layout_;
  absl::flat_hash_map<std::string_view, uint32_t> engines_;
  std::vector<codec::HeaderTurn> turns_;  // that name another engine than the rollout
  std::vector<uint32_t> bounds_;
};

}  // namespace forebay::server
