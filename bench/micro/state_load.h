// A shard's state that is filled with tasks and held rollouts, by commands: it hands out as much as
// it is asked for.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/hash.h"
#include "shard/state.h"

namespace forebay::shard {

inline constexpr SourceId kLoadSource{0};
inline constexpr SessionId kLoadSession{1};
inline constexpr uint32_t kLoadGroupSize = 16;

class StateLoad {
 public:
  StateLoad() {
    codec::SourceSettings settings;
    settings.name = "bench";
    settings.group_size = settings.attempts_per_task = settings.complete_at = kLoadGroupSize;
    settings.order = codec::Order::kStatic;
    settings.max_lag = 1'000'000;
    Tell(codec::SourceChanged{kLoadSource, settings});
    codec::VersionState versions;
    versions.rollouts_per_version = 1'000'000'000;
    Tell(versions);
    Run(OpenSession{kLoadSession, "bench", "", "", ""});
  }

  void AddTasks(uint64_t first, uint64_t end) {
    shard::AddTasks add{kLoadSource, {}};
    for (uint64_t i = first; i < end; ++i) {
      add.tasks.push_back({Mix64(i + 1), Mix64(i + 2), PayloadId(i + 1), 1});
    }
    Run(std::move(add));
    FOREBAY_CHECK(std::get<AddTasksReply>(effects_.replies.at(0).reply).added == end - first);
  }

  const State& state() const { return state_; }

  // Acquires `count` assignments and pushes a rollout for each; two rewards in turn, so that groups
  // stay.
  void Fill(uint32_t count) {
    Assign assign;
    assign.session = kLoadSession;
    assign.request_id = ++request_;
    assign.max = count;
    Run(assign);
    PutRollouts put{kLoadSession, {}};
    for (const Assignment& assignment :
         std::get<AssignReply>(effects_.replies.at(0).reply).assignments) {
      RolloutMeta& meta = put.rollouts.emplace_back();
      meta.lease = {assignment.attempt, assignment.token};
      meta.payload = PayloadId(++payload_);
      meta.payload_bytes = 500'000;
      meta.rewards_present = 1;
      meta.reward = assignment.number % 2;
      meta.first.tokens = 55'000;
      meta.first.prompt_tokens = 1'000;
      meta.first.loss_tokens = 54'000;
    }
    FOREBAY_CHECK(put.rollouts.size() == count);
    Run(std::move(put));
    FOREBAY_CHECK(std::get<PutRolloutsReply>(effects_.replies.at(0).reply).accepted == count);
  }

 private:
  void Tell(codec::ToShard message) { Run(FromLedger{++message_, std::move(message)}); }

  void Run(Command command) {
    effects_.Clear();
    state_.Apply(command, 1, &effects_);
    // The ledger would take what is sent to it at once.
    if (!effects_.to_ledger.empty()) {
      const uint64_t last = effects_.to_ledger.back().number;
      Effects none;
      state_.Apply(LedgerAcknowledged{last}, 0, &none);
    }
  }

  State state_{Options{ShardId(0), 1}};
  Effects effects_;
  uint64_t message_ = 0, request_ = 0, payload_ = 0;
};

}  // namespace forebay::shard
