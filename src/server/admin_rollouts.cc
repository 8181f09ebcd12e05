// AdminService: lists of rollouts and leases.
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/page.h"
#include "server/policy_messages.h"
#include "server/task_names.h"
#include "server/wire_ids.h"

namespace forebay::server {
namespace {

// Entries looked at in one visit of a loop.
constexpr size_t kLookedAtMax = 4096;

v1::RolloutStatus StatusToWire(shard::RolloutStatus status) {
  switch (status) {
    case shard::RolloutStatus::kFinished:
      return v1::ROLLOUT_STATUS_FINISHED;
    case shard::RolloutStatus::kTruncated:
      return v1::ROLLOUT_STATUS_TRUNCATED;
    case shard::RolloutStatus::kAborted:
      return v1::ROLLOUT_STATUS_ABORTED;
  }
  return v1::ROLLOUT_STATUS_UNSPECIFIED;
}

const char* Name(shard::GroupState state) {
  switch (state) {
    case shard::GroupState::kOpen:
      return "held";
    case shard::GroupState::kReady:
      return "ready";
    case shard::GroupState::kReserved:
      return "reserved";
    case shard::GroupState::kClosed:
      return "closed";
  }
  return "";
}

absl::Status CheckState(const std::string& state) {
  for (const char* known : {"", "held", "ready", "reserved"}) {
    if (state == known) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("state: is '", state.substr(0, 64), "'; held, ready, reserved or ''"));
}

bool Matches(const v1::ListRolloutsRequest& request, const CatalogSource* source,
             const shard::RolloutView& view) {
  if (source != nullptr && view.task.source() != source->id) return false;
  if (!request.state().empty() && request.state() != Name(view.state)) return false;
  if (request.has_reward_min() && !(view.rewarded && view.reward >= request.reward_min())) {
    return false;
  }
  return !request.has_reward_max() || (view.rewarded && view.reward <= request.reward_max());
}

void Fill(const shard::RolloutView& view, const std::string& source, std::string external_id,
          v1::RolloutState* out) {
  out->set_rollout_id(view.rollout.value);
  out->set_group_id(view.group.value);
  out->set_task_id(WireTaskId(view.group.shard(), view.task));
  out->set_attempt_id(view.attempt.value);
  out->set_source(source);
  out->set_state(Name(view.state));
  out->set_status(StatusToWire(view.status));
  out->set_reward(view.reward);
  out->set_rewarded(view.rewarded);
  out->set_tokens(view.tokens);
  out->set_loss_tokens(view.loss_tokens);
  ToWire(view.version, out->mutable_version());
  out->set_payload_bytes(view.payload_bytes);
  out->set_step(view.step.value);
  out->set_advantage(view.advantage);
  out->set_external_id(std::move(external_id));
}

std::string SourceName(const CatalogSnapshot& catalog, SourceId id) {
  const auto* source = catalog.Find(id);
  return source == nullptr ? "" : source->settings.name;
}

void ListRollouts(ServiceContext* context, v1::ListRolloutsRequest request,
                  TypedResponder<v1::ListRolloutsResponse> responder) {
  const auto catalog = context->catalog->Get();
  const CatalogSource* source = nullptr;
  if (!request.source().empty()) {
    source = catalog->Find(request.source());
    if (source == nullptr) {
      return responder.Fail(
          absl::NotFoundError(absl::StrCat("source: '", request.source(), "' is not a source")));
    }
  }
  const auto size = PageSize(request.page_size());
  const auto place = ParsePageToken(request.page_token(), context->engine->shards());
  for (const auto& status : {size.status(), place.status(), CheckState(request.state())}) {
    if (!status.ok()) return responder.Fail(status);
  }
  auto answer = std::make_shared<TypedResponder<v1::ListRolloutsResponse>>(std::move(responder));
  auto response = std::make_shared<v1::ListRolloutsResponse>();
  WalkPages(
      context->engine, *place,
      [context, catalog, source, request = std::move(request), size = *size, response](
          node::ShardLoop& loop, uint64_t, uint64_t* at) {
        for (size_t looked = 0; looked < kLookedAtMax && *at != UINT64_MAX; ++looked) {
          if (static_cast<uint32_t>(response->rollouts_size()) == size) return false;
          for (const auto& view : loop.state().Rollouts(at, 1)) {
            if (!Matches(request, source, view)) continue;
            Fill(view, SourceName(*catalog, view.task.source()),
                 ExternalId(context->contents, loop.state().ContentOf(view.task)),
                 response->add_rollouts());
          }
        }
        return true;
      },
      [response, answer](std::string next) {
        response->set_page_token(std::move(next));
        answer->Reply(*response);
      });
}

void ListLeases(ServiceContext* context, v1::ListLeasesRequest request,
                TypedResponder<v1::ListLeasesResponse> responder) {
  const auto size = PageSize(request.page_size());
  const auto place = ParsePageToken(request.page_token(), context->engine->shards());
  for (const auto& status : {size.status(), place.status()}) {
    if (!status.ok()) return responder.Fail(status);
  }
  auto answer = std::make_shared<TypedResponder<v1::ListLeasesResponse>>(std::move(responder));
  auto response = std::make_shared<v1::ListLeasesResponse>();
  WalkPages(
      context->engine, *place,
      [context, catalog = context->catalog->Get(), session = SessionId(request.session()),
       size = *size, response](node::ShardLoop& loop, uint64_t now_ms, uint64_t* at) {
        for (size_t looked = 0; looked < kLookedAtMax && *at != UINT64_MAX; ++looked) {
          if (static_cast<uint32_t>(response->leases_size()) == size) return false;
          for (const auto& view : loop.state().Leases(at, 1)) {
            if (session != SessionId() && view.session != session) continue;
            const auto clock = loop.primary().Clock(now_ms, view.attempt);
            auto* out = response->add_leases();
            out->set_attempt_id(view.attempt.value);
            out->set_session(view.session.value);
            out->set_source(SourceName(*catalog, view.task.source()));
            out->set_external_id(ExternalId(context->contents, loop.state().ContentOf(view.task)));
            out->set_attempt(view.number);
            out->set_age_ms(clock.age_ms);
            out->set_expires_in_ms(clock.expires_in_ms);
            out->set_generated_tokens(clock.generated_tokens);
            ToWire(view.version, out->mutable_version());
          }
        }
        return true;
      },
      [response, answer](std::string next) {
        response->set_page_token(std::move(next));
        answer->Reply(*response);
      });
}

}  // namespace

void AddRolloutMethods(ServiceContext* context, MethodTable* methods) {
  AddAdmin(methods, context, "ListRollouts", &ListRollouts);
  AddAdmin(methods, context, "ListLeases", &ListLeases);
}

}  // namespace forebay::server
