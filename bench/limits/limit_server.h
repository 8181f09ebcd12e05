// A bare gRPC server in its best style, which does nothing but answer messages: what it reaches is
// the limit that the daemon is compared with. Completion queue, one polling thread, one generic
// service with raw byte buffers, no parsing, no locks.
//
// Run and Shutdown may be called from different threads; everything else from the thread that
// started it.
#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/alarm.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/limits/limit_call.h"

namespace forebay::bench {

struct LimitServerOptions {
  std::vector<std::string> addresses;  // "127.0.0.1:0", "unix:/path"; port 0 takes a free one
  // gRPC's filters for deadlines, compression and the like are left out.
  bool minimal_stack = true;
  // gRPC widens its receive window by measured bandwidth times delay. On one machine that only
  // fills memory with bytes that wait to be read, and costs half as much CPU again for the page
  // faults (docs/benchmarks.md).
  bool bandwidth_probe = false;
  std::map<std::string, int> arguments;  // further channel arguments, for experiments
};

class LimitServer {
 public:
  // Binds all addresses, or says which one failed.
  static absl::StatusOr<std::unique_ptr<LimitServer>> Start(const LimitServerOptions& options);
  ~LimitServer();

  // Of the first TCP address; 0 if there is none.
  int port() const { return port_; }

  // Serves on this thread until Shutdown, which is called from another one. Each once.
  void Run();
  void Shutdown();

 private:
  LimitServer() = default;

  LimitShared shared_;
  std::unique_ptr<grpc::Server> server_;
  grpc::Alarm stop_;  // tells the polling thread to shut the queue down
  int port_ = 0;
};

}  // namespace forebay::bench
