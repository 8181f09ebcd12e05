#include "batch/deal.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>

#include "base/check.h"
#include "batch/cost.h"

namespace forebay::batch {
namespace {

static_assert(kTotalCostBits + Dealer::kOwnerBits <= 64);

// How many of the lightest owners an exchange is sought with.
constexpr int kLightOwners = 8;
constexpr uint64_t kGoodExchange = 4;
constexpr uint64_t kVisitsPerItem = 8;
constexpr uint64_t kVisitsAtLeast = 1 << 16;

uint64_t Key(uint64_t high, uint32_t owner) { return (high << Dealer::kOwnerBits) | owner; }
uint64_t HighOf(uint64_t key) { return key >> Dealer::kOwnerBits; }
uint32_t OwnerOf(uint64_t key) {
  return static_cast<uint32_t>(key & ((uint64_t{1} << Dealer::kOwnerBits) - 1));
}

// Puts `key`, which is no smaller than the minimum, in the minimum's place of a binary min-heap.
void ReplaceMin(std::vector<uint64_t>& heap, uint64_t key) {
  const size_t size = heap.size();
  size_t hole = 0;
  for (size_t child = 1; child < size; child = 2 * hole + 1) {
    child += child + 1 < size && heap[child + 1] < heap[child];
    if (key <= heap[child]) break;
    heap[hole] = heap[child];
    hole = child;
  }
  heap[hole] = key;
}

}  // namespace

Dealer::Dealer(absl::Span<const uint32_t> sizes, absl::Span<const uint64_t> costs, uint32_t owners,
               uint32_t slots, uint32_t capacity)
    : sizes_(sizes),
      costs_(costs),
      owners_(owners),
      slots_(slots),
      capacity_(capacity),
      width_(std::bit_ceil(slots)),
      owner_(sizes.size()),
      slot_(sizes.size()),
      load_(owners),
      gaps_(size_t{owners} * 2 * width_, capacity) {
  FOREBAY_CHECK(owners >= 1 && owners < (1u << kOwnerBits) && slots >= 1);
  FOREBAY_CHECK(sizes.size() == costs.size());
  FOREBAY_CHECK(sizes.empty() || sizes[0] <= capacity);
  for (uint32_t owner = 0; owner < owners; ++owner) {
    uint32_t* gaps = Gaps(owner);
    std::fill(gaps + width_ + slots_, gaps + 2 * width_, 0);
    for (uint32_t node = width_; node-- > 1;)
      gaps[node] = std::max(gaps[2 * node], gaps[2 * node + 1]);
  }
}

void Dealer::SetGap(uint32_t owner, uint32_t slot, uint32_t gap) {
  uint32_t* gaps = Gaps(owner);
  uint32_t node = width_ + slot;
  gaps[node] = gap;
  while (node > 1) {
    node /= 2;
    gaps[node] = std::max(gaps[2 * node], gaps[2 * node + 1]);
  }
}

uint32_t Dealer::FirstFit(uint32_t owner, uint32_t size) {
  const uint32_t* gaps = Gaps(owner);
  uint32_t node = 1;
  while (node < width_) {
    node *= 2;
    node += gaps[node] < size;
  }
  return node - width_;
}

void Dealer::Place(uint32_t item, uint32_t owner, uint32_t slot) {
  FOREBAY_CHECK(Gap(owner, slot) >= sizes_[item]);
  owner_[item] = owner;
  slot_[item] = slot;
  load_[owner] += costs_[item];
  SetGap(owner, slot, Gap(owner, slot) - sizes_[item]);
}

void Dealer::Remove(uint32_t item) {
  load_[owner_[item]] -= costs_[item];
  SetGap(owner_[item], slot_[item], Gap(owner_[item], slot_[item]) + sizes_[item]);
}

size_t Dealer::Deal() {
  std::vector<uint64_t> open(owners_);  // min-heap by load
  std::vector<uint64_t> parked;         // max-heap by largest gap: without room for the last item
  for (uint32_t owner = 0; owner < owners_; ++owner) open[owner] = Key(0, owner);
  for (uint32_t item = 0; item < sizes_.size(); ++item) {
    const uint32_t size = sizes_[item];
    // Items shrink, so an owner without room for this one may have room for a later one. Each
    // return is followed by a placement: the parking is amortised.
    while (!parked.empty() && HighOf(parked.front()) >= size) {
      const uint32_t owner = OwnerOf(parked.front());
      std::pop_heap(parked.begin(), parked.end());
      parked.pop_back();
      open.push_back(Key(load_[owner], owner));
      std::push_heap(open.begin(), open.end(), std::greater<>());
    }
    while (!open.empty() && Gaps(OwnerOf(open.front()))[1] < size) {
      const uint32_t owner = OwnerOf(open.front());
      std::pop_heap(open.begin(), open.end(), std::greater<>());
      open.pop_back();
      parked.push_back(Key(Gaps(owner)[1], owner));
      std::push_heap(parked.begin(), parked.end());
      constrained_ = true;
    }
    if (open.empty()) return item;
    const uint32_t owner = OwnerOf(open.front());
    Place(item, owner, FirstFit(owner, size));
    ReplaceMin(open, Key(load_[owner], owner));
  }
  return sizes_.size();
}

uint64_t Dealer::HeaviestLoad() const { return *std::max_element(load_.begin(), load_.end()); }

void Dealer::Level(uint64_t enough) {
  if (HeaviestLoad() <= enough) return;
  items_.assign(owners_, {});
  slot_cost_.assign(size_t{owners_} * slots_, 0);
  for (uint32_t item = 0; item < sizes_.size(); ++item) {
    items_[owner_[item]].push_back(item);
    slot_cost_[size_t{owner_[item]} * slots_ + slot_[item]] += costs_[item];
  }
  std::set<uint64_t> by_load;
  for (uint32_t owner = 0; owner < owners_; ++owner) by_load.insert(Key(load_[owner], owner));
  visits_left_ = std::max(kVisitsAtLeast, kVisitsPerItem * sizes_.size());
  while (HighOf(*by_load.rbegin()) > enough) {
    const uint64_t heavy_key = *by_load.rbegin();
    const uint32_t heavy = OwnerOf(heavy_key);
    const std::optional<Exchange> exchange = BestExchange(heavy, by_load);
    if (!exchange.has_value()) break;
    by_load.erase(heavy_key);
    by_load.erase(Key(load_[exchange->light], exchange->light));
    exchange->bins ? ApplyBins(heavy, *exchange) : ApplyItems(heavy, *exchange);
    by_load.insert(Key(load_[heavy], heavy));
    by_load.insert(Key(load_[exchange->light], exchange->light));
  }
}

void Dealer::FillSlots(uint64_t most) {
  std::vector<uint32_t> counts(owners_);
  for (const uint32_t owner : owner_) ++counts[owner];
  auto cheapest = static_cast<uint32_t>(sizes_.size());  // items from here on are settled
  for (uint32_t poor = 0; poor < owners_; ++poor) {
    for (uint32_t slot = 0; slot < slots_ && counts[poor] < slots_; ++slot) {
      if (Gap(poor, slot) != capacity_) continue;
      while (cheapest > 0 && counts[owner_[cheapest - 1]] <= slots_) --cheapest;
      if (cheapest == 0) return;
      const uint32_t item = cheapest - 1;
      if (load_[poor] + costs_[item] > most) break;
      --cheapest;
      --counts[owner_[item]];
      ++counts[poor];
      Remove(item);
      Place(item, poor, slot);
    }
  }
}

std::optional<Dealer::Exchange> Dealer::BestExchange(uint32_t heavy,
                                                     const std::set<uint64_t>& by_load) {
  std::optional<Exchange> best;
  int tried = 0;
  for (const uint64_t key : by_load) {
    const uint32_t light = OwnerOf(key);
    if (light == heavy || tried++ == kLightOwners) break;
    uint64_t visits = items_[heavy].size() + items_[light].size();
    if (constrained_) visits += uint64_t{bins_tried()} * bins_tried();
    if (visits > visits_left_) return best;
    visits_left_ -= visits;
    ConsiderItems(heavy, light, best);
    if (constrained_) ConsiderBins(heavy, light, best);
    // Most of what levelling these two could give is enough; work is better spent elsewhere.
    const uint64_t middle = (load_[heavy] + load_[light]) / 2;
    if (best.has_value() && best->heavier - middle <= (load_[heavy] - middle) / kGoodExchange) {
      break;
    }
  }
  return best;
}

// Keeps `exchange` if it lowers the heavier of the two loads more than the best so far.
void Dealer::Offer(uint32_t heavy, uint64_t given, uint64_t taken, Exchange exchange,
                   std::optional<Exchange>& best) const {
  if (given <= taken) return;
  const uint64_t moved = given - taken;
  exchange.heavier = std::max(load_[heavy] - moved, load_[exchange.light] + moved);
  if (exchange.heavier < (best.has_value() ? best->heavier : load_[heavy])) best = exchange;
}

// Whether `give` has room with the light owner once `take` has left. `take`, which is no longer,
// always has room where `give` was.
bool Dealer::Fits(uint32_t give, uint32_t take, uint32_t light) {
  if (Gaps(light)[1] >= sizes_[give]) return true;
  return take != kNothing && Gap(light, slot_[take]) + sizes_[take] >= sizes_[give];
}

// For each item of the heavy owner the partners that would bring the two loads closest together;
// both lists descend in cost, so one walk over them finds all.
void Dealer::ConsiderItems(uint32_t heavy, uint32_t light, std::optional<Exchange>& best) {
  const uint64_t half = (load_[heavy] - load_[light]) / 2;
  const std::vector<uint32_t>& takes = items_[light];
  size_t next = 0;
  for (const uint32_t give : items_[heavy]) {
    const uint64_t cost = costs_[give];
    const uint64_t wanted = cost > half ? cost - half : 0;
    while (next < takes.size() && costs_[takes[next]] > wanted) ++next;
    if (items_[heavy].size() > 1 && Fits(give, kNothing, light)) {
      Offer(heavy, cost, 0, {light, give, kNothing, false, 0}, best);
    }
    for (size_t at = next > 0 ? next - 1 : 0; at < std::min(next + 1, takes.size()); ++at) {
      if (!Fits(give, takes[at], light)) continue;
      Offer(heavy, cost, costs_[takes[at]], {light, give, takes[at], false, 0}, best);
    }
  }
}

// Whole bins may always change places, also when no bin has room for a longer item.
void Dealer::ConsiderBins(uint32_t heavy, uint32_t light, std::optional<Exchange>& best) {
  const uint64_t* gives = &slot_cost_[size_t{heavy} * slots_];
  const uint64_t* takes = &slot_cost_[size_t{light} * slots_];
  for (uint32_t give = 0; give < bins_tried(); ++give) {
    for (uint32_t take = 0; take < bins_tried(); ++take) {
      Offer(heavy, gives[give], takes[take], {light, give, take, true, 0}, best);
    }
  }
}

void Dealer::ApplyItems(uint32_t heavy, const Exchange& exchange) {
  const auto move = [this](uint32_t item, uint32_t to, uint32_t slot) {
    std::vector<uint32_t>& from_items = items_[owner_[item]];
    from_items.erase(std::lower_bound(from_items.begin(), from_items.end(), item));
    slot_cost_[size_t{owner_[item]} * slots_ + slot_[item]] -= costs_[item];
    Place(item, to, slot);
    slot_cost_[size_t{to} * slots_ + slot] += costs_[item];
    std::vector<uint32_t>& to_items = items_[to];
    to_items.insert(std::lower_bound(to_items.begin(), to_items.end(), item), item);
  };
  const uint32_t freed = slot_[exchange.give];
  Remove(exchange.give);
  if (exchange.take != kNothing) {
    Remove(exchange.take);
    move(exchange.take, heavy, freed);
  }
  move(exchange.give, exchange.light, FirstFit(exchange.light, sizes_[exchange.give]));
}

void Dealer::ApplyBins(uint32_t heavy, const Exchange& exchange) {
  const uint32_t light = exchange.light;
  std::vector<uint32_t> both;
  std::merge(items_[heavy].begin(), items_[heavy].end(), items_[light].begin(), items_[light].end(),
             std::back_inserter(both));
  items_[heavy].clear();
  items_[light].clear();
  for (const uint32_t item : both) {
    if (owner_[item] == heavy && slot_[item] == exchange.give) {
      owner_[item] = light;
      slot_[item] = exchange.take;
    } else if (owner_[item] == light && slot_[item] == exchange.take) {
      owner_[item] = heavy;
      slot_[item] = exchange.give;
    }
    items_[owner_[item]].push_back(item);
  }
  uint64_t& given = slot_cost_[size_t{heavy} * slots_ + exchange.give];
  uint64_t& taken = slot_cost_[size_t{light} * slots_ + exchange.take];
  load_[heavy] -= given - taken;
  load_[light] += given - taken;
  std::swap(given, taken);
  const uint32_t heavy_gap = Gap(heavy, exchange.give);
  SetGap(heavy, exchange.give, Gap(light, exchange.take));
  SetGap(light, exchange.take, heavy_gap);
}

}  // namespace forebay::batch
