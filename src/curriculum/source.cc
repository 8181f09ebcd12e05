#include "curriculum/source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace forebay::curriculum {
namespace {

// What a new group leaves of a task's earlier passes and failures.
constexpr float kPassDecay = 0.9f;
// The part of a new group in a task's mean length and duration.
constexpr float kMeanStep = 0.25f;
constexpr uint16_t kInFlightMax = UINT16_MAX;
constexpr uint16_t kFailuresMax = (1 << 15) - 1;

}  // namespace

bool Valid(const TaskStatistics& statistics) {
  const auto in_range = [](float value) { return std::isfinite(value) && value >= 0; };
  return in_range(statistics.pass_a) && in_range(statistics.pass_b) &&
         in_range(statistics.mean_tokens) && in_range(statistics.mean_duration_ms);
}

Source::Source(SourceId id, uint64_t run_seed) : id_(id), order_(HashCombine(run_seed, id.value)) {}

void Source::SetSettings(const codec::SourceSettings& settings) {
  const auto weighing = [](const codec::SourceSettings& s) {
    return std::pair(s.order == codec::Order::kLearnable, s.retest);
  };
  const bool reweigh = weighing(settings) != weighing(settings_);
  settings_ = settings;
  if (reweigh) order_.SetWeights([this](uint32_t i) { return DrawWeight(tasks_[i]); });
}

uint32_t Source::DrawWeight(const TaskRecord& task) const {
  if (settings_.order != codec::Order::kLearnable) return FixedWeight(task.weight);
  const float learnable = 4 * task.PassRate() * (1 - task.PassRate());  // 1 at one half
  return FixedWeight(task.weight * std::max(learnable, static_cast<float>(settings_.retest)));
}

uint32_t Source::lease_ms() const {
  const uint64_t most = std::min<uint64_t>(settings_.lease_max_ms, UINT32_MAX);
  if (!estimates_.duration_ms.measured()) return static_cast<uint32_t>(most);
  const double wanted = settings_.lease_duration_factor * mean_duration_ms();
  if (!(wanted < static_cast<double>(most))) return static_cast<uint32_t>(most);
  const uint64_t least = std::min(settings_.lease_min_ms, most);
  if (!(wanted > static_cast<double>(least))) return static_cast<uint32_t>(least);
  return static_cast<uint32_t>(wanted);
}

absl::StatusOr<AddCount> Source::AddTasks(absl::Span<const NewTask> tasks,
                                          std::vector<PayloadId>* unused_contents,
                                          std::optional<uint32_t>* refused) {
  const auto fresh = tasks_.CheckNew(tasks, refused);
  if (!fresh.ok()) return fresh.status();
  auto next = fresh->begin();
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (next != fresh->end() && *next == i) {
      ++next;
      tasks_.Append(tasks[i]);
      order_.Append(DrawWeight(tasks_[tasks_.size() - 1]), true);
    } else if (tasks[i].content != PayloadId() &&
               tasks_[*tasks_.Find(tasks[i].external_hash)].content != tasks[i].content) {
      unused_contents->push_back(tasks[i].content);
    }
  }
  return AddCount{fresh->size(), tasks.size() - fresh->size()};
}

bool Source::CanDraw() const {
  return !settings_.paused && order_.CanDraw(settings_.order, settings_.epochs);
}

std::optional<uint32_t> Source::Draw(Prng& prng) {
  if (!CanDraw()) return std::nullopt;
  const uint32_t index = order_.Draw(settings_.order, prng);
  tasks_[index].last_epoch = static_cast<uint32_t>(order_.epoch() + 1);
  ++counters_.drawn;
  return index;
}

void Source::GroupBegun(uint32_t index) {
  TaskRecord& task = tasks_[index];
  if (task.in_flight != kInFlightMax) ++task.in_flight;
}

void Source::GroupDropped(uint32_t index) {
  TaskRecord& task = tasks_[index];
  if (task.in_flight != 0 && task.in_flight != kInFlightMax) --task.in_flight;
}

void Source::GroupFinished(uint32_t index, const GroupStats& stats) {
  FOREBAY_CHECK(stats.rollouts > 0);
  GroupDropped(index);
  TaskRecord& task = tasks_[index];
  const double rollouts = stats.rollouts;
  const double passes = stats.passes > 0 ? std::min(stats.passes, rollouts) : 0;
  task.pass_a = task.pass_a * kPassDecay + static_cast<float>(passes);
  task.pass_b = task.pass_b * kPassDecay + static_cast<float>(rollouts - passes);
  const auto tokens_sum = static_cast<double>(stats.tokens_sum);
  const auto duration_ms_sum = static_cast<double>(stats.duration_ms_sum);
  const float step = task.groups == 0 ? 1 : kMeanStep;
  const auto tokens = static_cast<float>(tokens_sum / rollouts);
  const auto duration_ms = static_cast<float>(duration_ms_sum / rollouts);
  task.mean_tokens += (tokens - task.mean_tokens) * step;
  task.mean_duration_ms += (duration_ms - task.mean_duration_ms) * step;
  task.rollouts += stats.rollouts;
  task.last_version = stats.version;
  task.failures = 0;
  ++task.groups;
  if (settings_.order == codec::Order::kLearnable) Reweigh(index);

  estimates_.tokens.Add(tokens_sum, stats.rollouts);
  estimates_.duration_ms.Add(duration_ms_sum, stats.rollouts);
  estimates_.survival.Add(stats.filtered ? 0 : stats.rollouts, stats.filtered ? stats.rollouts : 0);
  ++counters_.groups_finished;
  counters_.groups_filtered += stats.filtered ? 1 : 0;
  counters_.rollouts += stats.rollouts;
}

void Source::CountLost(uint64_t rollouts) {
  estimates_.survival.Add(0, rollouts);
  counters_.rollouts_lost += rollouts;
}

bool Source::CountFailure(uint32_t index, uint32_t max_failures) {
  TaskRecord& task = tasks_[index];
  if (task.failures != kFailuresMax) ++task.failures;
  ++counters_.failures;
  if (max_failures == 0 || task.failures < std::min<uint32_t>(max_failures, kFailuresMax)) {
    return false;
  }
  return SetQuarantine(index, true);
}

TaskStatistics Source::statistics(uint32_t index) const {
  const TaskRecord& task = tasks_[index];
  return {task.pass_a,       task.pass_b,      task.rollouts,        task.groups,
          task.last_version, task.mean_tokens, task.mean_duration_ms};
}

void Source::SetStatistics(uint32_t index, const TaskStatistics& statistics) {
  TaskRecord& task = tasks_[index];
  task.pass_a = statistics.pass_a;
  task.pass_b = statistics.pass_b;
  task.rollouts = statistics.rollouts;
  task.groups = statistics.groups;
  task.last_version = statistics.last_version;
  task.mean_tokens = statistics.mean_tokens;
  task.mean_duration_ms = statistics.mean_duration_ms;
  if (settings_.order == codec::Order::kLearnable) Reweigh(index);
}

absl::Status Source::SetWeight(uint32_t index, float weight) {
  if (absl::Status valid = CheckWeight(weight); !valid.ok()) return valid;
  tasks_[index].weight = weight;
  Reweigh(index);
  return absl::OkStatus();
}

bool Source::SetQuarantine(uint32_t index, bool quarantine) {
  TaskRecord& task = tasks_[index];
  if ((task.quarantined != 0) == quarantine) return false;
  task.quarantined = quarantine ? 1 : 0;
  // A task that failed in this epoch has not had its turn: it gets one when it is put back.
  const auto this_epoch = static_cast<uint32_t>(order_.epoch() + 1);
  const bool again = task.last_epoch != this_epoch || task.failures > 0;
  order_.SetDrawable(index, !quarantine, DrawWeight(task), again);
  if (!quarantine) task.failures = 0;
  return true;
}

uint64_t Source::RequeueAll() {
  uint64_t changed = 0;
  for (uint32_t i = order_.NextNotDrawable(0); i < tasks_.size();
       i = order_.NextNotDrawable(i + 1)) {
    changed += SetQuarantine(i, false) ? 1 : 0;
  }
  return changed;
}

void Source::Snapshot(codec::Writer& writer) const {
  writer(settings_, place_, counters_, estimates_, tasks_.size());
  tasks_.Snapshot(writer);
  order_.Snapshot(writer);
}

bool Source::Restore(codec::Reader& reader) {
  reader(settings_, place_, counters_, estimates_);
  const auto place = Mixture::FixedPlace(settings_.weight, settings_.minimum_share);
  const bool valid = settings_.order <= codec::Order::kLearnable &&
                     settings_.purpose <= codec::Purpose::kEval && settings_.retest >= 0 &&
                     settings_.retest <= 1 && estimates_.Valid() && place.weight == place_.weight &&
                     place.minimum_share == place_.minimum_share;
  return reader.ok() && valid && RestoreTasks(reader) && order_.Restore(reader);
}

bool Source::RestoreTasks(codec::Reader& reader) {
  uint32_t count = 0;
  reader(count);
  if (count > kTasksPerSourceMax || count > reader.left() / sizeof(TaskRecord)) return false;
  if (!tasks_.Restore(reader, count)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    const TaskRecord& record = tasks_[i];
    order_.Append(DrawWeight(record), record.quarantined == 0);
  }
  return true;
}

size_t Source::memory_bytes() const {
  return sizeof(*this) + tasks_.memory_bytes() + order_.memory_bytes();
}

}  // namespace forebay::curriculum
