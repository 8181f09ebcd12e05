// AdminService: rollouts that an operator drops.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/log.h"

namespace forebay::server {
namespace {

constexpr size_t kNoteBytesMax = 1024;
constexpr int kRolloutsMax = 65'536;

// The shards are asked one after another. A refusal stops it.
struct DropJob {
  DropJob(ServiceContext* c, TypedResponder<v1::DropRolloutsResponse> r)
      : context(c), responder(std::move(r)) {}
  ServiceContext* const context;
  TypedResponder<v1::DropRolloutsResponse> responder;
  v1::DropRolloutsRequest request;
  std::vector<std::pair<ShardId, shard::DropByOperator>> drops;
  uint64_t dropped = 0;
};

void LogDrops(const DropJob& job) {
  Log(LogLevel::kWarning, "rollouts dropped by an operator",
      {{"source", job.request.source()},
       {"ready", job.request.ready() ? "all" : ""},
       {"rollouts", job.dropped},
       {"who", job.request.who()},
       {"why", job.request.why()}});
}

void DropAt(std::shared_ptr<DropJob> job, size_t next) {
  if (next == job->drops.size()) {
    LogDrops(*job);
    v1::DropRolloutsResponse response;
    response.set_dropped(job->dropped);
    return job->responder.Reply(response);
  }
  auto& [shard, drop] = job->drops[next];
  job->context->engine->Ask<shard::CountReply>(
      shard, std::move(drop), [job, next](shard::CountReply&& reply) {
        job->dropped += reply.count;
        if (reply.status.ok()) return DropAt(job, next + 1);
        if (job->dropped == 0) return job->responder.Fail(reply.status);
        LogDrops(*job);
        job->responder.Fail(absl::Status(
            reply.status.code(),
            absl::StrCat(reply.status.message(), "; ", job->dropped, " others are dropped")));
      });
}

absl::Status CheckRequest(const v1::DropRolloutsRequest& request, uint32_t shards) {
  for (const auto& [field, text] :
       {std::pair("who", &request.who()), std::pair("why", &request.why())}) {
    if (text->size() <= kNoteBytesMax) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": has ", text->size(), " bytes; the limit is ", kNoteBytesMax));
  }
  if (request.ready() == (request.rollout_ids_size() > 0)) {
    return absl::InvalidArgumentError("either ready, or rollout_ids");
  }
  if (request.rollout_ids_size() > kRolloutsMax) {
    return absl::InvalidArgumentError(absl::StrCat("rollout_ids: has ", request.rollout_ids_size(),
                                                   " entries; the limit is ", kRolloutsMax));
  }
  for (const uint64_t id : request.rollout_ids()) {
    if (RolloutId(id).shard().value < shards) continue;
    return absl::NotFoundError(
        absl::StrCat("rollout_ids: the source holds no rollout 0x", absl::Hex(id)));
  }
  return absl::OkStatus();
}

void DropRollouts(ServiceContext* context, v1::DropRolloutsRequest request,
                  TypedResponder<v1::DropRolloutsResponse> responder) {
  const auto catalog = context->catalog->Get();
  const auto* source = catalog->Find(request.source());
  if (source == nullptr) {
    return responder.Fail(
        absl::NotFoundError(absl::StrCat("source: '", request.source(), "' is not a source")));
  }
  const uint32_t shards = context->engine->shards();
  if (auto status = CheckRequest(request, shards); !status.ok()) return responder.Fail(status);
  auto job = std::make_shared<DropJob>(context, std::move(responder));
  std::map<ShardId, shard::DropByOperator> drops;
  for (const uint64_t id : request.rollout_ids()) {
    drops[RolloutId(id).shard()].rollouts.push_back(RolloutId(id));
  }
  for (uint32_t i = 0; request.ready() && i < shards; ++i) {
    if (!context->engine->Presence(ShardId(static_cast<uint8_t>(i))).ok()) continue;
    drops[ShardId(static_cast<uint8_t>(i))].ready = true;
  }
  for (auto& [shard, drop] : drops) {
    drop.source = source->id;
    job->drops.emplace_back(shard, std::move(drop));
  }
  job->request = std::move(request);
  DropAt(std::move(job), 0);
}

}  // namespace

void AddDropMethods(ServiceContext* context, MethodTable* methods) {
  AddAdmin(methods, context, "DropRollouts", &DropRollouts);
}

}  // namespace forebay::server
