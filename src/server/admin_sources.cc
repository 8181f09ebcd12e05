// AdminService: sources.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/source_messages.h"

namespace forebay::server {
namespace {

absl::StatusOr<codec::SourceSettings> Wanted(const v1::PutSourceRequest& request,
                                             const CatalogSnapshot& catalog) {
  if (request.fields_size() == 0) return FromWire(request.settings());
  const auto* known = catalog.Find(request.settings().name());
  if (known == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("settings.name: '", request.settings().name(), "' is not a source"));
  }
  v1::SourceSettings merged;
  ToWire(known->settings, &merged);
  FOREBAY_RETURN_IF_ERROR(MergeFields(
      request.settings(), {request.fields().begin(), request.fields().end()}, &merged));
  merged.set_name(known->settings.name);
  return FromWire(merged);
}

void PutSource(ServiceContext* context, v1::PutSourceRequest request,
               TypedResponder<v1::PutSourceResponse> responder) {
  auto settings = Wanted(request, *context->catalog->Get());
  if (!settings.ok()) return responder.Fail(settings.status());
  if (auto status = context->catalog->CanHold(*settings); !status.ok()) {
    return responder.Fail(status);
  }
  auto answer = std::make_shared<TypedResponder<v1::PutSourceResponse>>(std::move(responder));
  context->engine->AskLedger<ledger::PutSourceReply>(
      ledger::PutSource{.settings = *settings},
      [context, settings = *settings, answer](ledger::PutSourceReply&& reply) {
        if (!reply.status.ok()) return answer->Fail(reply.status);
        if (auto status = context->catalog->Put(reply.source, settings); !status.ok()) {
          return answer->Fail(status);
        }
        v1::PutSourceResponse response;
        response.set_source(reply.source.value);
        response.set_created(reply.created);
        ToWire(settings, response.mutable_settings());
        answer->Reply(response);
      });
}

void Add(const shard::SourceView& view, v1::SourceState* out) {
  out->set_tasks(out->tasks() + view.tasks);
  out->set_quarantined(out->quarantined() + view.quarantined);
  out->set_epoch(std::max<uint64_t>(out->epoch(), view.epoch));
  out->set_groups_open(out->groups_open() + view.groups_open);
  out->set_groups_ready(out->groups_ready() + view.groups_ready);
  out->set_leases(out->leases() + view.in_flight);
  out->set_outstanding(out->outstanding() + view.outstanding);
  out->set_outstanding_max(out->outstanding_max() + view.outstanding_max);
  const auto& counters = *view.counters;
  out->set_assignments(out->assignments() + counters.assignments);
  out->set_rollouts(out->rollouts() + counters.accepted);
  out->set_trained(out->trained() + counters.trained);
  for (size_t i = 0; i < shard::kDropReasons; ++i) {
    if (counters.dropped[i] == 0) continue;
    (*out->mutable_dropped())[shard::Name(static_cast<shard::DropReason>(i))] +=
        counters.dropped[i];
  }
  // Means of the busiest shard: with one shard they are exact.
  if (view.counters->accepted >= out->rollouts() - counters.accepted) {
    out->set_mean_reward(view.mean_reward);
    out->set_mean_tokens(view.mean_tokens);
    out->set_mean_duration_ms(view.mean_duration_ms);
    out->set_survival(view.survival);
    out->set_mean_tokens_dispatched(view.mean_tokens_dispatched);
    out->set_mean_tokens_trained(view.mean_tokens_trained);
  }
}

void ListSources(ServiceContext* context, v1::ListSourcesRequest,
                 TypedResponder<v1::ListSourcesResponse> responder) {
  auto answer = std::make_shared<TypedResponder<v1::ListSourcesResponse>>(std::move(responder));
  auto response = std::make_shared<v1::ListSourcesResponse>();
  for (const auto& source : context->catalog->Get()->sources()) {
    auto* out = response->add_sources();
    out->set_source(source.id.value);
    ToWire(source.settings, out->mutable_settings());
  }
  ForEachShard(
      context->engine,
      [response](node::ShardLoop& loop, uint64_t) {
        for (const auto& view : loop.state().Sources()) {
          if (view.source.value < response->sources_size()) {
            Add(view, response->mutable_sources(view.source.value));
          }
        }
      },
      [response, answer] { answer->Reply(*response); });
}

}  // namespace

void AddSourceMethods(ServiceContext* context, MethodTable* methods) {
  AddAdmin(methods, context, "PutSource", &PutSource);
  AddAdmin(methods, context, "ListSources", &ListSources);
}

}  // namespace forebay::server
