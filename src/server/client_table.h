// What is known of clients beside the replicated state: when they were last heard, what they say
// that they cost.
//
// Volatile and bounded: the longest unheard go first. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/ids.h"
#include "base/sync.h"

namespace forebay::server {

// As forebay.v1.ClientUsage.
struct ClientUsage {
  uint64_t cpu_ms = 0;
  uint64_t resident_bytes = 0;
  uint64_t pushed_bytes = 0;
  uint64_t fetched_bytes = 0;
  uint64_t library_cpu_ms = 0;
  float host_load = 0;
};

struct ClientRecord {
  uint64_t last_seen_ms = 0;
  std::optional<ClientUsage> usage;
};

class ClientTable {
 public:
  static constexpr size_t kClientsMax = 100'000;

  void Seen(const std::string& key, uint64_t now_ms, std::optional<ClientUsage> usage = {}) {
    MutexLock lock(&mutex_);
    auto& record = clients_[key];
    record.last_seen_ms = now_ms;
    if (usage) record.usage = usage;
    if (clients_.size() > kClientsMax) DropOldest();
  }
  // A trainer's rank was sent so many bytes.
  void Fetched(uint32_t dp_rank, uint64_t now_ms, uint64_t bytes) {
    MutexLock lock(&mutex_);
    auto& record = clients_[RankKey(dp_rank)];
    record.last_seen_ms = now_ms;
    if (!record.usage) record.usage.emplace();
    record.usage->fetched_bytes += bytes;
  }
  std::optional<ClientRecord> Find(const std::string& key) const {
    MutexLock lock(&mutex_);
    const auto found = clients_.find(key);
    if (found == clients_.end()) return std::nullopt;
    return found->second;
  }

  static std::string SessionKey(SessionId session) { return "s" + std::to_string(session.value); }
  static std::string EngineKey(const std::string& engine) { return "e" + engine; }
  static std::string RankKey(uint32_t dp_rank) { return "r" + std::to_string(dp_rank); }
  static std::string TrainerKey(uint32_t dp_rank, uint32_t peer) {
    return "t" + std::to_string(dp_rank) + "." + std::to_string(peer);
  }

 private:
  // Rare: once the table is full, a tenth goes at a time.
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<std::pair<uint64_t, std::string>> by_age;
    for (const auto& [key, record] : clients_) by_age.emplace_back(record.last_seen_ms, key);
    std::sort(by_age.begin(), by_age.end());
    for (size_t i = 0; i < by_age.size() / 10; ++i) clients_.erase(by_age[i].second);
  }

  mutable Mutex mutex_;
  std::map<std::string, ClientRecord> clients_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::server
