// plan-step: the ledger makes a step of 100,000 rollouts, from the shards' first report to the
// sealed plan, beside Karmarkar-Karp on the same costs.
//
//   plan-step [--rollouts N] [--ranks N] [--token_budget N]
//
// Prints one line of JSON. For each kind of lengths and each number of shards: CPU seconds of the
// longest Apply (that which seals) and of all, how well the micro-batches are filled, and the
// heaviest rank over the mean.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <numbers>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "batch/cost.h"
#include "batch/pack.h"
#include "bench/micro/karmarkar_karp.h"
#include "codec/archive.h"
#include "ledger/state.h"

ABSL_FLAG(uint32_t, rollouts, 100'000, "of the step, in groups of 16, one sequence each");
ABSL_FLAG(uint32_t, ranks, 256, "data-parallel ranks");
ABSL_FLAG(uint64_t, token_budget, 65'536, "of a micro-batch");

namespace forebay::ledger {
namespace {

constexpr uint32_t kGroupSize = 16;
constexpr double kMostTokens = 65'536;

double CpuSeconds() {
  timespec now{};
  FOREBAY_CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Log-normal lengths. A task's attempts are alike: `task_sigma` is shared by a group.
struct Lengths {
  const char* name;
  double mean;
  double task_sigma;
  double sigma;
};

// The second: mean and spread of the steps' means in the 18 reference runs of the MLPerf v6.1
// reinforcement-learning benchmark, 5,650 to 5,820 tokens a sequence; the spread of 256 sequences'
// mean, 8%, is that of single ones of 1.3 times their mean.
constexpr Lengths kLengths[] = {{"log_normal", 4'096, 0, 1}, {"mlperf", 5'750, 0.6, 0.77}};

double Normal(Prng& prng) {
  const double radius = std::sqrt(-2 * std::log(1 - prng.Unit()));
  return radius * std::cos(2 * std::numbers::pi * prng.Unit());
}

std::vector<codec::GroupReport> Groups(const Lengths& lengths, uint32_t rollouts, uint32_t shards) {
  Prng prng(7);
  const double shift =
      (lengths.sigma * lengths.sigma + lengths.task_sigma * lengths.task_sigma) / 2;
  std::vector<codec::GroupReport> groups((rollouts + kGroupSize - 1) / kGroupSize);
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const ShardId shard(static_cast<uint8_t>(g % shards));
    codec::GroupReport& group = groups[g];
    group.group = GroupId::Make(shard, 1, g + 1);
    group.task = TaskId::Make(SourceId(0), g);
    const double task = Normal(prng) * lengths.task_sigma;
    for (uint32_t r = g * kGroupSize; r < std::min((g + 1) * kGroupSize, rollouts); ++r) {
      const double tokens = lengths.mean * std::exp(task + lengths.sigma * Normal(prng) - shift);
      const auto length = static_cast<uint32_t>(std::clamp(tokens, 32.0, kMostTokens));
      codec::RolloutReport& rollout = group.rollouts.emplace_back();
      rollout.rollout = RolloutId::Make(shard, 1, r + 1);
      rollout.payload = PayloadId(r + 1);
      rollout.payload_bytes = uint64_t{length} * 10;
      rollout.reward = static_cast<float>(r % 2);
      rollout.advantage = rollout.reward - 0.5f;
      rollout.sequences.push_back({length, 16, length - 16, {}});
    }
  }
  return groups;
}

// A ledger with a step open that wants all the groups.
class Bench {
 public:
  Bench(uint32_t shards, uint32_t groups, uint32_t ranks, uint64_t token_budget)
      : state_(Options{.shards = shards}) {
    codec::SourceSettings settings;
    settings.name = "bench";
    settings.group_size = settings.attempts_per_task = settings.complete_at = kGroupSize;
    Apply(PutSource{settings});
    AttachTrainer attach;
    attach.trainer = "bench";
    attach.process = 1;
    attach.mesh.dp = ranks;
    Apply(attach);
    OpenStep open;
    open.generation = std::get<AttachReply>(Reply()).generation;
    open.step = StepId(1);
    open.spec.groups = groups;
    open.spec.mesh.dp = ranks;
    open.spec.token_budget = token_budget;
    Apply(open);
  }

  // Returns CPU seconds of the longest Apply and of all.
  std::pair<double, double> Seal(std::vector<codec::GroupReport> groups, uint32_t shards) {
    RequestGroups ask{StepId(1), Revision(1), {}};
    std::vector<codec::Reserved> reports(shards);
    for (codec::GroupReport& group : groups) {
      reports[group.group.shard().value].groups.push_back(std::move(group));
    }
    for (uint32_t s = 0; s < shards; ++s) {
      ask.parts.push_back(
          {ShardId(static_cast<uint8_t>(s)), static_cast<uint32_t>(reports[s].groups.size()), 0});
    }
    const double begin = CpuSeconds();
    Apply(std::move(ask));
    double longest = 0;
    for (uint32_t s = 0; s < shards; ++s) {
      const ShardId shard(static_cast<uint8_t>(s));
      codec::Reserved& report = reports[s];
      report.step = StepId(1);
      report.revision = Revision(1);
      report.request = RequestOf(shard);
      const double before = CpuSeconds();
      Apply(FromShard{shard, 1, std::move(report)});
      longest = std::max(longest, CpuSeconds() - before);
    }
    return {longest, CpuSeconds() - begin};
  }

  const Step& step() const {
    const Step* step = state_.step(StepId(1));
    FOREBAY_CHECK(step != nullptr && step->state == StepState::kSealed);
    return *step;
  }

 private:
  void Apply(Command command) {
    effects_.Clear();
    state_.Apply(command, 1, &effects_);
  }
  const ledger::Reply& Reply() const { return effects_.replies.at(0).reply; }

  // The number of the request that the shard would answer.
  uint64_t RequestOf(ShardId shard) {
    uint64_t request = 0;
    for (const codec::NumberedMessage& message : state_.outbox(shard).Unacknowledged()) {
      codec::ToShard body;
      FOREBAY_CHECK(codec::Decode(message.body, &body));
      if (const auto* reserve = std::get_if<codec::Reserve>(&body)) request = reserve->request;
    }
    FOREBAY_CHECK(request != 0);
    return request;
  }

  State state_;
  Effects effects_;
};

struct Figures {
  double seal_s = 0, all_s = 0;
  batch::PlanQuality quality;
  double peer_imbalance = 0, peer_s = 0;
};

Figures Run(const Lengths& lengths, uint32_t shards, bool with_peer) {
  const uint32_t rollouts = absl::GetFlag(FLAGS_rollouts);
  batch::PackSpec spec;
  spec.dp = absl::GetFlag(FLAGS_ranks);
  spec.token_budget = absl::GetFlag(FLAGS_token_budget);
  std::vector<codec::GroupReport> groups = Groups(lengths, rollouts, shards);
  Bench bench(shards, static_cast<uint32_t>(groups.size()), spec.dp, spec.token_budget);
  Figures figures;
  std::tie(figures.seal_s, figures.all_s) = bench.Seal(std::move(groups), shards);

  const Step& step = bench.step();
  std::vector<batch::SequenceSize> sizes;
  std::vector<uint32_t> tokens;
  for (const HeldSequence& sequence : step.sequences) {
    sizes.push_back({sequence.tokens, sequence.rollout, step.rollouts[sequence.rollout].group});
    tokens.push_back(sequence.tokens);
  }
  batch::Plan plan;
  plan.mini_batches.assign(step.mini_batches.begin(), step.mini_batches.end());
  figures.quality = batch::Measure(sizes, spec, plan);
  if (!with_peer) return figures;

  const std::vector<uint64_t> costs = batch::ScaledCosts(tokens, spec.cost);
  const double begin = CpuSeconds();
  const std::vector<uint64_t> loads = batch::KarmarkarKarp(costs, spec.dp);
  figures.peer_s = CpuSeconds() - begin;
  const uint64_t total = std::accumulate(costs.begin(), costs.end(), uint64_t{0});
  FOREBAY_CHECK(std::accumulate(loads.begin(), loads.end(), uint64_t{0}) == total);
  figures.peer_imbalance = static_cast<double>(loads[0]) * spec.dp / static_cast<double>(total) - 1;
  return figures;
}

void Main() {
  std::string out;
  for (const Lengths& lengths : kLengths) {
    for (const uint32_t shards : {1u, 8u, 64u}) {
      const Figures f = Run(lengths, shards, shards == 1);
      absl::StrAppend(&out, out.empty() ? "" : ", ", "{\"lengths\": \"", lengths.name,
                      "\", \"shards\": ", shards, ", \"seal_s\": ", f.seal_s,
                      ", \"all_s\": ", f.all_s, ", \"fill\": ", f.quality.fill,
                      ", \"token_fill\": ", f.quality.token_fill,
                      ", \"imbalance\": ", f.quality.imbalance);
      if (shards == 1) {
        absl::StrAppend(&out, ", \"karmarkar_karp_imbalance\": ", f.peer_imbalance,
                        ", \"karmarkar_karp_s\": ", f.peer_s);
      }
      absl::StrAppend(&out, "}");
    }
  }
  std::printf("{\"rollouts\": %u, \"ranks\": %u, \"steps\": [%s]}\n", absl::GetFlag(FLAGS_rollouts),
              absl::GetFlag(FLAGS_ranks), out.c_str());
}

}  // namespace
}  // namespace forebay::ledger

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  forebay::ledger::Main();
}
