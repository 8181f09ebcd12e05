#include "batch/pack.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "batch/check_pack.h"
#include "batch/deal.h"
#include "batch/order.h"

namespace forebay::batch {
namespace {

// Levelling ends once the heaviest rank is within 1/1024 of the mean.
constexpr uint64_t kLevelShare = 1024;
// A plan is good enough within 1/128 of the mean; beyond, more micro-batches per rank are tried,
// and taken if they lower the heaviest rank by over 1/100.
constexpr uint64_t kGoodShare = 128;
constexpr uint64_t kWorthShare = 100;
constexpr int kWiderTries = 2;
// An empty micro-batch gets a sequence if the heaviest rank rises by at most 1/256.
constexpr uint64_t kFillShare = 256;

uint32_t RoundUp(uint64_t value, uint32_t multiple) {
  return static_cast<uint32_t>((value + multiple - 1) / multiple * multiple);
}

// The sequences of one mini-batch from the longest to the shortest.
struct Items {
  std::vector<uint32_t> sequence;
  std::vector<uint32_t> size;  // tokens; the capacity for a sequence over it, which goes alone
  std::vector<uint64_t> cost;
};

class Packer {
 public:
  Packer(absl::Span<const SequenceSize> sequences, const PackSpec& spec)
      : sequences_(sequences), spec_(spec), capacity_(static_cast<uint32_t>(Capacity(spec))) {
    std::vector<uint32_t> tokens(sequences.size());
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = sequences[i].tokens;
    costs_ = ScaledCosts(tokens, spec.cost);
  }

  Plan MakePlan() const {
    Plan plan;
    plan.mini_batches.reserve(spec_.mini_batches);
    for (const std::vector<uint32_t>& members : SplitMiniBatches()) {
      plan.mini_batches.push_back(PackMiniBatch(ItemsOf(members)));
      const MiniBatch& mini_batch = plan.mini_batches.back();
      for (uint32_t m = 0; m < mini_batch.micro_batch_count(); ++m) {
        plan.filler_micro_batches += mini_batch.micro_batch(m).filler();
      }
    }
    return plan;
  }

  Items ItemsOf(absl::Span<const uint32_t> members) const {
    std::vector<uint64_t> keys(members.size());
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = sequences_[members[i]].tokens;
    Items items;
    items.sequence = OrderDescending(keys);
    items.size.resize(keys.size());
    items.cost.resize(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      const uint32_t sequence = members[items.sequence[i]];
      items.sequence[i] = sequence;
      items.size[i] = std::min(sequences_[sequence].tokens, capacity_);
      items.cost[i] = costs_[sequence];
    }
    return items;
  }

  uint64_t CostOf(absl::Span<const uint32_t> sequences) const {
    uint64_t cost = 0;
    for (const uint32_t sequence : sequences) cost += costs_[sequence];
    return cost;
  }

  // The fewest micro-batches per rank that `items` can need.
  uint32_t FewestPerRank(const Items& items) const {
    const uint64_t bins = FewestBins(items.size, capacity_);
    return RoundUp((bins + spec_.dp - 1) / spec_.dp, spec_.micro_batches_multiple_of);
  }

 private:
  std::vector<std::vector<uint32_t>> SplitMiniBatches() const;
  Dealer DealToRanks(const Items& items) const;
  MiniBatch PackMiniBatch(const Items& items) const;
  void AppendRank(const Items& items, const Dealer& dealer, absl::Span<const uint32_t> mine,
                  MiniBatch& mini_batch) const;

  absl::Span<const SequenceSize> sequences_;
  const PackSpec& spec_;
  uint32_t capacity_;
  std::vector<uint64_t> costs_;  // by sequence
};

// Deals rollouts (or groups) as if each mini-batch had room for as many as its share, so that
// numbers are even and costs are level; the smallest ones that are left over follow.
std::vector<std::vector<uint32_t>> Packer::SplitMiniBatches() const {
  const uint32_t count = spec_.mini_batches;
  std::vector<std::vector<uint32_t>> members(count);
  if (count == 1) {
    members[0].resize(sequences_.size());
    std::iota(members[0].begin(), members[0].end(), 0);
    return members;
  }
  const auto unit_of = [&](uint32_t sequence) {
    return spec_.groups_whole ? sequences_[sequence].group : sequences_[sequence].rollout;
  };
  const auto sequence_count = static_cast<uint32_t>(sequences_.size());
  std::vector<uint64_t> unit_costs(size_t{unit_of(sequence_count - 1)} + 1);
  for (uint32_t i = 0; i < sequence_count; ++i) unit_costs[unit_of(i)] += costs_[i];

  const std::vector<uint32_t> order = OrderDescending(unit_costs);
  const auto share = static_cast<uint32_t>(order.size() / count);
  const std::vector<uint32_t> sizes(size_t{share} * count, 1);
  std::vector<uint64_t> costs(sizes.size());
  for (size_t i = 0; i < costs.size(); ++i) costs[i] = unit_costs[order[i]];
  Dealer dealer(sizes, costs, count, 1, share);
  FOREBAY_CHECK(dealer.Deal() == sizes.size());
  const uint64_t mean = std::accumulate(costs.begin(), costs.end(), uint64_t{0}) / count;
  dealer.Level(mean + mean / kLevelShare);

  std::vector<std::pair<uint64_t, uint32_t>> loads(count);
  for (uint32_t m = 0; m < count; ++m) loads[m] = {dealer.load(m), m};
  std::sort(loads.begin(), loads.end());
  std::vector<uint32_t> mini_batch_of(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    mini_batch_of[order[i]] = i < sizes.size() ? dealer.owner(i) : loads[i - sizes.size()].second;
  }
  for (uint32_t i = 0; i < sequence_count; ++i) members[mini_batch_of[unit_of(i)]].push_back(i);
  return members;
}

// Deals with the fewest micro-batches per rank that hold the items, or some more if that pays.
Dealer Packer::DealToRanks(const Items& items) const {
  const uint32_t multiple = spec_.micro_batches_multiple_of;
  const uint64_t total = std::accumulate(items.cost.begin(), items.cost.end(), uint64_t{0});
  const uint64_t mean = total / spec_.dp;
  const uint64_t good = std::max(items.cost[0], mean + mean / kGoodShare);
  const uint64_t level = std::max(items.cost[0], mean + mean / kLevelShare);

  std::optional<Dealer> best;
  int wider_tries = 0;
  for (uint32_t per_rank = FewestPerRank(items);;) {
    Dealer dealer(items.size, items.cost, spec_.dp, per_rank, capacity_);
    const size_t dealt = dealer.Deal();
    if (dealt < items.size.size()) {
      // At least as many more as the tokens that are left over fill.
      const uint64_t left = std::accumulate(items.size.begin() + static_cast<ptrdiff_t>(dealt),
                                            items.size.end(), uint64_t{0});
      const uint64_t room = uint64_t{capacity_} * spec_.dp;
      per_rank += RoundUp((left + room - 1) / room, multiple);
      continue;
    }
    dealer.Level(level);
    const uint64_t heaviest = dealer.HeaviestLoad();
    const bool better =
        !best.has_value() || heaviest < best->HeaviestLoad() - best->HeaviestLoad() / kWorthShare;
    const bool constrained = dealer.constrained();
    if (better) best.emplace(std::move(dealer));
    if (!better || heaviest <= good || !constrained || wider_tries++ == kWiderTries) return *best;
    per_rank += RoundUp(std::max<uint64_t>(1, per_rank / 16), multiple);
  }
}

MiniBatch Packer::PackMiniBatch(const Items& items) const {
  Dealer dealer = DealToRanks(items);
  const uint64_t heaviest = dealer.HeaviestLoad();
  dealer.FillSlots(heaviest + heaviest / kFillShare);
  MiniBatch mini_batch;
  mini_batch.micro_batches_per_rank = dealer.slots();
  const size_t micro_batches = size_t{spec_.dp} * dealer.slots();
  mini_batch.sequences.reserve(items.sequence.size());
  mini_batch.begin.reserve(micro_batches + 1);
  mini_batch.begin.push_back(0);
  mini_batch.tokens.reserve(micro_batches);
  mini_batch.padded_tokens.reserve(micro_batches);

  // A counting sort by rank keeps each rank's items in descending order.
  std::vector<uint32_t> rank_begin(size_t{spec_.dp} + 1);
  for (uint32_t item = 0; item < items.size.size(); ++item) ++rank_begin[dealer.owner(item) + 1];
  std::partial_sum(rank_begin.begin(), rank_begin.end(), rank_begin.begin());
  std::vector<uint32_t> next(rank_begin.begin(), rank_begin.end() - 1);
  std::vector<uint32_t> by_rank(items.size.size());
  for (uint32_t item = 0; item < items.size.size(); ++item) {
    by_rank[next[dealer.owner(item)]++] = item;
  }
  for (uint32_t rank = 0; rank < spec_.dp; ++rank) {
    const uint32_t begin = rank_begin[rank];
    AppendRank(items, dealer,
               absl::MakeConstSpan(by_rank).subspan(begin, rank_begin[rank + 1] - begin),
               mini_batch);
  }
  return mini_batch;
}

// Appends a rank's micro-batches. Its items are dealt once more, level over its own micro-batches;
// where budgets are too tight for that, they stay as they were packed.
void Packer::AppendRank(const Items& items, const Dealer& dealer, absl::Span<const uint32_t> mine,
                        MiniBatch& mini_batch) const {
  const uint32_t slots = dealer.slots();
  std::vector<uint32_t> sizes(mine.size());
  std::vector<uint64_t> costs(mine.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    sizes[i] = items.size[mine[i]];
    costs[i] = items.cost[mine[i]];
  }
  Dealer within(sizes, costs, slots, 1, capacity_);
  const bool level = within.Deal() == mine.size();

  std::vector<std::vector<uint32_t>> bins(slots);
  std::vector<std::pair<uint64_t, uint32_t>> order(slots);  // cost, bin
  for (uint32_t bin = 0; bin < slots; ++bin) order[bin] = {0, bin};
  for (size_t i = 0; i < mine.size(); ++i) {
    const uint32_t bin = level ? within.owner(i) : dealer.slot(mine[i]);
    bins[bin].push_back(items.sequence[mine[i]]);
    order[bin].first += costs[i];
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  for (const auto& [cost, bin] : order) {
    std::sort(bins[bin].begin(), bins[bin].end());
    uint64_t tokens = 0;
    for (const uint32_t sequence : bins[bin]) {
      mini_batch.sequences.push_back(sequence);
      tokens += sequences_[sequence].tokens;
    }
    const uint64_t pad = spec_.pad_multiple;
    mini_batch.begin.push_back(static_cast<uint32_t>(mini_batch.sequences.size()));
    mini_batch.tokens.push_back(tokens);
    mini_batch.padded_tokens.push_back((tokens + pad - 1) / pad * pad);
  }
}

}  // namespace

uint64_t FewestBins(absl::Span<const uint32_t> sizes, uint32_t capacity) {
  // Sizes above half the capacity need a bin each. For a threshold t, those above capacity - t
  // share theirs with nothing of size t or more; the rest of that size must fit beside the halves.
  const size_t halves = std::partition_point(sizes.begin(), sizes.end(),
                                             [&](uint32_t size) { return size > capacity / 2; }) -
                        sizes.begin();
  size_t alone = halves;  // of the large ones, those above capacity - t
  uint64_t room = 0;      // beside the other large ones
  uint64_t small = 0;     // tokens of sizes from t to capacity / 2
  uint64_t fewest = halves;
  for (size_t i = halves; i < sizes.size(); ++i) {
    const uint32_t threshold = sizes[i];
    small += threshold;
    while (alone > 0 && sizes[alone - 1] <= capacity - threshold) {
      room += capacity - sizes[--alone];
    }
    if (small > room) fewest = std::max(fewest, halves + (small - room + capacity - 1) / capacity);
  }
  return fewest;
}

absl::StatusOr<Plan> Pack(absl::Span<const SequenceSize> sequences, const PackSpec& spec) {
  FOREBAY_RETURN_IF_ERROR(CheckPack(sequences, spec));
  return Packer(sequences, spec).MakePlan();
}

PlanQuality Measure(absl::Span<const SequenceSize> sequences, const PackSpec& spec,
                    const Plan& plan) {
  const Packer packer(sequences, spec);
  PlanQuality quality;
  uint64_t total = 0, heaviest_mini_batch = 0, tokens = 0, micro_batches = 0, fewest = 0;
  for (const MiniBatch& mini_batch : plan.mini_batches) {
    uint64_t heaviest = 0;
    for (uint32_t rank = 0; rank < spec.dp; ++rank) {
      const uint32_t first = rank * mini_batch.micro_batches_per_rank;
      const uint32_t begin = mini_batch.begin[first];
      const uint32_t end = mini_batch.begin[first + mini_batch.micro_batches_per_rank];
      heaviest = std::max(
          heaviest,
          packer.CostOf(absl::MakeConstSpan(mini_batch.sequences).subspan(begin, end - begin)));
    }
    const uint64_t cost = packer.CostOf(mini_batch.sequences);
    quality.imbalance = std::max(
        quality.imbalance, static_cast<double>(heaviest) * spec.dp / static_cast<double>(cost) - 1);
    total += cost;
    heaviest_mini_batch = std::max(heaviest_mini_batch, cost);
    for (const uint64_t in_micro_batch : mini_batch.tokens) tokens += in_micro_batch;
    micro_batches += mini_batch.micro_batch_count();
    fewest += uint64_t{spec.dp} * packer.FewestPerRank(packer.ItemsOf(mini_batch.sequences));
  }
  const auto count = static_cast<double>(micro_batches);
  quality.mini_batch_imbalance = static_cast<double>(heaviest_mini_batch) *
                                     static_cast<double>(plan.mini_batches.size()) /
                                     static_cast<double>(total) -
                                 1;
  quality.fill = static_cast<double>(fewest) / count;
  quality.token_fill = static_cast<double>(tokens) / (count * static_cast<double>(Capacity(spec)));
  return quality;
}

}  // namespace forebay::batch
