// Dispatch of commands, sessions, tasks.
#include "shard/machine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/hash.h"
#include "shard/limits.h"
#include "shard/reply.h"

namespace forebay::shard {

Machine::Machine(const Options& options)
    : options_(options),
      curriculum_(options.run_seed),
      tables_(options.shard),
      prng_(HashCombine(options.run_seed, options.shard.value)) {}

void Machine::Apply(const Command& command, Tag tag, Effects* effects) {
  std::visit([&](const auto& c) { Run(c, tag, effects); }, command);
}

Admission Machine::admission() const {
  return {curriculum_, versions_, train_floor_, options_.mutations.expect_all};
}

HandOutQueue& Machine::QueueOf(uint32_t group) {
  const uint32_t eval = tables_.group(group).eval;
  return eval == kNone ? SourceOf(group).queue : evals_[eval].queue;
}

void Machine::FreePayload(PayloadId payload, uint64_t bytes, Effects* effects) {
  payload_bytes_ -= bytes;
  if (payload != PayloadId()) effects->dead_payloads.push_back(payload);
}

uint64_t Machine::memory_bytes() const {
  uint64_t bytes = curriculum_.memory_bytes() + tables_.memory_bytes() + sessions_.memory_bytes();
  bytes += sources_.capacity() * sizeof(SourceState) + evals_.capacity() * sizeof(EvalRun);
  bytes += put_groups_.size() * 4 * sizeof(uint64_t) + history_.memory_bytes();
  bytes += kept_.memory_bytes();
  return bytes;
}

void Machine::Run(const OpenSession& c, Tag tag, Effects* effects) {
  absl::Status status = CheckSession(c);
  const bool known = sessions_.Find(c.session) != kNone;
  if (status.ok() && sessions_.Open(c) == kNone) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("session: ", kSessionsMax, " are open, and hold leases"));
  }
  AddReply(CountReply{status, status.ok() && !known ? 1u : 0u}, tag, effects);
}

void Machine::Run(const AddTasks& c, Tag tag, Effects* effects) {
  AddTasksReply reply;
  const size_t dead = effects->dead_contents.size();
  auto count = curriculum_.AddTasks(c.source, c.tasks, &effects->dead_contents, &reply.refused);
  if (count.ok()) {
    reply.added = count->added;
    reply.known = count->known;
  } else {
    // Nobody names the contents of a refused request.
    reply.status = count.status();
    effects->dead_contents.resize(dead);
    for (const NewTask& task : c.tasks) {
      if (task.content != PayloadId()) effects->dead_contents.push_back(task.content);
    }
  }
  AddReply(std::move(reply), tag, effects);
}

void Machine::Run(const SetQuarantine& c, Tag tag, Effects* effects) {
  CountReply reply;
  if (curriculum_.source(c.source) == nullptr) {
    reply.status = absl::NotFoundError(absl::StrCat("source: ", c.source.value, " is not known"));
  } else if (c.quarantine) {
    reply.count = curriculum_.SetQuarantine(c.source, c.external_hashes, true);
    sources_[c.source.value].counters.tasks_quarantined += reply.count;
    DropQuarantined(c.source, effects);
  } else {
    if (c.all_quarantined) reply.count = curriculum_.RequeueAll(c.source);
    reply.count += curriculum_.SetQuarantine(c.source, c.external_hashes, false);
  }
  AddReply(std::move(reply), tag, effects);
}

void Machine::Run(const FromLedger& c, Tag, Effects* effects) {
  if (inbox_.Accept(c.number)) {
    std::visit([&](const auto& message) { Run(message, effects); }, c.message);
  }
  effects->acknowledge_ledger = inbox_.last();
}

void Machine::Run(const LedgerAcknowledged& c, Tag, Effects*) { outbox_.Acknowledge(c.number); }

}  // namespace forebay::shard
