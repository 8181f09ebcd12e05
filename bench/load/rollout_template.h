// Rollouts that are pushed again and again: header and payload are made once, only the lease
// changes.
//
// A real actor encodes its header too, but for a load on two cores the client has to cost as little
// as it can. Immutable after construction; safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "forebay/v1/types.pb.h"

namespace forebay::bench {

struct Lease {
  uint64_t attempt_id = 0;
  uint32_t token = 0;
};

// A column of tokens.
struct ColumnShape {
  std::string name;
  v1::DType dtype;
  uint32_t item_bytes;  // of a row
  std::vector<uint32_t> inner = {};
};

// tokens, loss_mask and logprobs: 9 bytes a token.
std::vector<ColumnShape> PlainColumns();
// Five of them: 17 bytes a token.
std::vector<ColumnShape> FiveColumns();
// The plain ones and the recorded routes of a mixture of experts of 60 layers, 10 experts a token:
// 1,209 bytes a token.
std::vector<ColumnShape> RoutedColumns();
uint32_t BytesPerToken(const std::vector<ColumnShape>& columns);

class RolloutTemplate {
 public:
  // `payload` holds BytesPerToken(columns) x tokens bytes and outlives this. Each column's crc32c
  // is stated.
  RolloutTemplate(uint32_t tokens, const std::vector<ColumnShape>& columns, const char* payload,
                  double reward);

  std::string_view payload() const { return payload_; }
  size_t entry_bytes() const { return entry_.size(); }
  // Appends the header for a lease, as an entry of PushFrame.rollouts.
  void AppendHeader(const Lease& lease, std::string* frame) const;

 private:
  std::string entry_;     // of a frame: tag, length, header
  size_t header_at_ = 0;  // in entry_
  std::string_view payload_;
};

// The leases of an AcquireResponse; false if the bytes are none.
bool ReadLeases(std::string_view acquire_response, std::vector<Lease>* leases);

}  // namespace forebay::bench
