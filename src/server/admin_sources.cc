// AdminService: sources.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/log.h"
#include "server/observation.h"
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
  FOREBAY_RETURN_IF_ERROR(
      MergeFields(request.settings(), {request.fields().begin(), request.fields().end()}, &merged));
  merged.set_name(known->settings.name);
  return FromWire(merged);
}

// The clients of this project renew more often then; others may go by the interval alone.
void WarnOfShortLeases(const codec::SourceSettings& settings, uint64_t interval_ms) {
  if (settings.lease_min_ms > interval_ms) return;
  Log(LogLevel::kWarning, "leases may be over before the next renewal",
      {{"source", settings.name},
       {"lease.min_ms", settings.lease_min_ms},
       {"renew.interval_ms", interval_ms}});
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
        Log(LogLevel::kInfo, reply.created ? "source created" : "source changed",
            {{"source", settings.name}, {"paused", settings.paused ? "true" : "false"}});
        WarnOfShortLeases(settings, context->renew_interval_ms);
        v1::PutSourceResponse response;
        response.set_source(reply.source.value);
        response.set_created(reply.created);
        ToWire(settings, response.mutable_settings());
        answer->Reply(response);
      });
}

void Fill(const SourceFacts& facts, const std::string& idle_reason, v1::SourceState* out) {
  const auto& counters = facts.counters;
  out->set_tasks(facts.tasks);
  out->set_quarantined(facts.quarantined);
  out->set_epoch(facts.epoch);
  out->set_groups_open(facts.groups_open);
  out->set_groups_ready(facts.groups_ready);
  out->set_leases(facts.in_flight);
  out->set_outstanding(facts.outstanding);
  out->set_outstanding_max(facts.outstanding_max);
  out->set_assignments(counters.assignments);
  out->set_rollouts(counters.accepted);
  out->set_trained(counters.trained);
  for (size_t i = 0; i < shard::kDropReasons; ++i) {
    if (counters.dropped[i] == 0) continue;
    (*out->mutable_dropped())[shard::Name(static_cast<shard::DropReason>(i))] = counters.dropped[i];
  }
  out->set_mean_reward(facts.mean_reward);
  out->set_mean_tokens(facts.mean_tokens);
  out->set_mean_duration_ms(facts.mean_duration_ms);
  out->set_survival(facts.survival);
  out->set_mean_tokens_dispatched(facts.mean_tokens_dispatched);
  out->set_mean_tokens_trained(facts.mean_tokens_trained);
  out->set_reason(ReasonOf(facts, idle_reason));
}

void ListSources(ServiceContext* context, v1::ListSourcesRequest,
                 TypedResponder<v1::ListSourcesResponse> responder) {
  auto answer = std::make_shared<TypedResponder<v1::ListSourcesResponse>>(std::move(responder));
  struct Look {
    std::vector<SourceFacts> facts;
    std::string idle_reason;
  };
  auto look = std::make_shared<Look>();
  const auto catalog = context->catalog->Get();
  look->facts.resize(catalog->sources().size());
  ForEachShard(
      context->engine,
      [look](node::ShardLoop& loop, uint64_t) {
        look->idle_reason = loop.primary().IdleReason();
        for (const auto& view : loop.state().Sources()) {
          if (view.source.value < look->facts.size()) look->facts[view.source.value].Add(view);
        }
      },
      [catalog, look, answer] {
        v1::ListSourcesResponse response;
        for (const auto& source : catalog->sources()) {
          auto* out = response.add_sources();
          out->set_source(source.id.value);
          ToWire(source.settings, out->mutable_settings());
          Fill(look->facts[source.id.value], look->idle_reason, out);
        }
        answer->Reply(response);
      });
}

}  // namespace

void AddSourceMethods(ServiceContext* context, MethodTable* methods) {
  AddAdmin(methods, context, "PutSource", &PutSource);
  AddAdmin(methods, context, "ListSources", &ListSources);
}

}  // namespace forebay::server
