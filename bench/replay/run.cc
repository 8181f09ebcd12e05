#include "bench/replay/run.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/hash.h"
#include "bench/replay/engine.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/node.h"
#include "tests/simulation/options.h"
#include "tests/simulation/stats.h"

namespace forebay::bench {
namespace {

using ledger::StepState;

constexpr uint64_t kMaintainMs = 1'000;
constexpr uint64_t kLookMs = 100;  // of the trainer, whether its step is there
constexpr uint64_t kPatienceMs = 86'400'000;
constexpr uint64_t kLeaseMs = 7 * 86'400'000ull;
constexpr uint32_t kTasks = 5'000;  // in epochs; more only make the state larger
constexpr uint32_t kTasksAtOnce = 1'000;
constexpr uint32_t kRanks = 8;
constexpr ShardId kShard(0);

double Seconds(uint64_t ms) { return static_cast<double>(ms) * 1e-3; }

simulation::HistoryOptions NodeOptions(const Workload& workload, Policy policy) {
  simulation::HistoryOptions options;
  options.seed = workload.seed;
  options.delay_ms_max = 1;
  options.mutations.expect_all = policy == Policy::kPlain;
  return options;
}

codec::SourceSettings SourceOf(const Workload& workload) {
  codec::SourceSettings source;
  source.name = "replay";
  source.group_size = source.attempts_per_task = source.complete_at = workload.group_size;
  source.keep_equal_rewards = !workload.filter;
  source.max_lag = workload.max_lag;
  source.lease_min_ms = source.lease_max_ms = kLeaseMs;
  return source;
}

class Run {
 public:
  Run(const Workload& workload, Policy policy, uint64_t steps)
      : workload_(workload),
        steps_(steps),
        options_(NodeOptions(workload, policy)),
        dice_(workload.seed),
        node_(
            options_, &queue_, &dice_, &stats_, &observer_,
            [this](const char* invariant, const std::string& what) {
              wrong_ = absl::StrCat(invariant, ": ", what);
            },
            [this](const ledger::Announcement& announcement) {
              if (announcement.phase != ledger::VersionPhase::kPublished) return;
              for (auto& engine : engines_) engine->Load(announcement.version);
            }) {}

  absl::Status Go() {
    node_.AskLedger<ledger::PutSourceReply>(ledger::PutSource{SourceOf(workload_)},
                                            [this](const ledger::PutSourceReply& reply) {
                                              FOREBAY_CHECK(reply.status.ok());
                                              source_ = reply.source;
                                              AddTasks(0);
                                            });
    Maintain();
    while (rows_.size() < steps_ && wrong_.empty()) {
      if (queue_.now_ms() > last_ms_ + kPatienceMs) {
        return absl::DeadlineExceededError(
            absl::StrCat("step ", step_.value, " did not come within a day"));
      }
      queue_.RunNext();
    }
    return wrong_.empty() ? absl::OkStatus() : absl::InternalError(wrong_);
  }

  const std::vector<StepRow>& rows() const { return rows_; }
  shard::SourceView Source() const { return node_.shard(kShard).Sources().front(); }

 private:
  void Maintain() {
    node_.Maintain();
    queue_.After(kMaintainMs, [this] { Maintain(); });
  }

  void AddTasks(uint32_t first) {
    if (first == kTasks) return Start();
    shard::AddTasks tasks{.source = source_};
    for (uint32_t i = first; i < std::min(first + kTasksAtOnce, kTasks); ++i) {
      tasks.tasks.push_back({HashCombine(1, i), HashCombine(2, i), PayloadId(), 1});
    }
    node_.AddTasks(kShard, tasks, [this, first](const shard::AddTasksReply& reply) {
      // The shard may not have heard of the source yet.
      const bool added = reply.status.ok();
      queue_.After(1, [this, first, added] { AddTasks(added ? first + kTasksAtOnce : first); });
    });
  }

  void Start() {
    last_ms_ = begin_ms_ = queue_.now_ms();
    for (uint32_t i = 0; i < workload_.engines; ++i) {
      engines_.push_back(std::make_unique<Engine>(workload_, i, &queue_, &node_,
                                                  [this] { return uint64_t{rows_.size()}; }));
      engines_.back()->Start();
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const ledger::AttachTrainer attach{absl::StrCat("rank", rank), rank + 1, Mesh(), rank, 0, {}};
      node_.AskLedger<ledger::AttachReply>(attach, [this](const ledger::AttachReply& reply) {
        FOREBAY_CHECK(reply.status.ok());
        generation_ = reply.generation;
        step_ = reply.next_step;
        if (++attached_ == kRanks) Open();
      });
    }
  }

  static ledger::Mesh Mesh() { return {.dp = kRanks}; }

  void Open() {
    row_ = {.step = step_.value, .begin_s = Seconds(queue_.now_ms() - begin_ms_)};
    opened_ms_ = queue_.now_ms();
    ledger::StepSpec spec;
    spec.groups = workload_.rollouts / workload_.group_size;
    spec.mesh = Mesh();
    spec.token_budget = workload_.context_tokens;
    node_.AskLedger<ledger::StatusReply>(ledger::OpenStep{generation_, step_, spec, false},
                                         [this](const ledger::StatusReply& reply) {
                                           FOREBAY_CHECK(reply.status.ok());
                                           Look();
                                         });
  }

  void Look() {
    const ledger::Step* step = node_.ledger().step(step_);
    FOREBAY_CHECK(step != nullptr);
    if (step->state != StepState::kSealed) return queue_.After(kLookMs, [this] { Look(); });
    row_.waiting_s = Seconds(queue_.now_ms() - opened_ms_);
    uint64_t tokens = 0, lag = 0;
    for (const auto& sequence : step->sequences) tokens += sequence.tokens;
    for (const auto& rollout : step->rollouts) lag += rollout.lag;
    const auto count = static_cast<double>(step->rollouts.size());
    row_.mean_tokens = static_cast<double>(tokens) / count;
    row_.mean_lag = static_cast<double>(lag) / count;
    row_.training_s = TrainSeconds(workload_, step->rollouts.size(), tokens);
    queue_.After(static_cast<uint64_t>(row_.training_s * 1e3),
                 [this, revision = step->revision] { Commit(revision); });
  }

  void Commit(Revision revision) {
    node_.AskLedger<ledger::CommitReply>(
        ledger::CommitStep{generation_, step_, revision}, [this](const ledger::CommitReply& reply) {
          FOREBAY_CHECK(reply.status.ok());
          row_.sync_s = workload_.sync_s;
          queue_.After(static_cast<uint64_t>(workload_.sync_s * 1e3),
                       [this, version = reply.next_version] { Publish(version); });
        });
  }

  void Publish(PolicyVersion version) {
    ledger::PublishVersion publish{generation_, {}};
    publish.announcement.version = version;
    publish.announcement.where = absl::StrCat("weights/", version.number);
    node_.AskLedger<ledger::StatusReply>(publish, [this](const ledger::StatusReply& reply) {
      FOREBAY_CHECK(reply.status.ok());
      EndRow();
      step_ = StepId(step_.value + 1);
      Open();
    });
  }

  void EndRow() {
    double idle = 0, attempts = 0;
    for (const auto& engine : engines_) {
      idle += engine->idle_ms();
      attempts += engine->attempt_ms();
    }
    const auto passed = static_cast<double>(queue_.now_ms() - last_ms_);
    row_.engines_idle = (idle - idle_ms_) / (passed * workload_.engines);
    row_.in_flight = (attempts - attempt_ms_) / passed;
    idle_ms_ = idle;
    attempt_ms_ = attempts;
    last_ms_ = queue_.now_ms();
    const shard::SourceCounters& counters = *Source().counters;
    const uint64_t refused = counters.late + counters.stale;
    const uint64_t filtered =
        counters.dropped[static_cast<size_t>(shard::DropReason::kFilteredEqual)];
    const uint64_t dropped =
        std::accumulate(counters.dropped.begin(), counters.dropped.end(), uint64_t{0});
    row_.came_in = counters.accepted + refused;
    row_.filtered = filtered;
    row_.discarded = refused + dropped - filtered;
    rows_.push_back(row_);
  }

  const Workload workload_;
  const uint64_t steps_;
  const simulation::HistoryOptions options_;
  simulation::EventQueue queue_;
  simulation::Dice dice_;
  simulation::Stats stats_;
  simulation::Observer observer_;
  simulation::Node node_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::string wrong_;
  SourceId source_;
  uint32_t attached_ = 0;
  Generation generation_;
  StepId step_;
  uint64_t begin_ms_ = 0, opened_ms_ = 0, last_ms_ = 0;
  double idle_ms_ = 0, attempt_ms_ = 0;
  StepRow row_;
  std::vector<StepRow> rows_;
};

}  // namespace

const char* Name(Policy policy) {
  switch (policy) {
    case Policy::kPlain:
      return "plain";
    case Policy::kSurvival:
      return "survival";
  }
  return "?";
}

absl::StatusOr<RunResult> Replay(const Workload& workload, Policy policy, uint64_t steps,
                                 uint64_t warm_up) {
  if (steps <= warm_up || workload.engines == 0 || workload.group_size < 2 ||
      workload.rollouts < workload.group_size) {
    return absl::InvalidArgumentError(
        "a replay has more steps than its warm-up, engines, groups of at least 2, and at least one "
        "of them a step");
  }
  Run run(workload, policy, steps);
  if (absl::Status status = run.Go(); !status.ok()) return status;
  RunResult result{.rows = run.rows()};
  double waiting = 0, time = 0;
  for (size_t i = warm_up; i < result.rows.size(); ++i) {
    const StepRow& row = result.rows[i];
    const double seconds = row.waiting_s + row.training_s + row.sync_s;
    waiting += row.waiting_s;
    time += seconds;
    result.engines_idle += row.engines_idle * seconds;
    result.mean_lag += row.mean_lag / static_cast<double>(steps - warm_up);
  }
  result.waiting_share = waiting / time;
  result.step_s = time / static_cast<double>(steps - warm_up);
  result.engines_idle /= time;
  const StepRow& last = result.rows.back();
  const StepRow before = warm_up > 0 ? result.rows[warm_up - 1] : StepRow{};
  const auto came_in = static_cast<double>(last.came_in - before.came_in);
  result.discarded = static_cast<double>(last.discarded - before.discarded) / came_in;
  result.filtered = static_cast<double>(last.filtered - before.filtered) / came_in;
  const shard::SourceView source = run.Source();
  result.survival = source.survival;
  result.mean_tokens_dispatched = source.mean_tokens_dispatched;
  result.mean_tokens_trained = source.mean_tokens_trained;
  const shard::SourceCounters& counters = *source.counters;
  if (counters.late > 0) result.not_trained["refused: late"] = counters.late;
  if (counters.stale > 0) result.not_trained["refused: stale"] = counters.stale;
  for (size_t i = 0; i < shard::kDropReasons; ++i) {
    if (counters.dropped[i] == 0) continue;
    result.not_trained[shard::Name(static_cast<shard::DropReason>(i))] = counters.dropped[i];
  }
  return result;
}

}  // namespace forebay::bench
