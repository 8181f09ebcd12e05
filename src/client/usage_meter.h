// Counts what the client costs: bytes moved, and the CPU time that threads spend inside the
// library.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "forebay/client.h"

namespace forebay::client {

class UsageMeter {
 public:
  void AddPushed(uint64_t bytes) { pushed_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void AddFetched(uint64_t bytes) { fetched_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void SetHostLoad(float load) { host_load_.store(load, std::memory_order_relaxed); }
  Usage Read() const;

  // Counts this thread's CPU time from construction to destruction. Nested ones count once.
  class Scope {
   public:
    explicit Scope(UsageMeter* meter);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    // Adds what has come together so far; for threads that live long.
    void Note();

   private:
    UsageMeter* const meter_;
    uint64_t began_ns_ = 0;
    bool outermost_ = false;
  };

 private:
  std::atomic<uint64_t> pushed_bytes_{0};
  std::atomic<uint64_t> fetched_bytes_{0};
  std::atomic<uint64_t> library_cpu_ns_{0};
  std::atomic<float> host_load_{0};
};

}  // namespace forebay::client
