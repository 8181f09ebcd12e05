#include "server/leases.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sync.h"
#include "codec/actor_messages.h"
#include "forebay/v1/actor.pb.h"
#include "server/grpc/typed.h"

namespace forebay::server {
namespace {

absl::Status NoSuchShard(AttemptId attempt, uint32_t shards) {
  return absl::InvalidArgumentError(absl::StrCat("attempt_ids: ", attempt.value, " names shard ",
                                                 attempt.shard().value, "; there are ", shards));
}

// A Renew under way: each shard fills in the entries of its own leases; the last one answers.
struct RenewJob {
  explicit RenewJob(Responder r) : responder(std::move(r)) {}
  codec::RenewRequest request;
  std::vector<shard::LeaseAction> actions;
  std::vector<const char*> reasons;
  std::atomic<uint32_t> lease_ms{UINT32_MAX};
  std::atomic<uint32_t> left{0};
  Responder responder;
};

v1::LeaseAction ToWire(shard::LeaseAction action) {
  switch (action) {
    case shard::LeaseAction::kContinue:
      return v1::LEASE_ACTION_CONTINUE;
    case shard::LeaseAction::kSavePartial:
      return v1::LEASE_ACTION_SAVE_PARTIAL;
    case shard::LeaseAction::kAbandon:
      return v1::LEASE_ACTION_ABANDON;
  }
  return v1::LEASE_ACTION_ABANDON;
}

void AnswerRenew(RenewJob* job) {
  v1::RenewResponse response;
  const bool all_continue =
      std::ranges::all_of(job->actions, [](auto a) { return a == shard::LeaseAction::kContinue; });
  if (!all_continue) {
    for (size_t i = 0; i < job->actions.size(); ++i) {
      response.add_actions(ToWire(job->actions[i]));
      response.add_reasons(job->reasons[i]);
    }
  }
  if (job->lease_ms != UINT32_MAX) response.set_lease_ms(job->lease_ms);
  job->responder.Reply(SerializeBody(response));
}

void RenewAt(ServiceContext* context, ShardId shard, std::vector<uint32_t> indexes,
             std::shared_ptr<RenewJob> job) {
  context->engine->OnShard(shard, [job, indexes = std::move(indexes)](node::ShardLoop& loop,
                                                                      uint64_t now_ms) {
    const auto& request = job->request;
    std::vector<shard::LeaseRef> leases;
    std::vector<uint32_t> generated;
    for (const uint32_t i : indexes) {
      leases.push_back({AttemptId(request.attempt_ids[i]), request.tokens[i]});
      if (!request.generated_tokens.empty()) generated.push_back(request.generated_tokens[i]);
    }
    const auto reply = loop.primary().Renew(now_ms, SessionId(request.session), leases, generated);
    for (size_t k = 0; k < reply.actions.size(); ++k) {
      job->actions[indexes[k]] = reply.actions[k];
      job->reasons[indexes[k]] = reply.reasons[k];
    }
    if (reply.lease_ms != 0) {
      uint32_t least = job->lease_ms;
      while (reply.lease_ms < least &&
             !job->lease_ms.compare_exchange_weak(least, reply.lease_ms)) {
      }
    }
    if (job->left.fetch_sub(1) == 1) AnswerRenew(job.get());
  });
}

absl::Status CheckRenew(const codec::RenewRequest& request, uint32_t shards) {
  const size_t count = request.attempt_ids.size();
  if (request.tokens.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: has ", request.tokens.size(), " entries, attempt_ids has ", count));
  }
  if (!request.generated_tokens.empty() && request.generated_tokens.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat("generated_tokens: has ",
                                                   request.generated_tokens.size(),
                                                   " entries, attempt_ids has ", count));
  }
  for (const uint64_t id : request.attempt_ids) {
    if (AttemptId(id).shard().value >= shards) return NoSuchShard(AttemptId(id), shards);
  }
  return absl::OkStatus();
}

void NoteUsage(ServiceContext* context, const codec::RenewRequest& request) {
  std::optional<ClientUsage> known;
  v1::ClientUsage usage;
  if (!request.usage.empty() && usage.ParseFromString(std::string(request.usage))) {
    known = {.cpu_ms = usage.cpu_ms(),
             .resident_bytes = usage.resident_bytes(),
             .pushed_bytes = usage.pushed_bytes(),
             .fetched_bytes = usage.fetched_bytes(),
             .library_cpu_ms = usage.library_cpu_ms(),
             .host_load = usage.host_load()};
  }
  context->clients->Seen(ClientTable::SessionKey(SessionId(request.session)), node::Engine::NowMs(),
                         known);
}

void Renew(ServiceContext* context, grpc::ByteBuffer body, Responder responder) {
  grpc::Slice slice;
  if (!body.TrySingleSlice(&slice).ok() && !body.DumpToSingleSlice(&slice).ok()) {
    return responder.Fail(absl::InvalidArgumentError("the request cannot be read"));
  }
  auto job = std::make_shared<RenewJob>(std::move(responder));
  const std::string_view bytes(reinterpret_cast<const char*>(slice.begin()), slice.size());
  if (!codec::DecodeRenewRequest(bytes, &job->request)) {
    return job->responder.Fail(
        absl::InvalidArgumentError("the request is no forebay.v1.RenewRequest"));
  }
  const uint32_t shards = context->engine->shards();
  if (auto status = CheckRenew(job->request, shards); !status.ok()) {
    return job->responder.Fail(status);
  }
  NoteUsage(context, job->request);
  job->request.usage = {};  // it pointed into the request's bytes
  const size_t count = job->request.attempt_ids.size();
  job->actions.assign(count, shard::LeaseAction::kContinue);
  job->reasons.assign(count, "");
  std::vector<std::vector<uint32_t>> by_shard(shards);
  for (uint32_t i = 0; i < count; ++i) {
    by_shard[AttemptId(job->request.attempt_ids[i]).shard().value].push_back(i);
  }
  // Those of a shard that is absent go on: it may come back with their leases.
  for (uint32_t s = 0; s < shards; ++s) {
    if (!context->engine->Presence(ShardId(static_cast<uint8_t>(s))).ok()) by_shard[s].clear();
  }
  std::erase_if(by_shard, [](const auto& part) { return part.empty(); });
  if (by_shard.empty()) return AnswerRenew(job.get());
  job->left = static_cast<uint32_t>(by_shard.size());
  for (auto& part : by_shard) {
    const ShardId shard = AttemptId(job->request.attempt_ids[part[0]]).shard();
    RenewAt(context, shard, std::move(part), job);
  }
}

// The entry's rewards are checked.
shard::LateReward Weigh(const v1::AttemptReward& entry, const CatalogSource& source) {
  shard::LateReward out{.attempt = AttemptId(entry.attempt_id())};
  for (const auto& [name, value] : entry.rewards()) {
    const auto& weights = source.settings.rewards;
    for (size_t bit = 0; bit < weights.size(); ++bit) {
      if (weights[bit].first != name) continue;
      out.rewards_present |= static_cast<uint8_t>(1u << bit);
      out.reward += weights[bit].second * value;
    }
  }
  return out;
}

// A SetReward under way, `results` parallel to the request.
struct RewardJob {
  explicit RewardJob(TypedResponder<v1::SetRewardResponse> r) : responder(std::move(r)) {}
  v1::SetRewardRequest request;
  std::shared_ptr<const CatalogSnapshot> catalog;
  std::vector<shard::PushResult> results;
  std::atomic<uint32_t> left{0};
  TypedResponder<v1::SetRewardResponse> responder;
};

void AnswerRewards(RewardJob* job) {
  v1::SetRewardResponse response;
  for (const auto result : job->results) {
    response.add_results(static_cast<v1::PushResult>(result));
  }
  job->responder.Reply(response);
}

void SetRewardsAt(ServiceContext* context, ShardId shard, std::vector<int> indexes,
                  std::shared_ptr<RewardJob> job) {
  auto sent = std::make_shared<std::vector<int>>();
  auto make = [job, sent, indexes = std::move(indexes)](const shard::State& state) {
    shard::SetRewards command;
    for (const int i : indexes) {
      const auto& entry = job->request.rewards(i);
      const auto task = state.TaskOf(AttemptId(entry.attempt_id()));
      const auto* source = task ? job->catalog->Find(task->source()) : nullptr;
      if (source == nullptr) continue;  // stays kUnknown
      command.rewards.push_back(Weigh(entry, *source));
      sent->push_back(i);
    }
    return shard::Command(std::move(command));
  };
  context->engine->AskWith<shard::SetRewardsReply>(
      shard, std::move(make), [job, sent](shard::SetRewardsReply&& reply) {
        for (size_t k = 0; k < sent->size() && k < reply.results.size(); ++k) {
          job->results[static_cast<size_t>((*sent)[k])] = reply.results[k];
        }
        if (job->left.fetch_sub(1) == 1) AnswerRewards(job.get());
      });
}

absl::Status CheckRewards(const v1::SetRewardRequest& request, uint32_t shards) {
  for (int i = 0; i < request.rewards_size(); ++i) {
    const AttemptId attempt(request.rewards(i).attempt_id());
    if (attempt.shard().value >= shards) return NoSuchShard(attempt, shards);
    for (const auto& [name, value] : request.rewards(i).rewards()) {
      if (std::abs(value) <= codec::kRewardMax) continue;
      return absl::InvalidArgumentError(absl::StrCat("rewards[", i, "].rewards['", name, "']: is ",
                                                     value, ", must be finite and within +-",
                                                     codec::kRewardMax));
    }
  }
  return absl::OkStatus();
}

void SetReward(ServiceContext* context, v1::SetRewardRequest request,
               TypedResponder<v1::SetRewardResponse> responder) {
  if (auto status = CheckRewards(request, context->engine->shards()); !status.ok()) {
    return responder.Fail(status);
  }
  auto job = std::make_shared<RewardJob>(std::move(responder));
  job->request = std::move(request);
  job->catalog = context->catalog->Get();
  job->results.assign(static_cast<size_t>(job->request.rewards_size()),
                      shard::PushResult::kUnknown);
  std::vector<std::vector<int>> by_shard(context->engine->shards());
  for (int i = 0; i < job->request.rewards_size(); ++i) {
    const ShardId shard = AttemptId(job->request.rewards(i).attempt_id()).shard();
    // As a push: not taken, and unknown for now.
    if (context->engine->Presence(shard).ok()) by_shard[shard.value].push_back(i);
  }
  uint32_t parts = 0;
  for (const auto& part : by_shard) parts += part.empty() ? 0 : 1;
  if (parts == 0) return AnswerRewards(job.get());
  job->left = parts;
  for (size_t s = 0; s < by_shard.size(); ++s) {
    if (by_shard[s].empty()) continue;
    SetRewardsAt(context, ShardId(static_cast<uint8_t>(s)), std::move(by_shard[s]), job);
  }
}

}  // namespace

void CountOverShards(node::Engine* engine, const std::vector<shard::LeaseRef>& leases,
                     std::function<shard::Command(std::vector<shard::LeaseRef>)> make,
                     std::function<void(absl::StatusOr<uint64_t>)> answer) {
  struct Job {
    std::atomic<uint32_t> left{0};
    Mutex mutex;
    absl::StatusOr<uint64_t> sum ABSL_GUARDED_BY(mutex) = 0;
    std::function<void(absl::StatusOr<uint64_t>)> answer;
  };
  std::vector<std::vector<shard::LeaseRef>> by_shard(engine->shards());
  for (const auto& lease : leases) {
    const auto shard = lease.attempt.shard().value;
    if (shard >= by_shard.size()) return answer(NoSuchShard(lease.attempt, engine->shards()));
    // Leases of a shard that is absent end by themselves when it is back.
    if (engine->Presence(ShardId(shard)).ok()) by_shard[shard].push_back(lease);
  }
  auto job = std::make_shared<Job>();
  job->answer = std::move(answer);
  uint32_t parts = 0;
  for (const auto& part : by_shard) parts += part.empty() ? 0 : 1;
  if (parts == 0) return job->answer(0);
  job->left = parts;
  for (size_t s = 0; s < by_shard.size(); ++s) {
    if (by_shard[s].empty()) continue;
    engine->Ask<shard::CountReply>(ShardId(static_cast<uint8_t>(s)), make(std::move(by_shard[s])),
                                   [job](shard::CountReply&& reply) {
                                     absl::StatusOr<uint64_t> sum = 0;
                                     {
                                       MutexLock lock(&job->mutex);
                                       if (!reply.status.ok()) {
                                         job->sum = reply.status;
                                       } else if (job->sum.ok()) {
                                         *job->sum += reply.count;
                                       }
                                       sum = job->sum;
                                     }
                                     if (job->left.fetch_sub(1) == 1) job->answer(std::move(sum));
                                   });
  }
}

void AddRenew(ServiceContext* context, MethodTable* methods) {
  methods->AddUnary("/forebay.v1.ActorService/Renew",
                    [context](const CallContext&, grpc::ByteBuffer body, Responder responder) {
                      Renew(context, std::move(body), std::move(responder));
                    });
}

void AddSetReward(ServiceContext* context, MethodTable* methods) {
  methods->AddUnary("/forebay.v1.ActorService/SetReward",
                    TypedUnary<v1::SetRewardRequest, v1::SetRewardResponse>(
                        [context](const CallContext&, v1::SetRewardRequest request,
                                  TypedResponder<v1::SetRewardResponse> responder) {
                          SetReward(context, std::move(request), std::move(responder));
                        }));
}

}  // namespace forebay::server
