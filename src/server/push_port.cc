#include "server/push_port.h"

#include <atomic>
#include <bit>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "codec/actor_messages.h"

namespace forebay::server {
namespace {

shard::PushOutcome Invalid(const char* field, std::string message) {
  return {.result = shard::PushResult::kInvalid, .field = field, .message = std::move(message)};
}

// It is not acknowledged, and can be pushed again once the shard is back.
shard::PushOutcome OfAbsent(const absl::Status& presence) {
  return {.result = shard::PushResult::kUnknown,
          .field = "attempt_id",
          .message = std::string(presence.message())};
}

// Fills in the training reward. False, with the outcome set, when a required column is missing.
bool CheckAgainstSource(const CatalogSource& source, const CatalogSnapshot& names,
                        const std::vector<codec::NumberedReward>& rewards, const PushedNames& named,
                        shard::RolloutMeta* rollout, shard::PushOutcome* outcome) {
  const uint64_t missing = source.required_bits & ~named.column_bits;
  if (missing != 0 && !rollout->partial) {
    const auto first = static_cast<uint32_t>(std::countr_zero(missing));
    *outcome =
        Invalid("columns", absl::StrCat("lacks '", std::string(names.column_name(first)),
                                        "', which source '", source.settings.name, "' requires"));
    return false;
  }
  rollout->reward = 0;
  rollout->rewards_present = 0;
  for (uint32_t i = 0; i < named.rewards.count; ++i) {
    const auto& given = rewards[named.rewards.begin + i];
    for (const auto& wanted : source.rewards) {
      if (wanted.number != given.name) continue;
      rollout->reward += wanted.weight * given.value;
      rollout->rewards_present |= static_cast<uint8_t>(1u << wanted.bit);
    }
  }
  return true;
}

}  // namespace

// A batch under way. The last shard to answer answers the stream.
struct PushPort::Job {
  PushBatch batch;
  std::shared_ptr<const CatalogSnapshot> catalog;
  // Parallel to the batch's rollouts; no outcomes yet: all went to one shard, none was refused
  // here.
  std::vector<PayloadId> payloads;
  std::vector<shard::PushOutcome> outcomes;
  std::atomic<uint32_t> shards_left{1};
  PushAnswer answer;

  // See CheckAgainstSource. An attempt that is not known goes on to the shard: it says what became
  // of it.
  bool Check(const shard::State& state, size_t i) {
    shard::RolloutMeta& rollout = batch.rollouts[i];
    const auto task = state.TaskOf(rollout.lease.attempt);
    const auto* source = task ? catalog->Find(task->source()) : nullptr;
    shard::PushOutcome outcome;
    if (source == nullptr ||
        CheckAgainstSource(*source, *catalog, batch.rewards, batch.named[i], &rollout, &outcome)) {
      return true;
    }
    outcomes.resize(payloads.size());
    outcomes[i] = std::move(outcome);
    return false;
  }

  // The command for one shard, of the rollouts named, and which of them it holds; `indexes` empty:
  // of all.
  shard::PutRollouts CommandOf(const shard::State& state, const std::vector<uint32_t>& indexes,
                               std::vector<uint32_t>* sent) {
    shard::PutRollouts command{.session = batch.session};
    std::vector<shard::RolloutMeta>& rollouts = batch.rollouts;
    const size_t count = indexes.empty() ? rollouts.size() : indexes.size();
    std::vector<bool> good(count);
    for (size_t k = 0; k < count; ++k) good[k] = Check(state, indexes.empty() ? k : indexes[k]);
    if (outcomes.empty()) {
      command.rollouts = std::move(rollouts);
      return command;
    }
    for (size_t k = 0; k < count; ++k) {
      if (!good[k]) continue;
      sent->push_back(indexes.empty() ? static_cast<uint32_t>(k) : indexes[k]);
      command.rollouts.push_back(std::move(rollouts[sent->back()]));
    }
    return command;
  }

  void Take(std::vector<shard::PushOutcome> replied, const std::vector<uint32_t>& sent) {
    if (outcomes.empty()) {
      outcomes = std::move(replied);
      return;
    }
    for (size_t k = 0; k < sent.size() && k < replied.size(); ++k) {
      outcomes[sent[k]] = std::move(replied[k]);
    }
  }
};

std::shared_ptr<const codec::NameTable> PushPort::Names() { return catalog_->Get(); }

void PushPort::Push(PushBatch batch, PushAnswer answer) {
  auto job = std::make_shared<Job>();
  // All name tables come from Names.
  job->catalog = std::static_pointer_cast<const CatalogSnapshot>(batch.names);
  job->payloads.reserve(batch.rollouts.size());
  for (const auto& rollout : batch.rollouts) job->payloads.push_back(rollout.payload);
  job->answer = std::move(answer);
  job->batch = std::move(batch);
  const auto shard = [&rollouts = job->batch.rollouts](size_t i) {
    return rollouts[i].lease.attempt.shard().value;
  };
  const size_t count = job->batch.rollouts.size();
  size_t same = 0;
  while (same < count && shard(same) == shard(0)) ++same;
  const auto presence = [&](size_t i) { return engine_->Presence(ShardId(shard(i))); };
  if (same == count && count > 0 && shard(0) < engine_->shards() && presence(0).ok()) {
    return PushTo(ShardId(shard(0)), std::move(job), {});
  }
  job->outcomes.resize(count);
  std::vector<std::vector<uint32_t>> by_shard(engine_->shards());
  uint32_t parts = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (shard(i) >= by_shard.size()) {
      job->outcomes[i] = {
          .result = shard::PushResult::kUnknown,
          .field = "attempt_id",
          .message = absl::StrCat("names shard ", shard(i), " of ", by_shard.size())};
      continue;
    }
    if (const absl::Status present = presence(i); !present.ok()) {
      job->outcomes[i] = OfAbsent(present);
      continue;
    }
    if (by_shard[shard(i)].empty()) ++parts;
    by_shard[shard(i)].push_back(i);
  }
  if (parts == 0) return Answer(job.get());
  job->shards_left = parts;
  for (uint32_t s = 0; s < by_shard.size(); ++s) {
    if (!by_shard[s].empty()) {
      PushTo(ShardId(static_cast<uint8_t>(s)), job, std::move(by_shard[s]));
    }
  }
}

void PushPort::Answer(Job* job) {
  std::vector<PayloadId> refused;
  for (size_t i = 0; i < job->outcomes.size(); ++i) {
    if (job->outcomes[i].result == shard::PushResult::kAccepted) continue;
    if (job->payloads[i].value != 0) refused.push_back(job->payloads[i]);
  }
  if (!refused.empty()) storage_->payloads()->Free(refused);
  metrics_->Pushed(job->outcomes);
  job->answer(std::move(job->outcomes));
}

void PushPort::PushTo(ShardId shard, std::shared_ptr<Job> job, std::vector<uint32_t> indexes) {
  auto sent = std::make_shared<std::vector<uint32_t>>();
  auto make = [job, sent, indexes = std::move(indexes)](const shard::State& state) {
    return shard::Command(job->CommandOf(state, indexes, sent.get()));
  };
  auto done = [this, job, sent](shard::PutRolloutsReply&& reply) {
    job->Take(std::move(reply.outcomes), *sent);
    if (job->shards_left.fetch_sub(1) == 1) Answer(job.get());
  };
  engine_->AskWith<shard::PutRolloutsReply>(shard, std::move(make), std::move(done));
}

void PushPort::PushGroup(PushBatch batch, PushGroupRequest group, PushAnswer answer) {
  std::vector<PayloadId> payloads;
  for (const auto& rollout : batch.rollouts) payloads.push_back(rollout.payload);
  const size_t count = batch.rollouts.size();
  const auto catalog = std::static_pointer_cast<const CatalogSnapshot>(batch.names);
  const auto* source = catalog->Find(group.source);
  if (source == nullptr) {
    return RefuseAll(payloads,
                     Invalid("group.source", absl::StrCat("'", group.source, "' is not a source")),
                     answer);
  }
  const ShardId shard = engine_->ShardOf(Hash64(group.external_id));
  if (const absl::Status& presence = engine_->Presence(shard); !presence.ok())
    return RefuseAll(payloads, OfAbsent(presence), answer);
  shard::PutGroup command{.request_id = group.request_id, .source = source->id};
  for (size_t i = 0; i < count; ++i) {
    shard::PushOutcome outcome;
    if (!CheckAgainstSource(*source, *catalog, batch.rewards, batch.named[i], &batch.rollouts[i],
                            &outcome)) {
      std::vector<shard::PushOutcome> outcomes(
          count, Invalid("group", absl::StrCat("rollouts[", i, "] is refused")));
      outcomes[i] = std::move(outcome);
      return Refuse(payloads, std::move(outcomes), answer);
    }
  }
  command.rollouts = std::move(batch.rollouts);
  std::string content;
  codec::AppendTaskContent(group.external_id, group.payload, "", &content);
  command.task = {.external_hash = Hash64(group.external_id),
                  .content_hash = TaskContentHash(group.payload, "")};
  // A task never goes: the content of a known one need not be stored again.
  engine_->OnShard(
      shard, [this, command = std::move(command), content = std::move(content), payloads,
              answer = std::move(answer)](node::ShardLoop& loop, uint64_t) mutable {
        const bool known = loop.state().KnowsTask(command.source, command.task.external_hash);
        if (known) {
          return PutGroup(std::move(command), std::move(payloads), std::move(answer));
        }
        StoreTask(std::move(content), std::move(command), std::move(payloads), std::move(answer));
      });
}

void PushPort::StoreTask(std::string content, shard::PutGroup command,
                         std::vector<PayloadId> payloads, PushAnswer answer) {
  storage_->AddContents(
      {std::move(content)}, RunStorage::WhenFull::kWait,
      [this, command = std::move(command), payloads = std::move(payloads),
       answer = std::move(answer)](absl::StatusOr<std::vector<PayloadId>> ids) mutable {
        // Another node leads, or the log has failed: the process ends, and the push with it, which
        // is made again.
        if (absl::IsUnavailable(ids.status())) return;
        if (!ids.ok()) {
          return RefuseAll(payloads, Invalid("group.payload", std::string(ids.status().message())),
                           answer);
        }
        command.task.content = (*ids)[0];
        PutGroup(std::move(command), std::move(payloads), std::move(answer));
      });
}

void PushPort::RefuseAll(const std::vector<PayloadId>& payloads, const shard::PushOutcome& outcome,
                         const PushAnswer& answer) {
  Refuse(payloads, std::vector<shard::PushOutcome>(payloads.size(), outcome), answer);
}

void PushPort::Refuse(const std::vector<PayloadId>& payloads,
                      std::vector<shard::PushOutcome> outcomes, const PushAnswer& answer) {
  storage_->payloads()->Free(payloads);
  metrics_->Pushed(outcomes);
  answer(std::move(outcomes));
}

void PushPort::PutGroup(shard::PutGroup command, std::vector<PayloadId> payloads,
                        PushAnswer answer) {
  const ShardId shard = engine_->ShardOf(command.task.external_hash);
  engine_->Ask<shard::PutRolloutsReply>(
      shard, std::move(command),
      [this, payloads = std::move(payloads),
       answer = std::move(answer)](shard::PutRolloutsReply&& reply) {
        std::vector<PayloadId> refused;
        for (size_t i = 0; i < payloads.size() && i < reply.outcomes.size(); ++i) {
          if (reply.outcomes[i].result != shard::PushResult::kAccepted) {
            refused.push_back(payloads[i]);
          }
        }
        if (!refused.empty()) storage_->payloads()->Free(refused);
        metrics_->Pushed(reply.outcomes);
        answer(std::move(reply.outcomes));
      });
}

}  // namespace forebay::server
