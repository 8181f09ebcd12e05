// What the ledger says about sources and policy versions.
//
// The train floor is the newest version that a committed step made: all later steps train on it or
// a newer one, so what is stale there is stale for ever. The version that the next step to be
// opened trains on would be too new a measure: steps that are open already may still lack groups,
// and train on older ones.
#include <algorithm>

#include "shard/machine.h"

namespace forebay::shard {

using rollout::CloseReason;
using rollout::GroupState;

void Machine::Run(const codec::SourceChanged& m, Effects*) {
  curriculum_.PutSource(m.source, m.settings);
  if (sources_.size() <= m.source.value) sources_.resize(m.source.value + size_t{1});
}

void Machine::Run(const codec::VersionState& m, Effects* effects) {
  const bool new_branch = m.branch != versions_.branch;
  versions_ = m;
  if (new_branch) ChangeBranch(effects);
  if (versions_.published.branch == versions_.branch) {
    RaiseFloor(versions_.published.number, effects);
  }
  ReleaseCredits();
  if (options_.mutations.release_alone && !holds_.empty()) {
    Run(codec::Unreserve{holds_.front().step, {}}, effects);
  }
}

void Machine::RaiseFloor(uint32_t number, Effects* effects) {
  if (number <= train_floor_) return;
  train_floor_ = number;
  CullReady(effects);
}

// Drops what no step can use any more, so that it does not hold up admission.
void Machine::CullReady(Effects* effects) {
  std::vector<uint32_t> old;
  for (uint32_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].ready.size() == 0) continue;
    const codec::SourceSettings& settings = SettingsOf(SourceId(i));
    old.clear();
    for (const ReadyQueue::Bucket& bucket : sources_[i].ready.buckets()) {
      if (!UselessAt(bucket.version, settings)) break;
      uint32_t slot = bucket.groups.head();
      for (; slot != kNone; slot = rollout::OrderList::Next(tables_.groups(), slot)) {
        old.push_back(slot);
      }
    }
    for (uint32_t slot : old) Cull(slot, settings.max_lag, train_floor_, effects);
  }
}

// Nothing of the abandoned branch is trained. What steps hold of it they give back.
void Machine::ChangeBranch(Effects* effects) {
  train_floor_ = versions_.next_train.branch == versions_.branch ? versions_.next_train.number : 0;
  if (versions_.published.branch == versions_.branch) train_floor_ = versions_.published.number;
  for (SourceState& source : sources_) {
    uint32_t slot = source.open.head();
    while (slot != kNone) {
      const uint32_t next = rollout::OrderList::Next(tables_.groups(), slot);
      if (tables_.group(slot).eval == kNone) {
        DropGroup(slot, DropReason::kRewound, CloseReason::kRewound, effects);
      }
      slot = next;
    }
    while ((slot = source.ready.front()) != kNone) {
      DropGroup(slot, DropReason::kRewound, CloseReason::kRewound, effects);
    }
  }
}

void Machine::ReleaseCredits() {
  const auto released = [this](const Unpublished& u) {
    const bool done =
        u.next.branch != versions_.branch || (versions_.published.branch == versions_.branch &&
                                              versions_.published.number >= u.next.number);
    if (done) sources_[u.source.value].outstanding -= u.credits;
    return done;
  };
  std::erase_if(unpublished_, released);
}

}  // namespace forebay::shard
