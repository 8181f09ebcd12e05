// Trainers' places and the generation that fences those who lost theirs.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ledger/check_spec.h"
#include "ledger/limits.h"
#include "ledger/state.h"

namespace forebay::ledger {

absl::Status State::CheckGeneration(Generation generation) const {
  if (generation == generation_ && generation != Generation()) return absl::OkStatus();
  if (generation < generation_ && generation != Generation()) {
    if (options_.mutations.ignore_generations) return absl::OkStatus();
    return absl::AbortedError(
        absl::StrCat("generation ", generation.value, " is over; ", generation_.value, " began"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("generation: ", generation.value, ", the newest is ", generation_.value));
}

const TrainerPlace* State::FindPlace(uint32_t dp_rank, uint32_t peer) const {
  for (const TrainerPlace& place : places_) {
    if (place.dp_rank == dp_rank && place.peer == peer) return &place;
  }
  return nullptr;
}

bool State::HoldsPlace(const AttachTrainer& c) const {
  const TrainerPlace* place = FindPlace(c.dp_rank, c.peer);
  return place != nullptr && place->process == c.process && c.mesh == mesh_;
}

absl::Status State::CheckOne(const AttachTrainer& c) const {
  FOREBAY_RETURN_IF_ERROR(CheckMesh(c.mesh));
  if (c.process == 0) return absl::InvalidArgumentError("process: 0, any number but 0");
  if (c.trainer.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer: ", c.trainer.size(), " bytes, at most ", kNameBytesMax));
  }
  if (c.dp_rank >= c.mesh.dp) {
    return absl::InvalidArgumentError(
        absl::StrCat("dp_rank: ", c.dp_rank, ", less than ", c.mesh.dp));
  }
  const uint32_t peers = c.mesh.tp * c.mesh.pp * c.mesh.cp;
  if (c.peer >= peers) {
    return absl::InvalidArgumentError(absl::StrCat("peer: ", c.peer, ", less than ", peers));
  }
  if (HoldsPlace(c)) return absl::OkStatus();
  // A process whose place another has taken is a zombie: it must not take it back.
  if (std::find(displaced_.begin(), displaced_.end(), c.process) != displaced_.end()) {
    return absl::AbortedError(absl::StrCat("process ", c.process,
                                           " lost its place to another; generation ",
                                           generation_.value, " began"));
  }
  if (c.resume_step && *c.resume_step != next_step_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "resume_step: ", c.resume_step->value, ", but the next step to commit is ",
        next_step_.value, *c.resume_step < next_step_ ? "; rewind to the checkpoint's step" : ""));
  }
  return absl::OkStatus();
}

absl::Status State::Run(const AttachTrainer& c, Tag tag, Effects* effects) {
  if (!HoldsPlace(c)) {
    const TrainerPlace* taken = FindPlace(c.dp_rank, c.peer);
    if (generation_ == Generation() || taken != nullptr || c.mesh != mesh_) {
      if (taken != nullptr && taken->process != c.process) {
        displaced_.push_back(taken->process);
        if (displaced_.size() > kDisplacedKept) displaced_.pop_front();
      }
      generation_ = generation_ == Generation()
                        ? Generation(std::max<uint64_t>(c.first_generation, 1))
                        : Generation(generation_.value + 1);
      ++counters_.generations;
      mesh_ = c.mesh;
      places_.clear();
      // Whoever waits for a step under the old generation learns that it is over.
      for (const auto& [id, step] : steps_) {
        if (step.live()) effects->steps_changed.push_back(id);
      }
    }
    const TrainerPlace place{c.dp_rank, c.peer, c.process, c.trainer};
    const auto after = std::upper_bound(
        places_.begin(), places_.end(), place, [](const TrainerPlace& a, const TrainerPlace& b) {
          return std::pair(a.dp_rank, a.peer) < std::pair(b.dp_rank, b.peer);
        });
    places_.insert(after, place);
  }
  AttachReply reply;
  reply.generation = generation_;
  reply.next_step = next_step_;
  reply.train_version = committed_version_;
  for (const auto& [id, step] : steps_) {
    if (step.live()) reply.open_steps.push_back(id);
  }
  Answer(tag, reply, effects);
  return absl::OkStatus();
}

}  // namespace forebay::ledger
