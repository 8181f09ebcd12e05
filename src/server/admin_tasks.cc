// AdminService: adding tasks, quarantine.
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "codec/actor_messages.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"

namespace forebay::server {
namespace {

constexpr int kTasksMax = 65'536;
constexpr size_t kExternalIdBytesMax = 256;
constexpr size_t kPayloadBytesMax = size_t{1} << 20;
constexpr size_t kAttributesBytesMax = 64 * 1024;

absl::Status CheckTask(const v1::Task& task, int index) {
  const auto refuse = [index](const char* field, auto&&... why) {
    return absl::InvalidArgumentError(absl::StrCat("tasks[", index, "].", field, ": ", why...));
  };
  if (task.external_id().empty() || task.external_id().size() > kExternalIdBytesMax) {
    return refuse("external_id", "has ", task.external_id().size(), " bytes; 1 to ",
                  kExternalIdBytesMax);
  }
  if (task.payload().size() > kPayloadBytesMax) {
    return refuse("payload", "has ", task.payload().size(), " bytes; the limit is ",
                  kPayloadBytesMax);
  }
  if (task.attributes().size() > kAttributesBytesMax) {
    return refuse("attributes", "has ", task.attributes().size(), " bytes; the limit is ",
                  kAttributesBytesMax);
  }
  if (task.has_weight() && !(std::isfinite(task.weight()) && task.weight() >= 0)) {
    return refuse("weight", "is ", task.weight(), ", must be finite and at least 0");
  }
  return absl::OkStatus();
}

// An AddTasks under way: its contents are stored, the shards are asked one after another. A refusal
// stops it; what earlier shards took stays, and the request can be repeated.
struct AddJob {
  AddJob(ServiceContext* c, TypedResponder<v1::AddTasksResponse> r)
      : context(c), responder(std::move(r)) {}
  ServiceContext* const context;
  TypedResponder<v1::AddTasksResponse> responder;
  v1::AddTasksRequest request;
  std::vector<shard::AddTasks> by_shard;
  std::vector<std::vector<int>> places;  // of by_shard's tasks in the request
  std::vector<std::vector<bool>> known;  // likewise
  // Of shards that are absent.
  uint64_t left_out = 0;
  std::string why_left_out;  // the first
  v1::AddTasksResponse response;
};

// A shard knows neither the ids that people gave nor the places in the whole request.
absl::Status Explain(const AddJob& job, size_t shard, const shard::AddTasksReply& reply) {
  const auto& places = job.places[shard];
  if (!reply.refused || *reply.refused >= places.size()) return reply.status;
  const int place = places[*reply.refused];
  const v1::Task& task = job.request.tasks(place);
  if (!absl::IsAlreadyExists(reply.status)) {
    return absl::Status(reply.status.code(),
                        absl::StrCat("external_id '", task.external_id(), "', tasks[", place,
                                     "] of the request: ", reply.status.message()));
  }
  return absl::AlreadyExistsError(absl::StrCat(
      "tasks[", place, "].external_id: '", task.external_id(), "' exists in source '",
      job.request.source(),
      "' with another payload or other attributes; a task never changes: give it another id"));
}

// All others are in. Not Unavailable: a client would try for as long as it may, in vain.
absl::Status LeftOut(const AddJob& job) {
  if (job.left_out == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      job.left_out, " of ", job.request.tasks_size(), " tasks are left out (", job.response.added(),
      " were added, ", job.response.known(), " were known): ", job.why_left_out));
}

void AddAt(std::shared_ptr<AddJob> job, size_t shard) {
  while (shard < job->by_shard.size() && job->by_shard[shard].tasks.empty()) ++shard;
  if (shard == job->by_shard.size()) {
    const absl::Status left_out = LeftOut(*job);
    return left_out.ok() ? job->responder.Reply(job->response) : job->responder.Fail(left_out);
  }
  job->context->engine->Ask<shard::AddTasksReply>(
      ShardId(static_cast<uint8_t>(shard)), std::move(job->by_shard[shard]),
      [job, shard](shard::AddTasksReply&& reply) {
        if (!reply.status.ok()) {
          // The shard says itself what is dead of its own.
          for (size_t rest = shard + 1; rest < job->by_shard.size(); ++rest) {
            for (const auto& task : job->by_shard[rest].tasks) {
              job->context->contents->Kill({&task.content, 1});
            }
          }
          return job->responder.Fail(Explain(*job, shard, reply));
        }
        job->response.set_added(job->response.added() + reply.added);
        job->response.set_known(job->response.known() + reply.known);
        AddAt(job, shard + 1);
      });
}

// Stores the contents of new tasks, then sends all tasks to their shards.
void StoreContents(std::shared_ptr<AddJob> job) {
  std::vector<std::string> contents;
  for (size_t shard = 0; shard < job->by_shard.size(); ++shard) {
    for (size_t i = 0; i < job->places[shard].size(); ++i) {
      if (job->known[shard][i]) continue;
      const auto& task = job->request.tasks(job->places[shard][i]);
      codec::AppendTaskContent(task.external_id(), task.payload(), task.attributes(),
                               &contents.emplace_back());
    }
  }
  if (contents.empty()) return AddAt(std::move(job), 0);
  job->context->storage->AddContents(std::move(contents), RunStorage::WhenFull::kRefuse,
                                     [job](absl::StatusOr<std::vector<PayloadId>> ids) {
                                       if (!ids.ok()) return job->responder.Fail(ids.status());
                                       auto next = ids->begin();
                                       for (size_t shard = 0; shard < job->by_shard.size();
                                            ++shard) {
                                         for (size_t i = 0; i < job->places[shard].size(); ++i) {
                                           if (!job->known[shard][i])
                                             job->by_shard[shard].tasks[i].content = *next++;
                                         }
                                       }
                                       AddAt(job, 0);
                                     });
}

// Sorts the tasks by their shards, and asks those which they know already: a task never goes, so
// its content need not be stored again.
void Distribute(std::shared_ptr<AddJob> job, SourceId source) {
  node::Engine* const engine = job->context->engine;
  job->by_shard.resize(engine->shards());
  job->places.resize(engine->shards());
  job->known.resize(engine->shards());
  for (auto& part : job->by_shard) part.source = source;
  for (int i = 0; i < job->request.tasks_size(); ++i) {
    const auto& task = job->request.tasks(i);
    const uint64_t hash = Hash64(task.external_id());
    const size_t shard = engine->ShardOf(hash).value;
    if (const auto& presence = engine->Presence(engine->ShardOf(hash)); !presence.ok()) {
      if (job->left_out++ == 0) {
        job->why_left_out =
            absl::StrCat("tasks[", i, "] '", task.external_id(), "': ", presence.message());
      }
      continue;
    }
    job->places[shard].push_back(i);
    job->by_shard[shard].tasks.push_back(
        {.external_hash = hash,
         .content_hash = TaskContentHash(task.payload(), task.attributes()),
         .weight = task.has_weight() ? static_cast<float>(task.weight()) : 1.0f});
  }
  ForEachShard(
      engine,
      [job](node::ShardLoop& loop, uint64_t) {
        const auto& part = job->by_shard[loop.state().shard().value];
        auto& known = job->known[loop.state().shard().value];
        for (const auto& task : part.tasks) {
          known.push_back(loop.state().KnowsTask(part.source, task.external_hash));
        }
      },
      [job] { StoreContents(job); });
}

void AddTasks(ServiceContext* context, v1::AddTasksRequest request,
              TypedResponder<v1::AddTasksResponse> responder) {
  const auto catalog = context->catalog->Get();
  const auto* source = catalog->Find(request.source());
  if (source == nullptr) {
    return responder.Fail(
        absl::NotFoundError(absl::StrCat("source: '", request.source(), "' is not a source")));
  }
  if (request.tasks_size() > kTasksMax) {
    return responder.Fail(absl::InvalidArgumentError(
        absl::StrCat("tasks: has ", request.tasks_size(), " entries; the limit is ", kTasksMax)));
  }
  for (int i = 0; i < request.tasks_size(); ++i) {
    if (auto status = CheckTask(request.tasks(i), i); !status.ok()) return responder.Fail(status);
  }
  auto job = std::make_shared<AddJob>(context, std::move(responder));
  job->request = std::move(request);
  Distribute(std::move(job), source->id);
}

void SetQuarantine(ServiceContext* context, const v1::TaskNamesRequest& request, bool quarantine,
                   TypedResponder<v1::TaskNamesResponse> responder) {
  const auto catalog = context->catalog->Get();
  const auto* source = catalog->Find(request.source());
  if (source == nullptr) {
    return responder.Fail(
        absl::NotFoundError(absl::StrCat("source: '", request.source(), "' is not a source")));
  }
  struct Job {
    explicit Job(TypedResponder<v1::TaskNamesResponse> r) : responder(std::move(r)) {}
    std::atomic<uint32_t> left{0};
    std::atomic<uint64_t> changed{0};
    TypedResponder<v1::TaskNamesResponse> responder;
  };
  auto job = std::make_shared<Job>(std::move(responder));
  std::vector<shard::SetQuarantine> by_shard(context->engine->shards(),
                                             {.source = source->id,
                                              .quarantine = quarantine,
                                              .all_quarantined = request.all_quarantined()});
  for (const auto& id : request.external_ids()) {
    const uint64_t hash = Hash64(id);
    const absl::Status& presence = context->engine->Presence(context->engine->ShardOf(hash));
    if (!presence.ok()) return job->responder.Fail(presence);
    by_shard[context->engine->ShardOf(hash).value].external_hashes.push_back(hash);
  }
  job->left = static_cast<uint32_t>(by_shard.size());
  for (size_t s = 0; s < by_shard.size(); ++s) {
    context->engine->Ask<shard::CountReply>(
        ShardId(static_cast<uint8_t>(s)), std::move(by_shard[s]), [job](shard::CountReply&& reply) {
          job->changed += reply.count;
          if (job->left.fetch_sub(1) != 1) return;
          v1::TaskNamesResponse response;
          response.set_changed(job->changed);
          job->responder.Reply(response);
        });
  }
}

void QuarantineTasks(ServiceContext* context, v1::TaskNamesRequest request,
                     TypedResponder<v1::TaskNamesResponse> responder) {
  SetQuarantine(context, request, true, std::move(responder));
}

void RequeueTasks(ServiceContext* context, v1::TaskNamesRequest request,
                  TypedResponder<v1::TaskNamesResponse> responder) {
  SetQuarantine(context, request, false, std::move(responder));
}

}  // namespace

void ForEachShard(node::Engine* engine, std::function<void(node::ShardLoop&, uint64_t)> visit,
                  std::function<void()> done, uint32_t first) {
  if (first == engine->shards()) return done();
  engine->OnShard(ShardId(static_cast<uint8_t>(first)),
                  [engine, visit = std::move(visit), done = std::move(done), first](
                      node::ShardLoop& loop, uint64_t now_ms) mutable {
                    visit(loop, now_ms);
                    ForEachShard(engine, std::move(visit), std::move(done), first + 1);
                  });
}

void AddTaskMethods(ServiceContext* context, MethodTable* methods) {
  AddAdmin(methods, context, "AddTasks", &AddTasks);
  AddAdmin(methods, context, "QuarantineTasks", &QuarantineTasks);
  AddAdmin(methods, context, "RequeueTasks", &RequeueTasks);
}

}  // namespace forebay::server
