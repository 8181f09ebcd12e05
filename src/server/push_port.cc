#include "server/push_port.h"

#include <atomic>
#include <bit>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "codec/actor_messages.h"
#include "server/stores.h"

namespace forebay::server {
namespace {

shard::PushOutcome Invalid(const char* field, std::string message) {
  return {.result = shard::PushResult::kInvalid, .field = field, .message = std::move(message)};
}

// Fills in the training reward. False, with the outcome set, when a required column is missing.
bool CheckAgainstSource(const CatalogSource& source, const CatalogSnapshot& names,
                        const std::vector<codec::NumberedReward>& rewards, PushedRollout* rollout,
                        shard::PushOutcome* outcome) {
  const uint64_t missing = source.required_bits & ~rollout->column_bits;
  if (missing != 0 && !rollout->meta.partial) {
    const auto first = static_cast<uint32_t>(std::countr_zero(missing));
    *outcome =
        Invalid("columns", absl::StrCat("lacks '", std::string(names.column_name(first)),
                                        "', which source '", source.settings.name, "' requires"));
    return false;
  }
  rollout->meta.reward = 0;
  rollout->meta.rewards_present = 0;
  for (uint32_t i = 0; i < rollout->rewards.count; ++i) {
    const auto& given = rewards[rollout->rewards.begin + i];
    for (const auto& wanted : source.rewards) {
      if (wanted.number != given.name) continue;
      rollout->meta.reward += wanted.weight * given.value;
      rollout->meta.rewards_present |= static_cast<uint8_t>(1u << wanted.bit);
    }
  }
  return true;
}

}  // namespace

// A batch under way; `outcomes` is parallel to its rollouts. The last shard to answer answers the
// stream.
struct PushPort::Job {
  PushBatch batch;
  std::shared_ptr<const CatalogSnapshot> catalog;
  std::vector<shard::PushOutcome> outcomes;
  std::atomic<uint32_t> shards_left{0};
  PushAnswer answer;
};

std::shared_ptr<const codec::NameTable> PushPort::Names() { return catalog_->Get(); }

void PushPort::Push(PushBatch batch, PushAnswer answer) {
  auto job = std::make_shared<Job>();
  // All name tables come from Names.
  job->catalog = std::static_pointer_cast<const CatalogSnapshot>(batch.names);
  job->outcomes.resize(batch.rollouts.size());
  job->answer = std::move(answer);
  std::vector<std::vector<uint32_t>> by_shard(engine_->shards());
  uint32_t parts = 0;
  for (uint32_t i = 0; i < batch.rollouts.size(); ++i) {
    const auto shard = batch.rollouts[i].meta.lease.attempt.shard().value;
    if (shard >= by_shard.size()) {
      job->outcomes[i] = {.result = shard::PushResult::kUnknown,
                          .field = "attempt_id",
                          .message = absl::StrCat("names shard ", shard, " of ", by_shard.size())};
      store_->Free({&batch.rollouts[i].meta.payload, 1});
      continue;
    }
    if (by_shard[shard].empty()) ++parts;
    by_shard[shard].push_back(i);
  }
  job->batch = std::move(batch);
  if (parts == 0) {
    metrics_->Pushed(job->outcomes);
    return job->answer(std::move(job->outcomes));
  }
  job->shards_left = parts;
  for (uint32_t s = 0; s < by_shard.size(); ++s) {
    if (!by_shard[s].empty()) {
      PushTo(ShardId(static_cast<uint8_t>(s)), job, std::move(by_shard[s]));
    }
  }
}

void PushPort::PushTo(ShardId shard, std::shared_ptr<Job> job, std::vector<uint32_t> indexes) {
  auto sent = std::make_shared<std::vector<uint32_t>>();  // indexes of what the command holds
  auto make = [job, sent, indexes = std::move(indexes)](const shard::State& state) {
    shard::PutRollouts command{.session = job->batch.session};
    command.rollouts.reserve(indexes.size());
    sent->reserve(indexes.size());
    for (const uint32_t i : indexes) {
      auto& rollout = job->batch.rollouts[i];
      // An attempt that is not known goes on to the shard: it says what became of it.
      const auto task = state.TaskOf(rollout.meta.lease.attempt);
      const auto* source = task ? job->catalog->Find(task->source()) : nullptr;
      if (source != nullptr && !CheckAgainstSource(*source, *job->catalog, job->batch.rewards,
                                                   &rollout, &job->outcomes[i])) {
        continue;
      }
      sent->push_back(i);
      command.rollouts.push_back(std::move(rollout.meta));
    }
    return shard::Command(std::move(command));
  };
  auto done = [this, job, sent](shard::PutRolloutsReply&& reply) {
    if (reply.outcomes.size() == job->outcomes.size()) {
      job->outcomes = std::move(reply.outcomes);  // one shard, and all of it went there
    } else {
      for (size_t k = 0; k < sent->size() && k < reply.outcomes.size(); ++k) {
        job->outcomes[(*sent)[k]] = std::move(reply.outcomes[k]);
      }
    }
    if (job->shards_left.fetch_sub(1) != 1) return;
    std::vector<PayloadId> refused;
    for (size_t i = 0; i < job->outcomes.size(); ++i) {
      if (job->outcomes[i].result == shard::PushResult::kAccepted) continue;
      if (const PayloadId id = job->batch.rollouts[i].meta.payload; id.value != 0) {
        refused.push_back(id);
      }
    }
    if (!refused.empty()) store_->Free(refused);
    metrics_->Pushed(job->outcomes);
    job->answer(std::move(job->outcomes));
  };
  engine_->AskWith<shard::PutRolloutsReply>(shard, std::move(make), std::move(done));
}

void PushPort::PushGroup(PushBatch batch, PushGroupRequest group, PushAnswer answer) {
  std::vector<PayloadId> payloads;
  for (const auto& rollout : batch.rollouts) payloads.push_back(rollout.meta.payload);
  const size_t count = batch.rollouts.size();
  auto refuse = [&](shard::PushOutcome outcome) {
    store_->Free(payloads);
    const std::vector<shard::PushOutcome> outcomes(count, outcome);
    metrics_->Pushed(outcomes);
    answer(outcomes);
  };
  const auto catalog = std::static_pointer_cast<const CatalogSnapshot>(batch.names);
  const auto* source = catalog->Find(group.source);
  if (source == nullptr) {
    return refuse(Invalid("group.source", absl::StrCat("'", group.source, "' is not a source")));
  }
  shard::PutGroup command{.request_id = group.request_id, .source = source->id};
  for (auto& rollout : batch.rollouts) {
    shard::PushOutcome outcome;
    if (!CheckAgainstSource(*source, *catalog, batch.rewards, &rollout, &outcome)) {
      return refuse(std::move(outcome));
    }
    command.rollouts.push_back(std::move(rollout.meta));
  }
  std::string content;
  codec::AppendTaskContent(group.external_id, group.payload, "", &content);
  const std::string_view item = content;
  PayloadId content_id;
  if (auto status = contents_->Add({&item, 1}, {&content_id, 1}); !status.ok()) {
    return refuse(Invalid("group.payload", std::string(status.message())));
  }
  command.task = {.external_hash = Hash64(group.external_id),
                  .content_hash = TaskContentHash(group.payload, ""),
                  .content = content_id};
  const ShardId shard = engine_->ShardOf(command.task.external_hash);
  engine_->Ask<shard::PutRolloutsReply>(
      shard, std::move(command),
      [this, payloads, answer = std::move(answer)](shard::PutRolloutsReply&& reply) {
        std::vector<PayloadId> refused;
        for (size_t i = 0; i < payloads.size() && i < reply.outcomes.size(); ++i) {
          if (reply.outcomes[i].result != shard::PushResult::kAccepted) {
            refused.push_back(payloads[i]);
          }
        }
        if (!refused.empty()) store_->Free(refused);
        metrics_->Pushed(reply.outcomes);
        answer(std::move(reply.outcomes));
      });
}

}  // namespace forebay::server
