// ActorService, but for the push streams.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codec/actor_messages.h"
#include "forebay/v1/actor.pb.h"
#include "server/acquire.h"
#include "server/grpc/typed.h"
#include "server/leases.h"
#include "server/policy_messages.h"
#include "server/services.h"

namespace forebay::server {
namespace {

constexpr size_t kNameBytesMax = 256;
constexpr size_t kReasonBytesMax = 1024;

ClientUsage FromWire(const v1::ClientUsage& usage) {
  return {.cpu_ms = usage.cpu_ms(),
          .resident_bytes = usage.resident_bytes(),
          .pushed_bytes = usage.pushed_bytes(),
          .fetched_bytes = usage.fetched_bytes(),
          .library_cpu_ms = usage.library_cpu_ms(),
          .host_load = usage.host_load()};
}

absl::Status CheckNames(const v1::OpenSessionRequest& request) {
  if (request.session() == 0) return absl::InvalidArgumentError("session: is 0");
  const std::pair<const char*, const std::string*> fields[] = {{"actor", &request.actor()},
                                                               {"engine", &request.engine()},
                                                               {"site", &request.site()},
                                                               {"client", &request.client()}};
  for (const auto& [name, value] : fields) {
    if (value->size() > kNameBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": has ", value->size(), " bytes; the limit is ", kNameBytesMax));
    }
  }
  return absl::OkStatus();
}

// Every shard knows every session, but for those that were absent then; the answer goes out when
// the last of them has it.
void OpenSession(ServiceContext* context, const v1::OpenSessionRequest& request,
                 TypedResponder<v1::OpenSessionResponse> responder) {
  if (auto status = CheckNames(request); !status.ok()) return responder.Fail(status);
  const SessionId session(request.session());
  context->clients->Seen(ClientTable::SessionKey(session), node::Engine::NowMs());
  struct Job {
    Job(uint32_t shards, TypedResponder<v1::OpenSessionResponse> r)
        : left(shards), responder(std::move(r)) {}
    std::atomic<uint32_t> left;
    TypedResponder<v1::OpenSessionResponse> responder;
  };
  std::vector<ShardId> present;
  for (uint32_t i = 0; i < context->engine->shards(); ++i) {
    const ShardId shard(static_cast<uint8_t>(i));
    if (context->engine->Presence(shard).ok()) present.push_back(shard);
  }
  auto job = std::make_shared<Job>(static_cast<uint32_t>(present.size()), std::move(responder));
  const shard::OpenSession command{.session = session,
                                   .actor = request.actor(),
                                   .engine = request.engine(),
                                   .site = request.site(),
                                   .client = request.client()};
  for (const ShardId shard : present) {
    context->engine->Ask<shard::CountReply>(
        shard, command, [context, job](shard::CountReply&& reply) {
          if (job->left.fetch_sub(1) != 1) return;
          if (!reply.status.ok()) return job->responder.Fail(reply.status);
          context->engine->OnLedger([context, job](node::LedgerLoop& loop, uint64_t) {
            v1::OpenSessionResponse response;
            response.set_run(context->run);
            response.set_renew_interval_ms(static_cast<uint32_t>(context->renew_interval_ms));
            response.set_rollout_bytes_max(context->rollout_bytes_max);
            response.set_frame_bytes_max(context->frame_bytes_max);
            ToWire(loop.state().published(), response.mutable_version());
            job->responder.Reply(response);
          });
        });
  }
}

template <class Request>
absl::StatusOr<std::vector<shard::LeaseRef>> LeasesOf(const Request& request) {
  if (request.attempt_ids_size() != request.tokens_size()) {
    return absl::InvalidArgumentError(absl::StrCat("tokens: has ", request.tokens_size(),
                                                   " entries, attempt_ids has ",
                                                   request.attempt_ids_size()));
  }
  std::vector<shard::LeaseRef> leases;
  for (int i = 0; i < request.attempt_ids_size(); ++i) {
    leases.push_back({AttemptId(request.attempt_ids(i)), request.tokens(i)});
  }
  return leases;
}

void Release(ServiceContext* context, const v1::ReleaseRequest& request,
             TypedResponder<v1::ReleaseResponse> responder) {
  auto leases = LeasesOf(request);
  if (!leases.ok()) return responder.Fail(leases.status());
  auto answer = std::make_shared<TypedResponder<v1::ReleaseResponse>>(std::move(responder));
  CountOverShards(
      context->engine, *leases,
      [session = SessionId(request.session())](std::vector<shard::LeaseRef> part) {
        return shard::Command(shard::Release{.session = session, .leases = std::move(part)});
      },
      [answer](absl::StatusOr<uint64_t> count) {
        if (!count.ok()) return answer->Fail(count.status());
        v1::ReleaseResponse response;
        response.set_released(static_cast<uint32_t>(*count));
        answer->Reply(response);
      });
}

// The reason is shown with the tasks should they be quarantined.
void NoteFailures(ServiceContext* context, const std::vector<shard::LeaseRef>& leases,
                  const std::string& reason) {
  if (reason.empty()) return;
  for (const auto& lease : leases) {
    const ShardId shard = lease.attempt.shard();
    if (shard.value >= context->engine->shards()) continue;
    context->engine->OnShard(
        shard, [context, shard, attempt = lease.attempt, reason](node::ShardLoop& loop, uint64_t) {
          if (const auto task = loop.state().TaskOf(attempt)) {
            context->failures.Put(shard, *task, reason);
          }
        });
  }
}

void Fail(ServiceContext* context, const v1::FailRequest& request,
          TypedResponder<v1::FailResponse> responder) {
  auto leases = LeasesOf(request);
  if (!leases.ok()) return responder.Fail(leases.status());
  if (request.reason().size() > kReasonBytesMax) {
    return responder.Fail(absl::InvalidArgumentError(absl::StrCat(
        "reason: has ", request.reason().size(), " bytes; the limit is ", kReasonBytesMax)));
  }
  NoteFailures(context, *leases, request.reason());
  auto answer = std::make_shared<TypedResponder<v1::FailResponse>>(std::move(responder));
  CountOverShards(
      context->engine, *leases,
      [session = SessionId(request.session()),
       reason = request.reason()](std::vector<shard::LeaseRef> part) {
        return shard::Command(
            shard::Fail{.session = session, .leases = std::move(part), .reason = reason});
      },
      [answer](absl::StatusOr<uint64_t> count) {
        if (!count.ok()) return answer->Fail(count.status());
        v1::FailResponse response;
        response.set_failed(static_cast<uint32_t>(*count));
        answer->Reply(response);
      });
}

void ReportAdoption(ServiceContext* context, const v1::ReportAdoptionRequest& request,
                    TypedResponder<v1::ReportAdoptionResponse> responder) {
  if (request.engine().empty() || request.engine().size() > kNameBytesMax) {
    return responder.Fail(absl::InvalidArgumentError(
        absl::StrCat("engine: has ", request.engine().size(), " bytes; 1 to ", kNameBytesMax)));
  }
  if (auto status = CheckPolicyName(request.version().policy(), "version.policy"); !status.ok()) {
    return responder.Fail(status);
  }
  context->clients->Seen(
      ClientTable::EngineKey(request.engine()), node::Engine::NowMs(),
      request.has_usage() ? std::optional(FromWire(request.usage())) : std::nullopt);
  auto answer = std::make_shared<TypedResponder<v1::ReportAdoptionResponse>>(std::move(responder));
  context->engine->AskLedger<ledger::StatusReply>(
      ledger::ReportAdoption{.engine = request.engine(),
                             .version = server::FromWire(request.version()),
                             .pending_to_loaded_ms = request.pending_to_loaded_ms(),
                             .pause_ms = request.pause_ms()},
      [answer](ledger::StatusReply&& reply) {
        if (!reply.status.ok()) return answer->Fail(reply.status);
        answer->Reply(v1::ReportAdoptionResponse());
      });
}

// Sends every announcement until the client or the server ends the stream.
class WatchPolicyStream final : public StreamHandler {
 public:
  explicit WatchPolicyStream(ServiceContext* context) : context_(context) {}
  ~WatchPolicyStream() override {
    if (watcher_ != 0) context_->engine->UnwatchPolicy(watcher_);
  }

  void OnStart(Stream& stream, const CallContext&) override { stream.Read(); }

  void OnMessage(Stream& stream, grpc::ByteBuffer body) override {
    v1::WatchPolicyRequest request;
    if (watcher_ != 0 || !ParseBody(&body, &request)) {
      return stream.Finish(absl::InvalidArgumentError("one WatchPolicyRequest was expected"));
    }
    if (auto status = CheckPolicyName(request.policy(), "policy"); !status.ok()) {
      return stream.Finish(status);
    }
    watcher_ = context_->engine->WatchPolicy(
        [ref = stream.ref(), &stream](const ledger::Announcement& announcement) {
          v1::PolicyAnnouncement message;
          ToWire(announcement, &message);
          ref.Post([&stream, body = SerializeBody(message)] { stream.Write(body); });
        });
  }
  void OnHalfClose(Stream& stream) override {
    if (watcher_ == 0) stream.Finish(absl::InvalidArgumentError("no WatchPolicyRequest came"));
  }
  void OnDrain(Stream& stream) override {
    stream.Finish(absl::UnavailableError("the server is shutting down"));
  }

 private:
  ServiceContext* const context_;
  uint64_t watcher_ = 0;
};

template <class Request, class Response>
void Add(MethodTable* methods, ServiceContext* context, const char* name,
         void (*handler)(ServiceContext*, const Request&, TypedResponder<Response>)) {
  methods->AddUnary(
      absl::StrCat("/forebay.v1.ActorService/", name),
      TypedUnary<Request, Response>([context, handler](const CallContext&, Request request,
                                                       TypedResponder<Response> responder) {
        handler(context, request, std::move(responder));
      }));
}

}  // namespace

void AddActorService(ServiceContext* context, MethodTable* methods) {
  Add(methods, context, "OpenSession", &OpenSession);
  Add(methods, context, "Release", &Release);
  Add(methods, context, "Fail", &Fail);
  Add(methods, context, "ReportAdoption", &ReportAdoption);
  AddAcquire(context, methods);
  AddRenew(context, methods);
  AddSetReward(context, methods);
  methods->AddStream("/forebay.v1.ActorService/WatchPolicy",
                     [context] { return std::make_unique<WatchPolicyStream>(context); });
}

}  // namespace forebay::server
