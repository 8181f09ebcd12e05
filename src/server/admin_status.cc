// AdminService: status and configuration.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/live_config.h"
#include "server/log.h"
#include "server/observation.h"
#include "server/policy_messages.h"
#include "server/verdict.h"
#include "server/version.h"

namespace forebay::server {
namespace {

constexpr size_t kNoteBytesMax = 1024;

v1::Verdict VerdictToWire(VerdictKind verdict) {
  switch (verdict) {
    case VerdictKind::kOk:
      return v1::VERDICT_OK;
    case VerdictKind::kDegraded:
      return v1::VERDICT_DEGRADED;
    case VerdictKind::kUnavailable:
      return v1::VERDICT_UNAVAILABLE;
  }
  return v1::VERDICT_UNSPECIFIED;
}

void Fill(const Observation& seen, v1::GetStatusResponse* out) {
  out->set_uptime_ms(seen.uptime_ms);
  out->set_node(seen.cluster.node);
  out->set_leader_epoch(seen.cluster.epoch);
  out->set_tolerable_failures(static_cast<uint32_t>(seen.cluster.tolerable));
  if (seen.cluster.node != 0) {
    out->set_tolerated_failures(static_cast<uint32_t>(std::max(seen.cluster.tolerated, 0)));
  }
  out->set_shards(seen.shards);
  ToWire(seen.published, out->mutable_published());
  out->set_next_step(seen.next_step);
  ToWire(seen.train_version, out->mutable_train_version());
  out->set_checkpoint(seen.checkpoint);
  out->set_oldest_replay(seen.oldest_replay);
  out->set_retained_bytes(seen.retained_bytes);
  out->set_retained_bytes_max(seen.retained_bytes_max);
  out->set_kept_rollouts(seen.kept_rollouts);
  out->set_kept_bytes(seen.kept_bytes);
  out->set_kept_bytes_max(seen.kept_bytes_max);
  out->set_payload_bytes(seen.payloads.budget.used_bytes);
  out->set_payload_bytes_max(seen.payloads.budget.bytes_max);
  out->set_actors(seen.actors_live);
  out->set_resident_bytes(seen.process.resident_bytes);
  for (const auto& source : seen.sources) {
    out->set_leases(out->leases() + source.in_flight);
    out->set_groups_open(out->groups_open() + source.groups_open);
    out->set_groups_ready(out->groups_ready() + source.groups_ready);
    out->set_groups_reserved(out->groups_reserved() + source.groups_reserved);
    out->set_rollouts_held(out->rollouts_held() + source.counters.held + source.counters.reserved);
    out->set_tasks(out->tasks() + source.tasks);
    const auto damaged = static_cast<size_t>(shard::DropReason::kDamaged);
    out->set_rollouts_damaged(out->rollouts_damaged() + source.counters.dropped[damaged]);
  }
}

void GetStatus(ServiceContext* context, v1::GetStatusRequest,
               TypedResponder<v1::GetStatusResponse> responder) {
  auto answer = std::make_shared<TypedResponder<v1::GetStatusResponse>>(std::move(responder));
  Observe(context, [context, answer](std::shared_ptr<Observation> seen) {
    const auto judged = Judge(*seen, LimitsOf(context->config->Get()));
    v1::GetStatusResponse response;
    response.set_verdict(VerdictToWire(judged.verdict));
    for (const auto& reason : judged.reasons) response.add_reasons(reason);
    for (const auto& wait : judged.waits) response.add_waits(wait);
    response.set_version(kVersion);
    response.set_run(context->run);
    Fill(*seen, &response);
    answer->Reply(response);
  });
}

void GetConfig(ServiceContext* context, v1::GetConfigRequest,
               TypedResponder<v1::GetConfigResponse> responder) {
  const node::Config now = context->config->Get();
  const node::Config defaults;
  v1::GetConfigResponse response;
  for (const auto& entry : node::ConfigEntries()) {
    auto* out = response.add_entries();
    out->set_name(entry.name);
    out->set_value(node::Get(now, entry));
    out->set_default_value(node::Get(defaults, entry));
    out->set_changeable(entry.changeable);
    out->set_help(entry.help);
  }
  responder.Reply(response);
}

void SetConfig(ServiceContext* context, v1::SetConfigRequest request,
               TypedResponder<v1::SetConfigResponse> responder) {
  for (const auto& [field, text] :
       {std::pair("who", &request.who()), std::pair("why", &request.why())}) {
    if (text->size() <= kNoteBytesMax) continue;
    return responder.Fail(absl::InvalidArgumentError(
        absl::StrCat(field, ": has ", text->size(), " bytes; the limit is ", kNoteBytesMax)));
  }
  auto changes =
      context->config->Set({request.values().begin(), request.values().end()}, request.dry_run());
  if (!changes.ok()) return responder.Fail(changes.status());
  v1::SetConfigResponse response;
  for (const auto& change : *changes) {
    auto* out = response.add_changes();
    out->set_name(change.name);
    out->set_before(change.before);
    out->set_after(change.after);
    if (request.dry_run()) continue;
    Log(LogLevel::kInfo, "configuration changed",
        {{"entry", change.name},
         {"before", change.before},
         {"after", change.after},
         {"who", request.who()},
         {"why", request.why()}});
  }
  responder.Reply(response);
}

}  // namespace

void AddStatusMethods(ServiceContext* context, MethodTable* methods) {
  AddAdmin(methods, context, "GetStatus", &GetStatus);
  AddAdmin(methods, context, "GetConfig", &GetConfig);
  AddAdmin(methods, context, "SetConfig", &SetConfig);
}

}  // namespace forebay::server
