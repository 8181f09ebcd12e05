#include "curriculum/curriculum.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::curriculum {

void Curriculum::PutSource(SourceId id, const codec::SourceSettings& settings) {
  if (id.value >= by_id_.size()) by_id_.resize(id.value + 1);
  if (by_id_[id.value] == nullptr) {
    const auto place = std::find_if(sources_.begin(), sources_.end(),
                                    [id](const auto& other) { return other->id() > id; });
    by_id_[id.value] = sources_.insert(place, std::make_unique<Source>(id, run_seed_))->get();
  }
  Source& source = *by_id_[id.value];
  source.SetSettings(settings);
  mixture_.Set(settings.weight, settings.minimum_share, &source.place());
}

Source& Curriculum::Get(SourceId id) {
  FOREBAY_CHECK(source(id) != nullptr);
  return *by_id_[id.value];
}

Source& Curriculum::Get(TaskId id) {
  FOREBAY_CHECK(task(id) != nullptr);
  return *by_id_[id.source().value];
}

const Source* Curriculum::FindByName(std::string_view name) const {
  for (const auto& source : sources_) {
    if (source->settings().name == name) return source.get();
  }
  return nullptr;
}

std::optional<uint32_t> Curriculum::Find(SourceId id, uint64_t external_hash) const {
  const Source* source = this->source(id);
  return source == nullptr ? std::nullopt : source->tasks().Find(external_hash);
}

absl::StatusOr<AddCount> Curriculum::AddTasks(SourceId id, absl::Span<const NewTask> tasks,
                                              std::vector<PayloadId>* unused_contents,
                                              std::optional<uint32_t>* refused) {
  if (source(id) == nullptr) return absl::NotFoundError(absl::StrCat("no source ", id.value));
  return Get(id).AddTasks(tasks, unused_contents, refused);
}

std::optional<SourceId> Curriculum::ChooseSource(absl::Span<const uint8_t> eligible) const {
  const Source* best = nullptr;
  for (const auto& source : sources_) {
    const size_t id = source->id().value;
    if (id >= eligible.size() || eligible[id] == 0) continue;
    if (source->settings().purpose == codec::Purpose::kEval) continue;
    if (!source->place().TakesPart() || !source->CanDraw()) continue;
    if (best == nullptr || mixture_.Before(source->place(), best->place())) best = source.get();
  }
  if (best == nullptr) return std::nullopt;
  return best->id();
}

void Curriculum::Charge(SourceId id, uint64_t attempts) {
  Source& source = Get(id);
  mixture_.Charge(attempts, &source.place());
  source.CountCharged(attempts);
}

bool Curriculum::CanDraw(SourceId id) const {
  const Source* source = this->source(id);
  return source != nullptr && source->CanDraw();
}

std::optional<TaskId> Curriculum::DrawTask(SourceId id, Prng& prng) {
  const auto index = Get(id).Draw(prng);
  if (!index) return std::nullopt;
  return TaskId::Make(id, *index);
}

void Curriculum::GroupBegun(TaskId id) { Get(id).GroupBegun(id.index()); }
void Curriculum::GroupDropped(TaskId id) { Get(id).GroupDropped(id.index()); }
void Curriculum::GroupFinished(TaskId id, const GroupStats& stats) {
  Get(id).GroupFinished(id.index(), stats);
}
void Curriculum::CountLost(SourceId id, uint64_t rollouts) { Get(id).CountLost(rollouts); }
bool Curriculum::CountFailure(TaskId id, uint32_t max_failures) {
  return Get(id).CountFailure(id.index(), max_failures);
}
TaskStatistics Curriculum::StatisticsOf(TaskId id) const {
  return source(id.source())->statistics(id.index());
}

void Curriculum::SetStatistics(TaskId id, const TaskStatistics& statistics) {
  Get(id).SetStatistics(id.index(), statistics);
}

void Curriculum::SetEstimates(SourceId id, const Estimates& estimates) {
  Get(id).SetEstimates(estimates);
}

void Curriculum::Again(TaskId id) { Get(id).Again(id.index()); }

absl::Status Curriculum::SetWeight(TaskId id, float weight) {
  return Get(id).SetWeight(id.index(), weight);
}

uint64_t Curriculum::SetQuarantine(SourceId id, absl::Span<const uint64_t> external_hashes,
                                   bool quarantine) {
  Source& source = Get(id);
  uint64_t changed = 0;
  for (const uint64_t external_hash : external_hashes) {
    const auto index = source.tasks().Find(external_hash);
    if (index && source.SetQuarantine(*index, quarantine)) ++changed;
  }
  return changed;
}

uint64_t Curriculum::RequeueAll(SourceId id) { return Get(id).RequeueAll(); }

void Curriculum::Snapshot(codec::Writer& writer) const {
  writer(run_seed_, mixture_, static_cast<uint32_t>(sources_.size()));
  for (const auto& source : sources_) {
    writer(source->id());
    source->Snapshot(writer);
  }
}

bool Curriculum::Restore(codec::Reader& reader) {
  Curriculum fresh(0);
  uint32_t count = 0;
  reader(fresh.run_seed_, fresh.mixture_, count);
  for (uint32_t i = 0; i < count; ++i) {
    SourceId id;
    reader(id);
    const bool ascending = fresh.sources_.empty() || fresh.sources_.back()->id() < id;
    if (!reader.ok() || !ascending) return false;
    fresh.by_id_.resize(id.value + 1);
    fresh.sources_.push_back(std::make_unique<Source>(id, fresh.run_seed_));
    fresh.by_id_[id.value] = fresh.sources_.back().get();
    if (!fresh.sources_.back()->Restore(reader)) return false;
  }
  if (!reader.ok()) return false;
  *this = std::move(fresh);
  return true;
}

size_t Curriculum::memory_bytes() const {
  size_t bytes = sizeof(*this) + (sources_.capacity() + by_id_.capacity()) * sizeof(void*);
  for (const auto& source : sources_) bytes += source->memory_bytes();
  return bytes;
}

}  // namespace forebay::curriculum
