// Which methods the server has, by full name, and how they fare.
//
// Filled before the server starts, then read by all polling threads; the counters are atomic. Not
// thread-safe while it is filled.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/grpc/rpc.h"

namespace forebay::server {

struct MethodStats {
  static constexpr size_t kCodes = 17;  // of grpc::StatusCode
  static constexpr size_t kLatencyBuckets =
      32;  // bucket i: below 2^i microseconds; the last: all others
  std::array<std::atomic<uint64_t>, kCodes> ended{};
  std::array<std::atomic<uint64_t>, kLatencyBuckets> latency{};  // unary calls
  std::atomic<uint64_t> latency_sum_us{0};
  std::atomic<uint64_t> running{0};
  std::atomic<uint64_t> received_messages{0};
  std::atomic<uint64_t> sent_messages{0};

  void Ended(int code) {
    const size_t at = static_cast<size_t>(code) < kCodes ? static_cast<size_t>(code) : 2;
    ended[at].fetch_add(1, std::memory_order_relaxed);
    running.fetch_sub(1, std::memory_order_relaxed);
  }
  void Took(uint64_t us) {
    size_t bucket = static_cast<size_t>(std::bit_width(us));
    if (bucket >= kLatencyBuckets) bucket = kLatencyBuckets - 1;
    latency[bucket].fetch_add(1, std::memory_order_relaxed);
    latency_sum_us.fetch_add(us, std::memory_order_relaxed);
  }
};

struct Method {
  std::string name;  // "/forebay.v1.ActorService/Acquire"
  UnaryHandler unary;
  StreamFactory stream;  // one of the two
  MethodStats stats;
};

class MethodTable {
 public:
  // `name`: "/package.Service/Method"; each once.
  void AddUnary(std::string name, UnaryHandler handler);
  void AddStream(std::string name, StreamFactory factory);

  // Null if there is none.
  Method* Find(std::string_view name) const;
  // In order of adding.
  const std::deque<Method>& methods() const { return methods_; }
  // Each service once, in order of adding: "forebay.v1.ActorService".
  std::vector<std::string> Services() const;

 private:
  Method& Add(std::string name);

  std::deque<Method> methods_;  // stays in place
  absl::flat_hash_map<std::string, Method*> by_name_;
};

}  // namespace forebay::server
