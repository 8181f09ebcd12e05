// Deals sequences to owners so that costs are level and token budgets hold.
//
// An owner (a data-parallel rank) has `slots` bins (its micro-batches) of `capacity` tokens each.
// Passes: longest first to the owner with the least cost that still has room (Graham's LPT
// rule); exchanges between the heaviest owner and light ones; empty bins filled. An owner's bins
// are packed first-fit decreasing.
//
// A value; not thread-safe. Callers give sizes in descending order, none above the capacity, with
// costs that descend with them, are at least 1 and sum to less than 2^kTotalCostBits.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "absl/types/span.h"

namespace forebay::batch {

class Dealer {
 public:
  static constexpr int kOwnerBits = 24;  // a cost and an owner share one 64-bit key

  // The spans are borrowed and must outlive the dealer. owners and slots are at least 1.
  Dealer(absl::Span<const uint32_t> sizes, absl::Span<const uint64_t> costs, uint32_t owners,
         uint32_t slots, uint32_t capacity);

  // First pass. Returns how many items found room: all, or the first ones up to one that fits into
  // no bin of any owner. With at least as many bins as items, all find room.
  size_t Deal();

  // Second pass, after a Deal that found room for all: lowers the heaviest load while it is above
  // `enough` and an exchange helps. The work is bounded by a multiple of the number of items.
  void Level(uint64_t enough);

  // Third pass: gives owners with fewer items than slots the cheapest items of owners with more, as
  // long as no load rises above `most`, so that no slot is empty without need.
  void FillSlots(uint64_t most);

  uint32_t slots() const { return slots_; }
  uint32_t owner(size_t item) const { return owner_[item]; }
  uint32_t slot(size_t item) const { return slot_[item]; }
  uint64_t load(uint32_t owner) const { return load_[owner]; }
  uint64_t HeaviestLoad() const;
  // Whether some item went elsewhere than its cost alone would have sent it.
  bool constrained() const { return constrained_; }

 private:
  // One step of levelling: `give` goes from the heavy owner to `light`, `take` comes back. They are
  // items, or, with `bins`, slots whose whole contents change places.
  struct Exchange {
    uint32_t light;
    uint32_t give;
    uint32_t take;
    bool bins;
    uint64_t heavier;  // the larger of the two loads afterwards
  };
  static constexpr uint32_t kNothing = ~0u;
  static constexpr uint32_t kBinsTried = 32;

  uint32_t* Gaps(uint32_t owner) { return &gaps_[size_t{owner} * 2 * width_]; }
  uint32_t Gap(uint32_t owner, uint32_t slot) { return Gaps(owner)[width_ + slot]; }
  uint32_t bins_tried() const { return slots_ < kBinsTried ? slots_ : kBinsTried; }
  void SetGap(uint32_t owner, uint32_t slot, uint32_t gap);
  uint32_t FirstFit(uint32_t owner, uint32_t size);
  void Place(uint32_t item, uint32_t owner, uint32_t slot);
  void Remove(uint32_t item);

  std::optional<Exchange> BestExchange(uint32_t heavy, const std::set<uint64_t>& by_load);
  void ConsiderItems(uint32_t heavy, uint32_t light, std::optional<Exchange>& best);
  void ConsiderBins(uint32_t heavy, uint32_t light, std::optional<Exchange>& best);
  void Offer(uint32_t heavy, uint64_t given, uint64_t taken, Exchange exchange,
             std::optional<Exchange>& best) const;
  bool Fits(uint32_t give, uint32_t take, uint32_t light);
  void ApplyItems(uint32_t heavy, const Exchange& exchange);
  void ApplyBins(uint32_t heavy, const Exchange& exchange);

  absl::Span<const uint32_t> sizes_;
  absl::Span<const uint64_t> costs_;
  uint32_t owners_;
  uint32_t slots_;
  uint32_t capacity_;
  uint32_t width_;  // slots rounded up to a power of two
  bool constrained_ = false;
  std::vector<uint32_t> owner_;  // by item
  std::vector<uint32_t> slot_;   // by item
  std::vector<uint64_t> load_;   // by owner
  // Per owner a tournament tree of 2 * width_ nodes: node 1 is the root, leaves are the free tokens
  // of each slot, an inner node is the larger child.
  std::vector<uint32_t> gaps_;
  // While levelling: each owner's items in ascending order, hence in descending cost; and the cost
  // of each owner's slots.
  std::vector<std::vector<uint32_t>> items_;
  std::vector<uint64_t> slot_cost_;
  uint64_t visits_left_ = 0;
};

}  // namespace forebay::batch
