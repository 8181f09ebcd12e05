// Answers fetch streams from the ledger's plan.
//
// Thread-safe. The engine outlives it.
#pragma once

#include "node/engine.h"
#include "server/grpc/fetch_stream.h"

namespace forebay::server {

class FetchPort final : public FetchEngine {
 public:
  explicit FetchPort(node::Engine* engine) : engine_(engine) {}
  void View(const FetchKey& key, FetchAnswer answer) override;

 private:
  node::Engine* const engine_;
};

}  // namespace forebay::server
