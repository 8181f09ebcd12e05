// The whole daemon: stores, engine, services and servers, built in the order in which they need
// each other.
//
// Start, Drain and the destructor on one thread, in that order; in between everything runs on
// threads of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "node/config.h"
#include "server/addresses.h"
#include "server/budget_relief.h"
#include "server/catalog.h"
#include "server/client_table.h"
#include "server/cluster_map.h"
#include "server/cluster_run.h"
#include "server/fetch_port.h"
#include "server/grpc/auth.h"
#include "server/grpc/health.h"
#include "server/grpc/method_table.h"
#include "server/grpc/push_watch.h"
#include "server/grpc/rpc_server.h"
#include "server/http_server.h"
#include "server/live_config.h"
#include "server/observation.h"
#include "server/payload_verification.h"
#include "server/push_port.h"
#include "server/push_stalls.h"
#include "server/run_metrics.h"
#include "server/run_storage.h"
#include "server/services.h"
#include "server/ticker.h"
#include "server/wait_sampler.h"

namespace forebay::server {

// The process's exit code when a log has failed.
inline constexpr int kLogFailed = 5;

class Daemon {
 public:
  // Serves, or says which entry of the configuration or which address stands in the way. A node of
  // a cluster serves when it leads; `restart` begins the process anew when it does not any more: it
  // does not return, and may be called on any thread.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const node::Config& config,
                                                       std::function<void()> restart);
  ~Daemon();

  // Hands out nothing more, lets what runs come to its end within shutdown.drain_ms, then stops
  // serving. A node that leads hands over to another one instead, if it can.
  enum class End : uint8_t {
    kClean,
    kHandedOver,  // what still waits here is the other node's: the process ends as it is
    kHangs,  // the store of rollouts: the destructor would wait for it, however long that takes
  };
  End Drain();
  // Says in the log what an end at once cuts off. Any thread, as long as the daemon lives.
  void LogCutOff() const;

 private:
  Daemon(const node::Config& config, std::unique_ptr<ClusterRun> cluster,
         std::unique_ptr<RunStorage> storage, std::function<void()> restart);
  // Takes up the run that the storage holds.
  absl::Status Begin(const node::AbsentMachines& absent = {});
  // Of a node of a cluster.
  absl::Status Follow();
  void Lead(const node::AbsentMachines& absent);
  void OnDeposed(const std::string& why);
  bool SwitchOver();
  void LeaveCluster();
  // Adds what is to be done again and again while the daemon serves.
  void AddTick(uint64_t interval_ms, Ticker::Work work);
  absl::Status Listen();
  absl::Status AddAuthorization(RpcServerOptions* options);
  void AddServices();
  absl::Status ListenHttp(HostPort* http);
  // What was seen now; null when the loops do not answer.
  std::shared_ptr<Observation> Look();
  absl::Status Announce(const HostPort& grpc, const HostPort& http);
  absl::Status WriteAnnounceFile(const std::string& text) const;
  bool Idle();
  // Notes for the next start how far each log is durable; false if that took too long.
  bool MarkLogs();
  void Apply(const node::Config& changed);

  const node::Config config_;  // as it was at the start
  LiveConfig live_config_;
  RunMetrics metrics_;
  const std::function<void()> restart_;
  std::atomic<bool> serving_{false};
  std::atomic<bool> leaving_{false};  // hands over, and then ends
  Notification deposed_;
  std::thread lead_;
  const std::unique_ptr<ClusterRun> cluster_;  // null: it is alone
  const std::unique_ptr<RunStorage> storage_;
  Catalog catalog_;
  ClientTable clients_;
  std::unique_ptr<node::Engine> engine_;
  PushPort push_port_;
  FetchPort fetch_port_;
  Ticker ticker_;
  ServiceContext context_;
  const std::shared_ptr<PayloadVerification> verification_;
  BudgetRelief relief_;
  PushWatch push_watch_;
  PushStalls push_stalls_;
  WaitSampler wait_sampler_;
  Health health_;
  ClusterMap cluster_map_;
  MethodTable methods_;
  TokenAuthorizer authorizer_;
  std::string unix_path_;
  std::unique_ptr<RpcServer> rpc_server_;
  HttpServer http_server_;
  // As Idle saw it last.
  std::atomic<uint64_t> leases_out_{0};
  uint64_t calls_ended_ = 0;
  std::chrono::steady_clock::time_point last_call_;
};

}  // namespace forebay::server
