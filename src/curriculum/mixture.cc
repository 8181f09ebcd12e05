#include "curriculum/mixture.h"

#include <algorithm>
#include <utility>

namespace forebay::curriculum {
namespace {

using Time = unsigned __int128;

constexpr double kUnit = 4294967296.0;  // 2^32
constexpr int kShareShift = 32;         // attempts in the unit of `guaranteed`
constexpr int kServedShift = 80;        // attempts, divided by a weight in its own unit

Time Get(const Mixture::Clock& clock) { return Time{clock.high} << 64 | clock.low; }
Mixture::Clock Put(Time time) {
  return {static_cast<uint64_t>(time >> 64), static_cast<uint64_t>(time)};
}

uint64_t Fixed(double value, double max) {
  if (!(value > 0)) return 0;
  return std::max<uint64_t>(1, static_cast<uint64_t>(std::min(value, max) * kUnit));
}

// By how much the clock of a source may lie behind: what kCatchUpAttempts take, or less at the
// beginning.
Time Back(Time now, Time by) { return now > by ? now - by : 0; }

}  // namespace

Mixture::Place Mixture::FixedPlace(double weight, double minimum_share) {
  return {.weight = Fixed(weight, kWeightMax), .minimum_share = Fixed(minimum_share, 1)};
}

void Mixture::Set(double weight, double minimum_share, Place* place) const {
  const Place fresh = FixedPlace(weight, minimum_share);
  if (place->weight == fresh.weight && place->minimum_share == fresh.minimum_share) return;
  *place = fresh;
  place->served = now_;
  place->guaranteed = Put(Time{attempts_} << kShareShift);
}

unsigned __int128 Mixture::Served(const Place& place) const {
  const Time catch_up = (Time{kCatchUpAttempts} << kServedShift) / place.weight;
  return std::max(Get(place.served), Back(Get(now_), catch_up));
}

unsigned __int128 Mixture::Guaranteed(const Place& place) const {
  return std::max(Get(place.guaranteed), Back(Time{attempts_}, kCatchUpAttempts) << kShareShift);
}

bool Mixture::Behind(const Place& place) const {
  return place.minimum_share > 0 && Guaranteed(place) <= Time{attempts_} << kShareShift;
}

bool Mixture::Before(const Place& a, const Place& b) const {
  const bool a_behind = Behind(a);
  const bool b_behind = Behind(b);
  if (a_behind != b_behind) return a_behind;
  const bool by_guarantee = a_behind || (a.weight == 0 && b.weight == 0);
  // Clocks that the bound on catching up makes equal are told apart by where they really are: all
  // get their turns.
  if (by_guarantee) {
    return std::pair(Guaranteed(a), Get(a.guaranteed)) <
           std::pair(Guaranteed(b), Get(b.guaranteed));
  }
  if (a.weight == 0 || b.weight == 0) return a.weight > b.weight;
  return std::pair(Served(a), Get(a.served)) < std::pair(Served(b), Get(b.served));
}

void Mixture::Charge(uint64_t attempts, Place* place) {
  const bool by_guarantee = Behind(*place);
  if (place->weight > 0) {
    const Time start = Served(*place);
    // Served for its minimum share, a source may be far ahead of the others: that moves its own
    // clock only.
    if (!by_guarantee) now_ = Put(std::max(Get(now_), start));
    place->served = Put(start + (Time{attempts} << kServedShift) / place->weight);
  }
  if (place->minimum_share > 0) {
    // attempts / share, in units of 2^-32: the share itself has that unit, hence the shift by 64.
    place->guaranteed =
        Put(Guaranteed(*place) + (Time{attempts} << (2 * kShareShift)) / place->minimum_share);
  }
  attempts_ += attempts;
}

}  // namespace forebay::curriculum
