// AdminService: lists of actors, engines and trainers, and of steps.
#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/observation.h"
#include "server/page.h"
#include "server/policy_messages.h"
#include "server/step_messages.h"

namespace forebay::server {
namespace {

constexpr uint32_t kStepsDefault = 20;
constexpr uint32_t kStepsMax = 1'000;

void UsageToWire(const ClientUsage& usage, v1::ClientUsage* out) {
  out->set_cpu_ms(usage.cpu_ms);
  out->set_resident_bytes(usage.resident_bytes);
  out->set_pushed_bytes(usage.pushed_bytes);
  out->set_fetched_bytes(usage.fetched_bytes);
  out->set_library_cpu_ms(usage.library_cpu_ms);
  out->set_host_load(usage.host_load);
}

uint64_t Ago(uint64_t now_ms, uint64_t then_ms) { return now_ms > then_ms ? now_ms - then_ms : 0; }

// By session; the shards each know every session.
using Actors = std::map<uint64_t, v1::ActorState>;

void Add(const shard::SessionView& view, uint64_t last_seen_ms, uint64_t now_ms, Actors* actors) {
  auto [entry, added] = actors->try_emplace(view.session.value);
  v1::ActorState& out = entry->second;
  if (added) {
    out.set_session(view.session.value);
    out.set_actor(*view.actor);
    out.set_engine(*view.engine);
    out.set_site(*view.site);
    out.set_client(*view.client);
    out.set_last_seen_ms_ago(UINT64_MAX);
    ToWire(view.version, out.mutable_version());
  } else if (FromWire(out.version()) < view.version) {
    ToWire(view.version, out.mutable_version());
  }
  out.set_leases(out.leases() + view.leases);
  out.set_pushed(out.pushed() + view.pushed);
  out.set_failed(out.failed() + view.failed);
  if (last_seen_ms != 0) {
    out.set_last_seen_ms_ago(std::min<uint64_t>(out.last_seen_ms_ago(), Ago(now_ms, last_seen_ms)));
  }
}

// Page tokens are sessions: the page goes on with the next larger one.
void AnswerActors(ServiceContext* context, Actors actors, uint32_t size, uint64_t after,
                  TypedResponder<v1::ListActorsResponse>* responder) {
  const uint64_t now = node::Engine::NowMs();
  v1::ListActorsResponse response;
  for (auto at = actors.upper_bound(after); at != actors.end(); ++at) {
    if (static_cast<uint32_t>(response.actors_size()) == size) {
      response.set_page_token(
          PageToken({0, response.actors(response.actors_size() - 1).session()}));
      break;
    }
    auto& state = at->second;
    const auto client = context->clients->Find(ClientTable::SessionKey(SessionId(at->first)));
    if (client) {
      state.set_last_seen_ms_ago(
          std::min<uint64_t>(state.last_seen_ms_ago(), Ago(now, client->last_seen_ms)));
      if (client->usage) UsageToWire(*client->usage, state.mutable_usage());
    }
    *response.add_actors() = std::move(state);
  }
  responder->Reply(response);
}

void ListActors(ServiceContext* context, v1::ListActorsRequest request,
                TypedResponder<v1::ListActorsResponse> responder) {
  const auto size = PageSize(request.page_size());
  const auto place = ParsePageToken(request.page_token(), 1);
  for (const auto& status : {size.status(), place.status()}) {
    if (!status.ok()) return responder.Fail(status);
  }
  auto answer = std::make_shared<TypedResponder<v1::ListActorsResponse>>(std::move(responder));
  auto actors = std::make_shared<Actors>();
  ForEachShard(
      context->engine,
      [actors](node::ShardLoop& loop, uint64_t now_ms) {
        for (const auto& view : loop.state().Sessions()) {
          Add(view, loop.primary().LastSeen(view.session), now_ms, actors.get());
        }
      },
      [context, actors, size = *size, after = place->place, answer] {
        AnswerActors(context, std::move(*actors), size, after, answer.get());
      });
}

void ListEngines(ServiceContext* context, v1::ListEnginesRequest,
                 TypedResponder<v1::ListEnginesResponse> responder) {
  auto answer = std::make_shared<TypedResponder<v1::ListEnginesResponse>>(std::move(responder));
  context->engine->OnLedger([context, answer](node::LedgerLoop& loop, uint64_t now_ms) {
    v1::ListEnginesResponse response;
    for (const auto& [name, adoption] : loop.state().adoptions()) {
      auto* out = response.add_engines();
      out->set_engine(name);
      ToWire(adoption.version, out->mutable_version());
      out->set_behind(VersionsBehind(loop.state(), adoption.version));
      out->set_pending_to_loaded_ms(adoption.pending_to_loaded_ms);
      out->set_pause_ms(adoption.pause_ms);
      if (const auto client = context->clients->Find(ClientTable::EngineKey(name))) {
        out->set_last_report_ms_ago(Ago(now_ms, client->last_seen_ms));
        if (client->usage) UsageToWire(*client->usage, out->mutable_usage());
      }
    }
    answer->Reply(response);
  });
}

void ListTrainers(ServiceContext* context, v1::ListTrainersRequest,
                  TypedResponder<v1::ListTrainersResponse> responder) {
  auto answer = std::make_shared<TypedResponder<v1::ListTrainersResponse>>(std::move(responder));
  context->engine->OnLedger([context, answer](node::LedgerLoop& loop, uint64_t now_ms) {
    v1::ListTrainersResponse response;
    response.set_generation(loop.state().generation().value);
    for (const auto& place : loop.state().places()) {
      auto* out = response.add_trainers();
      out->set_trainer(place.trainer);
      out->set_generation(loop.state().generation().value);
      out->set_dp_rank(place.dp_rank);
      out->set_peer(place.peer);
      const auto client =
          context->clients->Find(ClientTable::TrainerKey(place.dp_rank, place.peer));
      const auto rank = context->clients->Find(ClientTable::RankKey(place.dp_rank));
      uint64_t seen = client ? client->last_seen_ms : 0;
      if (rank) seen = std::max(seen, rank->last_seen_ms);
      if (seen != 0) out->set_last_seen_ms_ago(Ago(now_ms, seen));
      if (rank && rank->usage) out->set_fetched_bytes(rank->usage->fetched_bytes);
    }
    answer->Reply(response);
  });
}

void Fill(node::LedgerLoop& loop, const ledger::Step& step, uint64_t now_ms, v1::StepSummary* out) {
  out->set_step(step.step.value);
  out->set_state(ToWire(step.state));
  out->set_revision(step.revision.value);
  ToWire(step.train_version, out->mutable_train_version());
  ToWire(step.totals, out->mutable_totals());
  out->set_waited_ms(loop.primary().WaitedMs(step.step, now_ms));
  out->set_waiting(loop.primary().Waiting(step.step, now_ms));
  out->set_plan_hash(step.plan_hash);
  out->set_reward_mean(step.reward_mean);
  for (const uint64_t count : step.rollouts_by_lag) out->add_rollouts_by_lag(count);
  out->set_groups_wanted(step.spec.groups);
  out->set_groups_reserved(static_cast<uint32_t>(step.totals.groups));
  if (step.retained) out->set_retained_bytes(step.payload_bytes);
  out->set_served_again(step.served_again);
  ToWire(step.next_version, out->mutable_next_version());
}

void ListSteps(ServiceContext* context, v1::ListStepsRequest request,
               TypedResponder<v1::ListStepsResponse> responder) {
  if (request.count() > kStepsMax) {
    return responder.Fail(absl::InvalidArgumentError(
        absl::StrCat("count: is ", request.count(), "; the limit is ", kStepsMax)));
  }
  const size_t count = request.count() == 0 ? kStepsDefault : request.count();
  auto answer = std::make_shared<TypedResponder<v1::ListStepsResponse>>(std::move(responder));
  context->engine->OnLedger([count, answer](node::LedgerLoop& loop, uint64_t now_ms) {
    v1::ListStepsResponse response;
    for (const auto* step : loop.state().StepsNewestFirst()) {
      if (static_cast<size_t>(response.steps_size()) == count) break;
      Fill(loop, *step, now_ms, response.add_steps());
    }
    answer->Reply(response);
  });
}

}  // namespace

void AddClientMethods(ServiceContext* context, MethodTable* methods) {
  AddAdmin(methods, context, "ListActors", &ListActors);
  AddAdmin(methods, context, "ListEngines", &ListEngines);
  AddAdmin(methods, context, "ListTrainers", &ListTrainers);
  AddAdmin(methods, context, "ListSteps", &ListSteps);
}

}  // namespace forebay::server
