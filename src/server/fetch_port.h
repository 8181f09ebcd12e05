// Answers fetch streams from the ledger's plan.
//
// Thread-safe. The engine outlives it.
#pragma once

#include "node/engine.h"
#include "server/client_table.h"
#include "server/grpc/fetch_stream.h"

namespace forebay::server {

class FetchPort final : public FetchEngine {
 public:
  FetchPort(node::Engine* engine, ClientTable* clients) : engine_(engine), clients_(clients) {}
  void View(const FetchKey& key, FetchAnswer answer) override;
  void Lost(const FetchKey& key, const FetchView& view, const absl::Status& why,
            FetchRefusal answer) override;
  void Answering(const FetchKey& key, uint64_t bytes) override;

 private:
  node::Engine* const engine_;
  ClientTable* const clients_;
};

}  // namespace forebay::server
