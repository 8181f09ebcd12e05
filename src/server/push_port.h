// Takes what push streams have stored to the shards: rewards weighed, required columns checked, one
// command a shard.
//
// Thread-safe. Engine, catalog and storage outlive it.
#pragma once

#include <memory>
#include <vector>

#include "node/engine.h"
#include "server/catalog.h"
#include "server/grpc/push_stream.h"
#include "server/run_metrics.h"
#include "server/run_storage.h"

namespace forebay::server {

class PushPort final : public PushEngine {
 public:
  PushPort(node::Engine* engine, const Catalog* catalog, RunStorage* storage, RunMetrics* metrics)
      : engine_(engine), catalog_(catalog), storage_(storage), metrics_(metrics) {}

  std::shared_ptr<const codec::NameTable> Names() override;
  void Push(PushBatch batch, PushAnswer answer) override;
  void PushGroup(PushBatch batch, PushGroupRequest group, PushAnswer answer) override;

 private:
  struct Job;
  // Those of `indexes`, or all.
  void PushTo(ShardId shard, std::shared_ptr<Job> job, std::vector<uint32_t> indexes);
  void Answer(Job* job);
  void StoreTask(std::string content, shard::PutGroup command, std::vector<PayloadId> payloads,
                 PushAnswer answer);
  void PutGroup(shard::PutGroup command, std::vector<PayloadId> payloads, PushAnswer answer);
  void RefuseAll(const std::vector<PayloadId>& payloads, const shard::PushOutcome& outcome,
                 const PushAnswer& answer);
  void Refuse(const std::vector<PayloadId>& payloads, std::vector<shard::PushOutcome> outcomes,
              const PushAnswer& answer);

  node::Engine* const engine_;
  const Catalog* const catalog_;
  RunStorage* const storage_;
  RunMetrics* const metrics_;
};

}  // namespace forebay::server
