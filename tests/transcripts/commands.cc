// The commands of scripts, one function each.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "shard/machine.h"
#include "tests/transcripts/ports.h"

namespace forebay::transcripts {
namespace {

constexpr const char* kResults[] = {"",           "accepted", "duplicate", "late",
                                    "lease lost", "invalid",  "stale",     "unknown"};
constexpr const char* kActions[] = {"continue", "save a partial", "abandon"};

std::string Real(double value) { return absl::StrFormat("%.3g", value); }

codec::SourceSettings Settings(const Arguments& a) {
  codec::SourceSettings s;
  s.name = a.Word(0);
  if (a.Has("for_eval")) s.purpose = codec::Purpose::kEval;
  s.group_size = static_cast<uint32_t>(a.Number("group_size", 2));
  s.attempts_per_task = static_cast<uint32_t>(a.Number("attempts", s.group_size));
  s.complete_at = static_cast<uint32_t>(a.Number("complete_at", s.group_size));
  s.max_lag = static_cast<uint32_t>(a.Number("max_lag", 1));
  s.reward_timeout_ms = a.Number("reward_timeout_ms");
  s.max_failures = static_cast<uint32_t>(a.Number("max_failures", 3));
  s.lease_min_ms = s.lease_max_ms = a.Number("lease_ms", 10'000);
  s.order = codec::Order::kStatic;
  return s;
}

}  // namespace

void Script::Source(const Arguments& a) {
  Ask(ledger::PutSource{Settings(a)});
  const auto& reply = std::get<ledger::PutSourceReply>(ports_->ledger_replies.back());
  if (!reply.status.ok()) return;
  sources_[a.Word(0)] = reply.source;
  Say("source ", reply.source.value, reply.created ? " created" : " changed");
}

void Script::Tasks(const Arguments& a) {
  shard::AddTasks add{sources_[a.Word(0)], {}};
  for (uint64_t i = 1; i <= a.Number("count"); ++i) add.tasks.push_back({i, i, PayloadId(), 1});
  Ask(add);
  const auto& reply = std::get<shard::AddTasksReply>(ports_->replies.back().second);
  Say(reply.added, " added, ", reply.known, " known");
}

void Script::Acquire(const Arguments& a) {
  shard::Assign assign;
  assign.session = sessions_[a.Word(0)];
  assign.request_id = a.Has("again") ? requests_[a.Word(0)] : ++requests_[a.Word(0)];
  assign.max = static_cast<uint32_t>(a.Number("max", 1));
  assign.version = ports_->ledger.published().version;
  assign.version.number = static_cast<uint32_t>(a.Number("version", assign.version.number));
  ports_->replies.clear();
  ports_->shard_loop.Acquire(now_ms_, 1, assign, 0);
  ShowAssigned(std::get<shard::AssignReply>(ports_->replies.back().second));
}

void Script::ShowAssigned(const shard::AssignReply& reply) {
  if (!reply.status.ok()) return Say("refused: ", reply.status.ToString());
  for (const shard::Assignment& a : reply.assignments) {
    leases_[a.attempt.value] = {{a.attempt, a.token}, a.task.source()};
    const auto& task = *ports_->shard.curriculum().task(a.task);
    Say(attempts_.Of('a', a.attempt.value), ": group ", groups_.Of('g', a.group.value), " task ",
        task.external_hash, " attempt ", a.number, ", token ", a.token, ", version ",
        a.version.number,
        a.partial == PayloadId() ? ""
                                 : absl::StrCat(", continues ", payloads_.Of('p', a.partial.value)),
        a.eval_run == EvalRunId() ? "" : absl::StrCat(", of evaluation ", a.eval_run.value));
  }
  if (reply.reason[0] != '\0') Say("no more: ", reply.reason);
}

void Script::Push(const Arguments& a) {
  const Lease& lease = leases_[attempts_.Find(a.Word(1))];
  shard::RolloutMeta meta;
  meta.lease = lease.ref;
  meta.lease.token = static_cast<uint32_t>(a.Number("token", lease.ref.token));
  meta.partial = a.Has("partial");
  if (a.Has("truncated")) meta.status = shard::RolloutStatus::kTruncated;
  if (a.Has("aborted")) meta.status = shard::RolloutStatus::kAborted;
  const std::string reward = a.Text("reward");
  meta.rewards_present = reward.empty() ? 0 : 1;
  meta.reward = reward == "nan" ? std::nan("") : a.Real("reward");
  meta.first.tokens = static_cast<uint32_t>(a.Number("tokens", 20));
  meta.first.prompt_tokens = static_cast<uint32_t>(a.Number("prompt", 5));
  meta.first.loss_tokens =
      meta.first.tokens - std::min(meta.first.tokens, meta.first.prompt_tokens);
  if (!a.Text("version").empty()) {
    meta.first.versions = {
        {0,
         {static_cast<uint32_t>(a.Number("branch")), static_cast<uint32_t>(a.Number("version"))},
         meta.first.loss_tokens}};
  }
  meta.payload = PayloadId(++last_payload_);
  meta.payload_bytes = meta.first.tokens * 10;
  const std::string payload = payloads_.Of('p', meta.payload.value);
  Ask(shard::PutRollouts{sessions_[a.Word(0)], {meta}});
  const auto& outcome =
      std::get<shard::PutRolloutsReply>(ports_->replies.back().second).outcomes[0];
  Say(payload, ": ", kResults[static_cast<int>(outcome.result)],
      outcome.field[0] == '\0' ? "" : absl::StrCat(" ", outcome.field),
      outcome.message.empty() ? "" : absl::StrCat(": ", outcome.message));
}

void Script::Renew(const Arguments& a) {
  const Lease& lease = leases_[attempts_.Find(a.Word(1))];
  shard::LeaseRef ref = lease.ref;
  ref.token = static_cast<uint32_t>(a.Number("token", ref.token));
  const auto reply =
      ports_->shard_loop.primary().Renew(now_ms_, sessions_[a.Word(0)], {&ref, 1}, {});
  if (reply.actions.empty()) return Say("continue, ", reply.lease_ms, " ms");
  Say(kActions[static_cast<int>(reply.actions[0])], ": ", reply.reasons[0]);
}

void Script::GiveBack(const Arguments& a) {
  const shard::LeaseRef ref = leases_[attempts_.Find(a.Word(1))].ref;
  if (a.command() == "fail") {
    Ask(shard::Fail{sessions_[a.Word(0)], {ref}, "it broke"});
  } else {
    Ask(shard::Release{sessions_[a.Word(0)], {ref}});
  }
  Say(std::get<shard::CountReply>(ports_->replies.back().second).count, " leases ended");
}

void Script::Reward(const Arguments& a) {
  const shard::LateReward reward{leases_[attempts_.Find(a.Word(0))].ref.attempt, 1,
                                 a.Real("value")};
  Ask(shard::SetRewards{{reward}});
  const auto& reply = std::get<shard::SetRewardsReply>(ports_->replies.back().second);
  Say(kResults[static_cast<int>(reply.results[0])]);
}

void Script::Attach(const Arguments& a) {
  Trainer& trainer = trainers_[a.Word(0)];
  if (trainer.process == 0) trainer.process = trainers_.size();
  trainer.mesh.dp = static_cast<uint32_t>(a.Number("dp", 1));
  Ask(ledger::AttachTrainer{
      a.Word(0), trainer.process, trainer.mesh, static_cast<uint32_t>(a.Number("rank")), 0, {}});
  const auto& reply = std::get<ledger::AttachReply>(ports_->ledger_replies.back());
  if (!reply.status.ok()) return;
  trainer.generation = reply.generation;
  Say("generation ", reply.generation.value, ", next step ", reply.next_step.value, ", version ",
      reply.train_version.number);
}

void Script::Open(const Arguments& a) {
  const Trainer& trainer = trainers_[a.Word(0)];
  ledger::OpenStep open{trainer.generation, StepId(a.Number("step")), {}, a.Has("replan")};
  open.spec.groups = static_cast<uint32_t>(a.Number("groups", 1));
  open.spec.mesh = trainer.mesh;
  open.spec.token_budget = a.Number("budget", 100);
  open.spec.mini_batches = static_cast<uint32_t>(a.Number("mini_batches", 1));
  open.spec.custom_advantages = a.Has("custom_advantages");
  Ask(open);
}

void Script::Fetch(const Arguments& a) {
  const StepId step(a.Number("step"));
  const ledger::Step* held = ports_->ledger.step(step);
  const Revision revision(
      static_cast<uint32_t>(a.Number("revision", held == nullptr ? 0 : held->revision.value)));
  const absl::Status current = ports_->ledger.CheckGeneration(trainers_[a.Word(0)].generation);
  if (!current.ok()) return Say("refused: ", current.ToString());
  const auto view = ports_->ledger.ViewMicroBatch(
      step, revision,
      {static_cast<uint32_t>(a.Number("rank")), static_cast<uint32_t>(a.Number("mini")),
       static_cast<uint32_t>(a.Number("micro"))});
  if (!view.ok()) return Say("refused: ", view.status().ToString());
  if (view->slots.empty()) Say("a filler");
  for (const ledger::Slot& slot : view->slots) {
    Say(rollouts_.Of('r', slot.rollout.value), " of ", groups_.Of('g', slot.group.value), ": ",
        payloads_.Of('p', slot.payload.value), ", ", slot.tokens, " tokens, reward ",
        Real(slot.reward), ", advantage ", Real(slot.advantage), ", lag ", slot.lag);
  }
}

void Script::Commit(const Arguments& a) {
  const StepId step(a.Number("step"));
  const ledger::Step* held = ports_->ledger.step(step);
  const Revision revision(
      static_cast<uint32_t>(a.Number("revision", held == nullptr ? 0 : held->revision.value)));
  Ask(ledger::CommitStep{trainers_[a.Word(0)].generation, step, revision});
  const auto& reply = std::get<ledger::CommitReply>(ports_->ledger_replies.back());
  if (reply.status.ok())
    Say(reply.already_committed ? "was committed already" : "committed", ", version ",
        reply.next_version.number);
}

void Script::Publish(const Arguments& a) {
  ledger::PublishVersion publish;
  publish.generation = trainers_[a.Word(0)].generation;
  publish.announcement.version = {static_cast<uint32_t>(a.Number("branch")),
                                  static_cast<uint32_t>(a.Number("version"))};
  publish.announcement.phase =
      a.Has("pending") ? ledger::VersionPhase::kPending : ledger::VersionPhase::kPublished;
  publish.announcement.where = absl::StrCat("weights/", a.Number("version"));
  Ask(publish);
}

void Script::GoBack(const Arguments& a) {
  const Generation generation = trainers_[a.Word(0)].generation;
  const StepId step(a.Number("step"));
  if (a.command() == "checkpoint") {
    Ask(ledger::CheckpointStep{generation, step});
    const auto& reply = std::get<ledger::CheckpointReply>(ports_->ledger_replies.back());
    if (reply.status.ok()) Say("the checkpoint covers step ", reply.checkpoint.value);
    return;
  }
  Ask(ledger::Rewind{a.Number("request"), generation, step, a.Has("replay"), a.Text("reason")});
  const auto& reply = std::get<ledger::RewindReply>(ports_->ledger_replies.back());
  if (!reply.status.ok()) return;
  Say("next step ", reply.next_step.value, " on version ", reply.train_version.branch, "/",
      reply.train_version.number, ", ", reply.taken_back, " steps taken back, ", reply.served_again,
      " served again");
}

void Script::StartEval(const Arguments& a) {
  shard::StartEval start;
  start.run = EvalRunId(a.Number("run"));
  start.source = sources_[a.Word(0)];
  start.version = {0, static_cast<uint32_t>(a.Number("version"))};
  start.attempts = static_cast<uint32_t>(a.Number("attempts", 1));
  Ask(start);
  const auto& reply = std::get<shard::CountReply>(ports_->replies.back().second);
  Say(reply.status.ok() ? "started" : reply.status.ToString());
}

void Script::ShowEval(const Arguments& a) {
  const auto view = ports_->shard.Eval(EvalRunId(a.Number("run")));
  if (!view) return Say("no such run");
  const double tasks = static_cast<double>(std::max<uint64_t>(view->tasks_done, 1));
  Say("version ", view->version.number, ": ", view->tasks_done, " of ", view->tasks,
      " tasks done, ", view->rollouts, " rollouts, ", view->failed, " failed, mean ",
      Real(view->mean_sum / tasks));
  for (size_t i = 0; i < view->pass_sums.size(); ++i)
    Say("  pass@", 1 << i, " ", Real(view->pass_sums[i] / tasks));
}

void Script::ShowCounters(const Arguments& a) {
  for (const shard::SourceView& view : ports_->shard.Sources()) {
    if (view.source != sources_[a.Word(0)]) continue;
    const shard::SourceCounters& c = *view.counters;
    Say("accepted ", c.accepted, " = held ", c.held, " + reserved ", c.reserved, " + trained ",
        c.trained, " + evaluated ", c.evaluated, " + dropped");
    for (size_t i = 0; i < shard::kDropReasons; ++i) {
      if (c.dropped[i] > 0)
        Say("  ", c.dropped[i], " ", shard::Name(static_cast<shard::DropReason>(i)));
    }
    Say("groups: ", view.groups_open, " open, ", view.groups_ready, " ready, ",
        view.groups_reserved, " reserved, ", c.groups_filtered, " filtered, ", c.groups_trained,
        " trained; attempts: ", view.in_flight, " out, ", c.expired, " expired, ", c.late,
        " late, ", c.stale, " stale");
  }
}

}  // namespace forebay::transcripts
