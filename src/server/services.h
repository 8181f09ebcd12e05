// The services of the public contract, as handlers in a method table.
//
// Everything in the context outlives the server and is thread-safe. Add each service before the
// server starts.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "node/engine.h"
#include "server/catalog.h"
#include "server/client_table.h"
#include "server/cluster_facts.h"
#include "server/grpc/method_table.h"
#include "server/live_config.h"
#include "server/run_metrics.h"
#include "server/run_storage.h"
#include "server/task_names.h"
#include "server/ticker.h"
#include "storage/content_store.h"
#include "storage/payload_store.h"

namespace forebay::server {

class PayloadVerification;

struct ServiceContext {
  node::Engine* engine = nullptr;
  Catalog* catalog = nullptr;
  ClientTable* clients = nullptr;
  RunStorage* storage = nullptr;
  storage::PayloadStore* payloads = nullptr;  // of the storage
  storage::ContentStore* contents = nullptr;
  Ticker* ticker = nullptr;
  LiveConfig* config = nullptr;
  RunMetrics* metrics = nullptr;
  PayloadVerification* verification = nullptr;
  std::function<ClusterFacts()> cluster;  // unset: the daemon is alone
  FailureNotes failures;
  uint64_t started_ms = 0;
  uint64_t run = 0;
  std::atomic<uint64_t> renew_interval_ms{5'000};
  std::atomic<uint64_t> rollout_bytes_max{uint64_t{1} << 30};
  std::atomic<uint64_t> frame_bytes_max{uint64_t{4} << 20};
  // The daemon is about to end: no new assignments.
  std::atomic<bool> draining{false};
};

// OpenSession, Acquire, Renew, Release, Fail, SetReward, WatchPolicy, ReportAdoption; Push and
// PushGroup are stream handlers of their own (grpc/push_stream.h).
void AddActorService(ServiceContext* context, MethodTable* methods);
// All of TrainerService but Fetch (grpc/fetch_stream.h).
void AddTrainerService(ServiceContext* context, MethodTable* methods);

}  // namespace forebay::server
