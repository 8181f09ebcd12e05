// AdminService: lists of rollouts and leases.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/page.h"
#include "server/policy_messages.h"
#include "server/rollout_messages.h"
#include "server/task_names.h"

namespace forebay::server {
namespace {

// Entries looked at in one visit of a loop.
constexpr size_t kLookedAtMax = 4096;
// Rollouts looked at in one call, however few of them are wanted.
constexpr size_t kRolloutsMax = 65'536;

std::string SourceName(const CatalogSnapshot& catalog, SourceId id) {
  const auto* source = catalog.Find(id);
  return source == nullptr ? "" : source->settings.name;
}

void ListRollouts(ServiceContext* context, v1::ListRolloutsRequest request,
                  TypedResponder<v1::ListRolloutsResponse> responder) {
  const auto catalog = context->catalog->Get();
  const auto size = PageSize(request.page_size());
  const auto place = ParsePageToken(request.page_token(), context->engine->shards());
  auto filter = RolloutFilter::Make(*context, *catalog, request);
  for (const auto& status : {size.status(), place.status(), filter.status()}) {
    if (!status.ok()) return responder.Fail(status);
  }
  auto answer = std::make_shared<TypedResponder<v1::ListRolloutsResponse>>(std::move(responder));
  auto response = std::make_shared<v1::ListRolloutsResponse>();
  WalkPages(
      context->engine, *place,
      [context, catalog, filter = *std::move(filter), size = *size, response, left = kRolloutsMax](
          node::ShardLoop& loop, uint64_t, uint64_t* at) mutable {
        for (size_t looked = 0; looked < kLookedAtMax && *at != UINT64_MAX; ++looked) {
          if (static_cast<uint32_t>(response->rollouts_size()) == size || left == 0) return false;
          for (const auto& view : filter.Next(loop.state(), at)) {
            --left;
            if (!filter.Matches(view)) continue;
            auto* out = response->add_rollouts();
            ToWire(*context, *catalog, loop.state(), view, out);
            if (filter.Lost(view)) out->add_flags("lost");
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
