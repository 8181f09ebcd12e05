// Remembers who waits for the answer of which call; the tag goes with the request and comes back
// with the reply.
//
// Not thread-safe: belongs to one loop.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace forebay::node {

template <class Reply>
class Calls {
 public:
  using Done = absl::AnyInvocable<void(Reply&&)>;

  // A tag, never 0.
  uint64_t Add(Done done) {
    uint32_t slot;
    if (free_.empty()) {
      slot = static_cast<uint32_t>(calls_.size());
      calls_.push_back({0, std::move(done)});
    } else {
      slot = free_.back();
      free_.pop_back();
      calls_[slot].done = std::move(done);
    }
    return (uint64_t{++calls_[slot].generation} << 32) | slot;
  }

  // Answers the call; nothing happens for tag 0 or a tag that was answered before.
  void Answer(uint64_t tag, Reply&& reply) {
    const auto slot = static_cast<uint32_t>(tag);
    if (tag == 0 || slot >= calls_.size() || calls_[slot].generation != tag >> 32) return;
    Done done = std::move(calls_[slot].done);
    ++calls_[slot].generation;
    free_.push_back(slot);
    done(std::move(reply));
  }

  size_t waiting() const { return calls_.size() - free_.size(); }

 private:
  struct Call {
    uint32_t generation;
    Done done;
  };
  std::vector<Call> calls_;
  std::vector<uint32_t> free_;
};

}  // namespace forebay::node
