#include "curriculum/task_order.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/hash.h"
#include "curriculum/permutation.h"

namespace forebay::curriculum {

namespace {

bool ByWeight(codec::Order order) {
  return order == codec::Order::kWeighted || order == codec::Order::kLearnable;
}

}  // namespace

uint32_t FixedWeight(float weight) {
  if (!(weight > 0)) return 0;
  return std::max<uint32_t>(1, static_cast<uint32_t>(double{weight} * 65536));
}

void TaskOrder::Append(uint32_t weight, bool drawable) {
  const uint32_t index = size();
  drawable_.Resize(index + 1);
  pending_.Resize(index + 1);
  weights_.Append(drawable ? weight : 0);
  if (!drawable) return;
  drawable_.Insert(index);
  pending_.Insert(index);
}

void TaskOrder::SetWeight(uint32_t index, uint32_t weight) {
  if (drawable_.Contains(index)) weights_.Set(index, weight);
}

void TaskOrder::SetDrawable(uint32_t index, bool drawable, uint32_t weight, bool again) {
  weights_.Set(index, drawable ? weight : 0);
  if (drawable) {
    drawable_.Insert(index);
    if (again) pending_.Insert(index);
  } else {
    drawable_.Erase(index);
    pending_.Erase(index);
  }
}

void TaskOrder::Again(uint32_t index) {
  if (drawable_.Contains(index)) pending_.Insert(index);
}

bool TaskOrder::EpochDone(codec::Order order) const {
  return ByWeight(order) ? draws_ >= drawable() : pending() == 0;
}

bool TaskOrder::CanDraw(codec::Order order, uint32_t epochs) const {
  if (drawable() == 0) return false;
  if (ByWeight(order) && weights_.total() == 0) return false;
  return epochs == 0 || epoch_ + 1 < epochs || (epoch_ < epochs && !EpochDone(order));
}

void TaskOrder::BeginEpoch() {
  ++epoch_;
  draws_ = 0;
  pending_.CopyFrom(drawable_);  // a bit a task: 1.2 MB for 10 million
  round_begin_ = round_end_ = position_ = 0;
}

uint32_t TaskOrder::Draw(codec::Order order, Prng& prng) {
  if (EpochDone(order)) BeginEpoch();
  uint32_t index = 0;
  switch (order) {
    case codec::Order::kStatic:
      index = *pending_.Next(0);
      break;
    case codec::Order::kWeighted:
    case codec::Order::kLearnable:
      index = weights_.Find(prng.Below(weights_.total()));
      break;
    case codec::Order::kShuffled:
      index = DrawShuffled();
      break;
  }
  pending_.Erase(index);
  ++draws_;
  return index;
}

uint32_t TaskOrder::DrawShuffled() {
  uint32_t last = 0;
  for (uint32_t skips = 0; skips < kSkipsMax; ++skips) {
    if (position_ == round_end_ - round_begin_) {
      if (round_end_ == size()) break;
      round_begin_ = round_end_;
      round_end_ = size();
      position_ = 0;
    }
    const uint64_t key = HashCombine(HashCombine(seed_, epoch_), round_begin_);
    last = round_begin_ + Permutation(key, round_end_ - round_begin_).At(position_++);
    if (pending_.Contains(last)) return last;
  }
  // Most of what the shuffle offers is gone, or requeued after its turn.
  const auto next = pending_.Next(last);
  return next ? *next : *pending_.Next(0);
}

uint32_t TaskOrder::NextNotDrawable(uint32_t from) const {
  for (size_t i = from / 64; i < drawable_.words(); ++i) {
    uint64_t out = ~drawable_.word(i);
    if (i == from / 64) out &= ~uint64_t{0} << (from % 64);
    if (out != 0) return std::min<uint32_t>(size(), i * 64 + std::countr_zero(out));
  }
  return size();
}

void TaskOrder::Snapshot(codec::Writer& writer) const {
  writer(epoch_, draws_, round_begin_, round_end_, position_);
  pending_.Snapshot(writer);
}

bool TaskOrder::Restore(codec::Reader& reader) {
  reader(epoch_, draws_, round_begin_, round_end_, position_);
  if (round_begin_ > round_end_ || round_end_ > size() || position_ > round_end_ - round_begin_) {
    return false;
  }
  for (size_t i = 0; i < pending_.words(); ++i) {
    uint64_t word = 0;
    reader(word);
    if ((word & ~drawable_.word(i)) != 0) return false;
    for (uint64_t gone = drawable_.word(i) & ~word; gone != 0; gone &= gone - 1) {
      pending_.Erase(static_cast<uint32_t>(i * 64 + std::countr_zero(gone)));
    }
  }
  return reader.ok();
}

size_t TaskOrder::memory_bytes() const {
  return drawable_.memory_bytes() + pending_.memory_bytes() + weights_.memory_bytes();
}

}  // namespace forebay::curriculum
