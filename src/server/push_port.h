// Takes what push streams have stored to the shards: rewards weighed, required columns checked, one
// command a shard.
//
// Thread-safe. Engine, catalog and store outlive it.
#pragma once

#include <memory>

#include "node/engine.h"
#include "server/catalog.h"
#include "server/grpc/push_stream.h"
#include "server/run_metrics.h"
#include "storage/content_store.h"
#include "storage/payload_store.h"

namespace forebay::server {

class PushPort final : public PushEngine {
 public:
  PushPort(node::Engine* engine, const Catalog* catalog, storage::PayloadStore* store,
           storage::ContentStore* contents, RunMetrics* metrics)
      : engine_(engine), catalog_(catalog), store_(store), contents_(contents), metrics_(metrics) {}

  std::shared_ptr<const codec::NameTable> Names() override;
  void Push(PushBatch batch, PushAnswer answer) override;
  void PushGroup(PushBatch batch, PushGroupRequest group, PushAnswer answer) override;

 private:
  struct Job;
  // Those of `indexes`, or all.
  void PushTo(ShardId shard, std::shared_ptr<Job> job, std::vector<uint32_t> indexes);
  void Answer(Job* job);

  node::Engine* const engine_;
  const Catalog* const catalog_;
  storage::PayloadStore* const store_;
  storage::ContentStore* const contents_;
  RunMetrics* const metrics_;
};

}  // namespace forebay::server
