#include "server/acquire.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/tsan.h"
#include "codec/actor_messages.h"
#include "forebay/v1/actor.pb.h"
#include "server/grpc/typed.h"
#include "server/log.h"
#include "server/policy_messages.h"
#include "server/wire_ids.h"

namespace forebay::server {
namespace {

constexpr uint32_t kAssignmentsMax = 4096;
constexpr uint32_t kWaitMsMax = 60'000;
constexpr uint32_t kRetryAfterMs = 500;
// An AcquireResponse holds no more than about this: fewer assignments are handed out when tasks are
// large, and unfinished attempts beyond it begin anew.
constexpr uint64_t kResponseBytesMax = uint64_t{64} << 20;

// How many assignments fit one answer, whichever tasks they are of.
uint32_t MostAssignments(const storage::ContentStore& contents) {
  constexpr uint64_t kFieldBytes = 256;
  const uint64_t most = kResponseBytesMax / (contents.largest() + kFieldBytes);
  return static_cast<uint32_t>(std::clamp<uint64_t>(most, 1, kAssignmentsMax));
}

// `most`: assignments that one answer can hold.
absl::Status Translate(const codec::AcquireRequest& request, const CatalogSnapshot& catalog,
                       uint32_t most, shard::Assign* assign) {
  if (request.session == 0) return absl::InvalidArgumentError("session: is 0");
  if (request.max == 0 || request.max > kAssignmentsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("max: is ", request.max, "; 1 to ", kAssignmentsMax));
  }
  if (request.wait_ms > kWaitMsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("wait_ms: is ", request.wait_ms, "; the limit is ", kWaitMsMax));
  }
  FOREBAY_RETURN_IF_ERROR(CheckPolicyName(std::string(request.policy), "version.policy"));
  assign->session = SessionId(request.session);
  assign->request_id = request.request_id;
  assign->max = std::min(request.max, most);
  assign->version = request.version;
  assign->loads_any_version = request.loads_any_version;
  for (const auto name : request.sources) {
    const auto* source = catalog.Find(name);
    if (source == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("sources: '", std::string(name), "' is not a source"));
    }
    assign->sources.push_back(source->id);
  }
  return absl::OkStatus();
}

std::string EncodePartial(storage::PayloadStore* store, PayloadId id, uint64_t bytes_max) {
  std::vector<storage::PayloadView> views;
  std::string out;
  // A partial attempt that is gone, or cannot be read back, costs its prefix, not the attempt.
  if (!store->Open({&id, 1}, &views).ok()) return out;
  const auto& view = views[0];
  if (view.bytes() > bytes_max) return out;
  v1::Partial partial;
  if (!partial.mutable_header()->ParseFromString(std::string(view.header()))) return out;
  std::vector<storage::BlockSlice> slices;
  if (!view.Slices(view.header_bytes(), view.bytes() - view.header_bytes(), &slices).ok()) {
    return out;
  }
  for (const auto& slice : slices) partial.mutable_payload()->append(slice.data, slice.size);
  partial.SerializeToString(&out);
  return out;
}

codec::AssignmentFields Fields(const shard::Assignment& a) {
  return {.attempt_id = a.attempt.value,
          .token = a.token,
          .seed = a.seed,
          .group_id = a.group.value,
          .attempt = a.number,
          .source = a.task.source().value,
          .version = a.version,
          .lease_ms = a.lease_ms,
          .eval_run = a.eval_run.value,
          .task_id = WireTaskId(a.group.shard(), a.task)};
}

std::string SourceInfo(const CatalogSource& source) {
  v1::SourceInfo info;
  info.set_source(source.id.value);
  info.set_name(source.settings.name);
  info.set_sampling_json(source.settings.sampling_json);
  info.set_purpose(source.settings.purpose == codec::Purpose::kEval ? v1::PURPOSE_EVAL
                                                                    : v1::PURPOSE_TRAIN);
  return info.SerializeAsString();
}

std::string Encode(ServiceContext* context, const shard::AssignReply& reply) {
  std::string out;
  constexpr size_t kExpectedBytes = 128;
  out.reserve(reply.assignments.size() * kExpectedBytes);
  std::vector<uint16_t> sources;
  for (const auto& assignment : reply.assignments) {
    const auto content = context->contents->Read(assignment.content);
    std::string partial;
    if (assignment.partial.value != 0 && out.size() < kResponseBytesMax) {
      partial =
          EncodePartial(context->payloads, assignment.partial, kResponseBytesMax - out.size());
    }
    codec::AppendAssignment(Fields(assignment), content.ok() ? *content : std::string_view(),
                            partial, &out);
    const uint16_t source = assignment.task.source().value;
    if (std::ranges::find(sources, source) == sources.end()) sources.push_back(source);
  }
  const auto catalog = context->catalog->Get();
  std::vector<std::string> infos;
  for (const uint16_t id : sources) {
    if (const auto* source = catalog->Find(SourceId(id))) infos.push_back(SourceInfo(*source));
  }
  codec::AppendAcquireTail(infos, reply.reason, reply.assignments.empty() ? kRetryAfterMs : 0,
                           &out);
  return out;
}

void Answer(ServiceContext* context, const shard::AssignReply& reply, Responder* responder) {
  // The slice owns the string: a copy of thousands of assignments is spared.
  auto* const encoded = new std::string(Encode(context, reply));
  TsanRelease(encoded);
  grpc::Slice out(
      encoded->data(), encoded->size(),
      [](void* string) {
        TsanAcquire(string);
        delete static_cast<std::string*>(string);
      },
      encoded);
  responder->Reply(grpc::ByteBuffer(&out, 1));
}

// Or the next holder of the attempt would wait for the same bytes in vain.
void DropLost(ServiceContext* context, const shard::AssignReply& reply, const absl::Status& why) {
  const std::vector<PayloadId> lost = storage::LostOf(why);
  std::map<ShardId, shard::DropDamaged> drops;
  for (const shard::Assignment& assignment : reply.assignments) {
    if (std::ranges::find(lost, assignment.partial) == lost.end()) continue;
    drops[assignment.attempt.shard()].payloads.push_back({assignment.attempt, assignment.partial});
  }
  for (auto& [shard, drop] : drops) {
    Log(LogLevel::kError, "an unfinished attempt is lost; it begins anew",
        {{"attempts", drop.payloads.size()}, {"why", why.message()}});
    context->engine->Ask<shard::CountReply>(shard, std::move(drop), [](shard::CountReply&& done) {
      if (done.status.ok()) return;
      Log(LogLevel::kWarning, "what is lost could not be dropped yet",
          {{"why", done.status.message()}});
    });
  }
}

// Partial attempts may have to be read back first.
void AnswerWhenLoaded(ServiceContext* context, shard::AssignReply&& reply, Responder responder) {
  std::vector<PayloadId> partials;
  for (const auto& assignment : reply.assignments) {
    if (assignment.partial != PayloadId()) partials.push_back(assignment.partial);
  }
  if (partials.empty()) return Answer(context, reply, &responder);
  context->payloads->Load(
      partials, storage::Parts::kAll,
      [context, reply = std::move(reply), responder = std::move(responder)](
          absl::StatusOr<std::vector<storage::PayloadView>> held /* meanwhile */) mutable {
        DropLost(context, reply, held.status());
        Answer(context, reply, &responder);
      });
}

void Acquire(ServiceContext* context, grpc::ByteBuffer body, Responder responder) {
  grpc::Slice slice;
  // The decoder wants one piece; a request of one slice is not copied.
  if (!body.TrySingleSlice(&slice).ok() && !body.DumpToSingleSlice(&slice).ok()) {
    return responder.Fail(absl::InvalidArgumentError("the request cannot be read"));
  }
  codec::AcquireRequest request;
  const std::string_view bytes(reinterpret_cast<const char*>(slice.begin()), slice.size());
  if (!codec::DecodeAcquireRequest(bytes, &request)) {
    return responder.Fail(
        absl::InvalidArgumentError("the request is no forebay.v1.AcquireRequest"));
  }
  shard::Assign assign;
  if (auto status = Translate(request, *context->catalog->Get(),
                              MostAssignments(*context->contents), &assign);
      !status.ok()) {
    return responder.Fail(status);
  }
  uint32_t wait_ms = request.wait_ms;
  if (context->draining) wait_ms = 0;
  auto ticket = std::make_shared<node::Engine::Ticket>();
  if (wait_ms > 0) {
    responder.OnCancel([context, ticket] { context->engine->CancelAcquire(ticket); });
  }
  auto done = [context, responder = std::move(responder)](shard::AssignReply&& reply) mutable {
    if (!reply.status.ok()) return responder.Fail(reply.status);
    AnswerWhenLoaded(context, std::move(reply), std::move(responder));
  };
  context->engine->Acquire(std::move(assign), wait_ms, std::move(done), std::move(ticket));
}

}  // namespace

void AddAcquire(ServiceContext* context, MethodTable* methods) {
  methods->AddUnary("/forebay.v1.ActorService/Acquire",
                    [context](const CallContext&, grpc::ByteBuffer body, Responder responder) {
                      Acquire(context, std::move(body), std::move(responder));
                    });
}

}  // namespace forebay::server
