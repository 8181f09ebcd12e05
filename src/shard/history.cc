#include "shard/history.h"

#include <algorithm>

#include "codec/peer_messages.h"
#include "shard/limits.h"

namespace forebay::shard {
namespace {

void AddTo(std::vector<TrainedSum>* sums, const TrainedSum& sum) {
  const auto at =
      std::ranges::find_if(*sums, [&](const TrainedSum& s) { return s.source == sum.source; });
  if (at != sums->end()) return at->Add(sum);
  sums->push_back(sum);
}

}  // namespace

History::History() { intervals_.emplace_back(); }

void History::Begin(StepId step, const curriculum::Curriculum& curriculum) {
  if (step <= intervals_.back().since) return;
  Interval& interval = intervals_.emplace_back();
  interval.since = step;
  interval.begin = forgotten_ + taught_.size();
  for (const auto& source : curriculum.sources()) {
    interval.estimates.resize(source->id().value + size_t{1});
    interval.estimates[source->id().value] = source->estimates();
  }
  // The oldest stands for the checkpoint, the others for the steps that the ledger still knows.
  if (intervals_.size() > codec::kRewindStepsMax + 1) Merge();
}

void History::Merge() {
  for (const TrainedSum& sum : intervals_[1].trained) AddTo(&intervals_[0].trained, sum);
  intervals_.erase(intervals_.begin() + 1);
}

void History::Note(TaskId task, const curriculum::Curriculum& curriculum) {
  taught_.PushBack({task, curriculum.StatisticsOf(task)});
  if (taught_.size() <= kTaughtMax) return;
  taught_.PopFront();
  ++forgotten_;
}

void History::AddTrained(StepId step, const TrainedSum& sum) {
  for (size_t i = intervals_.size(); i > 0; --i) {
    if (i > 1 && intervals_[i - 1].since >= step) continue;
    return AddTo(&intervals_[i - 1].trained, sum);
  }
}

void History::Cover(StepId step) {
  while (intervals_.size() > 1 && intervals_[1].since <= step) intervals_.pop_front();
  while (!taught_.empty() && forgotten_ < intervals_.front().begin) {
    taught_.PopFront();
    ++forgotten_;
  }
}

History::Undone History::GoBack(StepId step, curriculum::Curriculum* curriculum) {
  Undone undone;
  while (intervals_.size() > 1 && intervals_.back().since > step) {
    for (const TrainedSum& sum : intervals_.back().trained) AddTo(&undone.trained, sum);
    intervals_.pop_back();
  }
  Interval& interval = intervals_.back();
  for (const TrainedSum& sum : interval.trained) AddTo(&undone.trained, sum);
  interval.trained.clear();
  while (!taught_.empty() && forgotten_ + taught_.size() > interval.begin) {
    const Taught& last = taught_.back();
    curriculum->SetStatistics(last.task, last.before);
    undone.tasks.push_back(last.task);
    taught_.PopBack();
  }
  for (const auto& source : curriculum->sources()) {
    const size_t i = source->id().value;
    curriculum->SetEstimates(source->id(), i < interval.estimates.size() ? interval.estimates[i]
                                                                         : curriculum::Estimates());
  }
  std::ranges::sort(undone.tasks);
  undone.tasks.erase(std::unique(undone.tasks.begin(), undone.tasks.end()), undone.tasks.end());
  return undone;
}

const char* History::Check(const curriculum::Curriculum& curriculum) const {
  const uint64_t end = forgotten_ + taught_.size();
  if (intervals_.empty() || intervals_.size() > codec::kRewindStepsMax + 1 ||
      taught_.size() > kTaughtMax || end < forgotten_) {
    return "the history is too long, or none";
  }
  for (size_t i = 0; i < intervals_.size(); ++i) {
    const Interval& interval = intervals_[i];
    const bool rises = i == 0 || (interval.since > intervals_[i - 1].since &&
                                  interval.begin >= intervals_[i - 1].begin);
    if (!rises || interval.begin > end) return "the history is out of order";
    for (const curriculum::Estimates& estimates : interval.estimates) {
      if (!estimates.Valid()) return "an estimate of the history is out of range";
    }
    for (const TrainedSum& sum : interval.trained) {
      if (curriculum.source(sum.source) == nullptr) return "the history is of no source";
    }
  }
  for (size_t i = 0; i < taught_.size(); ++i) {
    const Taught& taught = taught_[i];
    if (curriculum.task(taught.task) == nullptr || !curriculum::Valid(taught.before)) {
      return "the history is of no task, or out of range";
    }
  }
  return "";
}

void History::Snapshot(codec::Writer& writer) const {
  writer(intervals_);
  taught_.Snapshot(writer);
  writer(forgotten_);
}

bool History::Restore(codec::Reader& reader) {
  reader(intervals_);
  if (!taught_.Restore(reader, kTaughtMax)) return false;
  reader(forgotten_);
  return reader.ok();
}

uint64_t History::memory_bytes() const {
  uint64_t bytes = taught_.memory_bytes() + intervals_.size() * sizeof(Interval);
  for (const Interval& interval : intervals_) {
    bytes += interval.estimates.capacity() * sizeof(curriculum::Estimates);
    bytes += interval.trained.capacity() * sizeof(TrainedSum);
  }
  return bytes;
}

}  // namespace forebay::shard
