// What must hold between any two commands. Restore goes by it too: a snapshot that breaks none is
// safe to query.
#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ledger/limits.h"
#include "ledger/state.h"

namespace forebay::ledger {
namespace {

template <class... Parts>
absl::Status Broken(const Parts&... parts) {
  return absl::InternalError(absl::StrCat(parts...));
}

// Groups own runs of rollouts, rollouts own runs of sequences, both without gaps.
absl::Status HeldHolds(const Step& step) {
  size_t rollouts = 0, sequences = 0;
  uint64_t tokens = 0, loss_tokens = 0;
  for (size_t g = 0; g < step.groups.size(); ++g) {
    const HeldGroup& group = step.groups[g];
    if (group.first_rollout != rollouts || group.rollout_count == 0 ||
        group.rollout_count > step.rollouts.size() - rollouts) {
      return Broken("group ", g, " does not own its rollouts");
    }
    for (size_t end = rollouts + group.rollout_count; rollouts < end; ++rollouts) {
      const HeldRollout& rollout = step.rollouts[rollouts];
      if (rollout.group != g || rollout.first_sequence != sequences ||
          rollout.sequence_count == 0 ||
          rollout.sequence_count > step.sequences.size() - sequences) {
        return Broken("rollout ", rollouts, " does not own its sequences");
      }
      for (size_t last = sequences + rollout.sequence_count; sequences < last; ++sequences) {
        if (step.sequences[sequences].rollout != rollouts) {
          return Broken("sequence ", sequences, " is not its rollout's");
        }
        tokens += step.sequences[sequences].tokens;
        loss_tokens += step.sequences[sequences].loss_tokens;
      }
    }
  }
  if (rollouts != step.rollouts.size() || sequences != step.sequences.size()) {
    return Broken("rollouts or sequences without an owner");
  }
  if (step.totals.groups != step.groups.size() || step.totals.rollouts != rollouts ||
      step.totals.sequences != sequences || step.totals.tokens != tokens ||
      step.totals.loss_tokens != loss_tokens) {
    return Broken("totals are not those of what is held");
  }
  return absl::OkStatus();
}

absl::Status MiniBatchHolds(const Step& step, const PlannedMiniBatch& m,
                            std::vector<bool>& planned) {
  const uint64_t count = uint64_t{m.micro_batches_per_rank} * step.spec.mesh.dp;
  if (m.tokens.size() != count || m.padded_tokens.size() != count || m.begin.size() != count + 1 ||
      m.begin.front() != 0 || m.begin.back() != m.sequences.size() ||
      !std::is_sorted(m.begin.begin(), m.begin.end())) {
    return Broken("a mini-batch has ranks of different lengths");
  }
  for (uint32_t s : m.sequences) {
    if (s >= planned.size() || planned[s]) return Broken("sequence ", s, " is planned twice");
    planned[s] = true;
  }
  return absl::OkStatus();
}

absl::Status PlanHolds(const Step& step) {
  if (step.mini_batches.size() != step.spec.mini_batches) return Broken("mini-batches are lost");
  std::vector<bool> planned(step.sequences.size());
  Totals sum;
  for (const PlannedMiniBatch& mini_batch : step.mini_batches) {
    FOREBAY_RETURN_IF_ERROR(MiniBatchHolds(step, mini_batch, planned));
    sum.sequences += mini_batch.totals.sequences;
    sum.rollouts += mini_batch.totals.rollouts;
    sum.tokens += mini_batch.totals.tokens;
    sum.loss_tokens += mini_batch.totals.loss_tokens;
  }
  if (std::find(planned.begin(), planned.end(), false) != planned.end()) {
    return Broken("a sequence is not planned");
  }
  if (sum.sequences != step.totals.sequences || sum.rollouts != step.totals.rollouts ||
      sum.tokens != step.totals.tokens || sum.loss_tokens != step.totals.loss_tokens) {
    return Broken("the mini-batches' totals are not the step's");
  }
  for (const auto& [ref, columns] : step.written) {
    const auto name_order = [](const WrittenColumn& a, const WrittenColumn& b) {
      return a.name >= b.name;
    };
    if (!step.Has(ref) || columns.empty() || columns.size() > kWrittenColumnsMax ||
        std::adjacent_find(columns.begin(), columns.end(), name_order) != columns.end()) {
      return Broken("columns are written to no micro-batch, or twice");
    }
  }
  return absl::OkStatus();
}

absl::Status LiveStepHolds(const Step& step, bool on_hold) {
  if (step.lost >= step.revision) return Broken("its revision held what is lost");
  FOREBAY_RETURN_IF_ERROR(HeldHolds(step));
  const bool complete = step.spec.groups > 0 ? step.groups.size() == step.spec.groups
                                             : step.totals.tokens >= step.spec.tokens;
  if (step.state == StepState::kOpen) {
    const bool enough = complete && step.requests.empty() && !step.groups.empty();
    if (enough && !on_hold) return Broken("it has its groups and is open");
    if (step.spec.groups > 0 && step.groups.size() + step.GroupsAsked() > step.spec.groups) {
      return Broken("more groups than wanted are held and asked for");
    }
  } else if (!complete || !step.requests.empty()) {
    return Broken("it is not open, and does not have its groups");
  }
  if (step.state == StepState::kSealed) return PlanHolds(step);
  if (!step.mini_batches.empty() || !step.written.empty()) return Broken("a plan before the seal");
  return absl::OkStatus();
}

bool HoldsNothing(const Step& step) {
  return step.groups.empty() && step.rollouts.empty() && step.sequences.empty() &&
         step.requests.empty() && step.written.empty() && !step.retained && !step.served_again;
}

// A committed step that a rewind could serve again.
absl::Status RetainedStepHolds(const Step& step) {
  FOREBAY_RETURN_IF_ERROR(HeldHolds(step));
  if (step.state != StepState::kCommitted || !step.requests.empty() || !step.written.empty() ||
      step.served_again) {
    return Broken("it is retained, and is not as its commit left it");
  }
  return PlanHolds(step);
}

}  // namespace

absl::Status State::StepsHold() const {
  std::vector<uint64_t> groups, requests;
  PolicyVersion train_version = committed_version_;
  StepId live = next_step_;
  bool ended = false, retained_before = false;
  for (const auto& [id, step] : steps_) {
    // By another name: Clang lets no lambda take what a binding declared.
    const auto broken = [&step = step](const absl::Status& why) {
      return Broken("step ", step.step.value, ": ", why.message());
    };
    if (step.state < StepState::kOpen || step.state > StepState::kAborted) {
      return broken(Broken("it is in no state"));
    }
    if (id != step.step || (id < next_step_) != (step.state == StepState::kCommitted)) {
      return broken(Broken("its number is not its place"));
    }
    if (step.retained) {
      if (const absl::Status status = RetainedStepHolds(step); !status.ok()) return broken(status);
      if (id <= checkpoint_.step) return broken(Broken("it is retained below the checkpoint"));
    } else if (retained_before && id < next_step_) {
      return broken(Broken("an older one is retained"));
    }
    retained_before = step.retained;
    for (const HeldGroup& group : step.groups) {
      if (group.group.shard().value >= channels_.size()) return broken(Broken("no such shard"));
      groups.push_back(group.group.value);
    }
    if (!step.live()) {
      if (step.retained) continue;
      if (!HoldsNothing(step)) return broken(Broken("it is over and holds something"));
      ended = ended || step.state == StepState::kAborted;
      continue;
    }
    if (ended || id != live) return broken(Broken("it is open out of order"));
    live = StepId(id.value + 1);
    if (step.train_version != train_version) return broken(Broken("it trains on another version"));
    train_version = step.next_version;
    if (const absl::Status status = LiveStepHolds(step, drift_.hold.has_value()); !status.ok())
      return broken(status);
    for (const HeldGroup& group : step.groups) {
      if (step.state == StepState::kOpen && absent(group.group.shard()))
        return broken(Broken("it is open with a group of an absent shard"));
    }
    for (const GroupRequest& request : step.requests) {
      if (request.shard.value >= channels_.size() || request.number > last_request_) {
        return broken(Broken("a request that was never made"));
      }
      if (absent(request.shard)) return broken(Broken("an absent shard is asked"));
      requests.push_back(request.number);
    }
  }
  if (live.value > next_step_.value + kOpenStepsMax) return Broken("too many open steps");
  if (steps_.size() > kCommittedStepsKept + kOpenStepsMax) return Broken("old steps");
  std::sort(groups.begin(), groups.end());
  std::sort(requests.begin(), requests.end());
  if (std::adjacent_find(groups.begin(), groups.end()) != groups.end()) {
    return Broken("a group is reserved twice");
  }
  if (std::adjacent_find(requests.begin(), requests.end()) != requests.end()) {
    return Broken("two requests of one number");
  }
  return absl::OkStatus();
}

absl::Status State::VersionsHold() const {
  if (published_.version > committed_version_) {
    return Broken("a published version that no step made");
  }
  if (branch_begin_.branch != committed_version_.branch || branch_begin_ > committed_version_) {
    return Broken("the branch does not begin where it begins");
  }
  if (pending_ &&
      (pending_->version > committed_version_ || pending_->version < published_.version)) {
    return Broken("a pending version that no step made, or that is over");
  }
  if (announcements_.empty() || announcements_.size() > kAnnouncementsKept) {
    return Broken("announcements are lost or too many");
  }
  if (codec::Encode(versions_) != codec::Encode(CurrentVersionState())) {
    return Broken("the shards were not told of the versions");
  }
  return absl::OkStatus();
}

absl::Status State::PlacesHold() const {
  if (generation_ == Generation() && !places_.empty()) {
    return Broken("places and generation do not agree");
  }
  for (size_t i = 0; i < places_.size(); ++i) {
    const TrainerPlace& place = places_[i];
    if (place.dp_rank >= mesh_.dp || place.peer >= uint64_t{mesh_.tp} * mesh_.pp * mesh_.cp) {
      return Broken("a place outside the mesh");
    }
    if (i > 0 && std::pair(places_[i - 1].dp_rank, places_[i - 1].peer) >=
                     std::pair(place.dp_rank, place.peer)) {
      return Broken("a place is taken twice");
    }
  }
  return absl::OkStatus();
}

absl::Status State::RewindsHold() const {
  if (checkpoint_.step >= next_step_) return Broken("the checkpoint covers what is not committed");
  if (rewinds_.size() > kRewindsRemembered) return Broken("too many rewinds are remembered");
  if (retained_rollouts() > kRetainedRolloutsMax) return Broken("too many rollouts are retained");
  for (const auto& [id, step] : steps_) {
    if (step.revision > newest_revision_) return Broken("a revision that was never given");
  }
  return fenced_revision_ <= newest_revision_ ? absl::OkStatus()
                                              : Broken("a revision is fenced that never was");
}

absl::Status State::InvariantsHold() const {
  if (channels_.size() != options_.shards) return Broken("channels are lost");
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].id.value != i) return Broken("sources are not dense");
  }
  FOREBAY_RETURN_IF_ERROR(PlacesHold());
  FOREBAY_RETURN_IF_ERROR(StepsHold());
  FOREBAY_RETURN_IF_ERROR(RewindsHold());
  FOREBAY_RETURN_IF_ERROR(drift_.Holds());
  return VersionsHold();
}

void State::CheckInvariants() const {
  const absl::Status status = InvariantsHold();
  if (!status.ok()) std::fprintf(stderr, "ledger: %s\n", status.ToString().c_str());
  FOREBAY_CHECK(status.ok());
}

}  // namespace forebay::ledger
