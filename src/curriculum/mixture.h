// Which source comes next: shares of attempts by weight, minimum shares first.
//
// Start-time fair queueing (Goyal, Vin, Cheng 1996) in whole numbers: a source's clock advances by
// attempts / weight, the smallest clock is next. A source with a minimum share has a second clock,
// attempts / share, that may not fall behind the count of all attempts. A source that could not
// take part for a while catches up kCatchUpAttempts at most. Each charge rounds once, by less than
// 2^-28 of an attempt, so shares do not drift. Not thread-safe.
#pragma once

#include <cstdint>

namespace forebay::curriculum {

class Mixture {
 public:
  static constexpr uint64_t kCatchUpAttempts = 1024;
  static constexpr double kWeightMax = 1 << 20;

  // 128 bits, which no run fills: as two words, because that is how they are stored.
  struct Clock {
    uint64_t high = 0;
    uint64_t low = 0;
    template <class A>
    void Fields(A& a) {
      a(high, low);
    }
  };

  // The place of one source in the mixture; its owner keeps it.
  struct Place {
    uint64_t weight = 0;         // unit 2^-32, at most kWeightMax
    uint64_t minimum_share = 0;  // unit 2^-32, at most 1
    Clock served;                // attempts / weight
    Clock guaranteed;            // attempts / minimum_share
    template <class A>
    void Fields(A& a) {
      a(weight, minimum_share, served, guaranteed);
    }
    // Without weight and minimum share a source is never chosen.
    bool TakesPart() const { return weight > 0 || minimum_share > 0; }
  };

  // Sets weight and share. If one of them changes, the clocks start at the present, so that the
  // change takes effect at once. A weight or share that is negative or not a number counts as 0.
  void Set(double weight, double minimum_share, Place* place) const;
  // True when `a` is to be served before `b`; false for equal ones. Both take part.
  bool Before(const Place& a, const Place& b) const;
  // `place` was served so many attempts.
  void Charge(uint64_t attempts, Place* place);
  // A place with this weight and share, its clocks at 0.
  static Place FixedPlace(double weight, double minimum_share);

  template <class A>
  void Fields(A& a) {
    a(now_, attempts_);
  }

 private:
  unsigned __int128 Served(const Place& place) const;
  unsigned __int128 Guaranteed(const Place& place) const;
  bool Behind(const Place& place) const;

  Clock now_;              // the clock of the source that was served by weight last
  uint64_t attempts_ = 0;  // of all sources
};

}  // namespace forebay::curriculum
