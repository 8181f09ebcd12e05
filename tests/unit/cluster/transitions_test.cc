// The table of transitions, line by line (docs/replication.md).
#include "cluster/transitions.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "tests/unit/cluster/make.h"

namespace forebay::cluster {
namespace {

const NodeId kOne{1}, kTwo{2}, kThree{3}, kFour{4};
const Incarnation kFirst{1}, kSecond{2};

Configuration After(const Configuration& now, const Event& event) {
  const auto next = Next(now, event);
  EXPECT_TRUE(next.ok()) << next.status();
  return next.ok() ? *next : Configuration();
}

void Refuses(const Configuration& now, const Event& event) {
  EXPECT_EQ(Next(now, event).status().code(), absl::StatusCode::kFailedPrecondition) << Text(now);
}

TEST(Transitions, Promote) {
  EXPECT_EQ(After(Make(4, 1, {1, 2, 3}), Promote{kTwo, kFirst}), Make(5, 2, {2, 3}));
  // The old primary stays where it is needed for the minimum, or has asked for it.
  EXPECT_EQ(After(Make(4, 1, {1, 2}), Promote{kTwo, kFirst}), Make(5, 2, {1, 2}));
  EXPECT_EQ(After(Make(4, 1, {1, 2, 3}), Promote{kTwo, kFirst, true}), Make(5, 2, {1, 2, 3}));
  EXPECT_EQ(After(Make(4, 1, {1, 2, 3}), Promote{kOne, kFirst}), Make(5, 1, {1, 2, 3}));
  EXPECT_EQ(After(Make(0, 0, {1, 2, 3}), Promote{kTwo, kFirst}), Make(1, 2, {1, 2, 3}));
  Refuses(Make(4, 1, {1, 2}), Promote{kThree, kFirst});
  Refuses(Make(4, 1, {1, 2}), Promote{kTwo, kSecond});
  Refuses(Make(4, 1, {1, 2}), Promote{kFour, kFirst});
}

TEST(Transitions, PromoteCut) {
  Configuration next = Make(5, 2, {1, 2});
  next.incarnations[kTwo] = kSecond;
  EXPECT_EQ(After(Make(4, 1, {1, 2}), PromoteCut{kTwo, kSecond}), next);
  Refuses(Make(4, 1, {1, 2}), PromoteCut{kTwo, kFirst});
  Refuses(Make(4, 1, {1, 2}), PromoteCut{kThree, kSecond});
}

TEST(Transitions, ChangeInSync) {
  EXPECT_EQ(After(Make(4, 1, {1, 2, 3}), ChangeInSync{kOne, {}, {kThree}}), Make(4, 1, {1, 2}));
  EXPECT_EQ(After(Make(4, 1, {1, 2}), ChangeInSync{kOne, {{kThree, kFirst}}, {}}),
            Make(4, 1, {1, 2, 3}));
  EXPECT_EQ(After(Make(4, 1, {1, 2}), ChangeInSync{kOne, {{kThree, kFirst}}, {kTwo}}),
            Make(4, 1, {1, 3}));
  Configuration next = Make(4, 1, {1, 2});
  next.incarnations[kTwo] = kSecond;
  EXPECT_EQ(After(Make(4, 1, {1, 2}), ChangeInSync{kOne, {{kTwo, kSecond}}, {}}), next);

  Refuses(Make(4, 1, {1, 2, 3}), ChangeInSync{kTwo, {}, {kThree}});  // not the primary
  Refuses(Make(0, 0, {1, 2, 3}), ChangeInSync{NodeId(), {}, {kThree}});
  Refuses(Make(4, 1, {1, 2, 3}), ChangeInSync{kOne, {}, {kOne}});
  Refuses(Make(4, 1, {1, 2, 3}), ChangeInSync{kOne, {}, {}});
  Refuses(Make(4, 1, {1, 2}), ChangeInSync{kOne, {}, {kTwo}});            // below the minimum
  Refuses(Make(4, 1, {1, 2}), ChangeInSync{kOne, {}, {kThree}});          // is not in sync
  Refuses(Make(4, 1, {1, 2}), ChangeInSync{kOne, {{kTwo, kFirst}}, {}});  // is
  Refuses(Make(4, 1, {1, 2}), ChangeInSync{kOne, {{kFour, kFirst}}, {}});
  Refuses(Make(4, 1, {1, 2}), ChangeInSync{kOne, {{kThree, Incarnation(0)}}, {}});
  Refuses(Make(4, 1, {1, 2}, {3}), ChangeInSync{kOne, {{kThree, kFirst}}, {}});  // is leaving
}

TEST(Transitions, PlaceRetireStayDisplace) {
  Configuration placed = Make(4, 1, {1, 2});
  placed.incarnations[kFour] = Incarnation();
  EXPECT_EQ(After(Make(4, 1, {1, 2}), Place{kFour}), placed);
  Refuses(Make(4, 1, {1, 2}), Place{kThree});
  Refuses(Make(4, 1, {1, 2}), Place{NodeId()});

  EXPECT_EQ(After(Make(4, 1, {1, 2}), Retire{kOne}), Make(4, 1, {1, 2}, {1}));
  Refuses(Make(4, 1, {1, 2}, {3}), Retire{kOne});  // two are needed
  Refuses(Make(4, 1, {1, 2}, {3}), Retire{kThree});
  Refuses(Make(4, 1, {1, 2}), Retire{kFour});
  EXPECT_EQ(After(Make(4, 1, {1, 2}, {3}), Stay{kThree}), Make(4, 1, {1, 2}));
  Refuses(Make(4, 1, {1, 2}), Stay{kThree});

  Configuration displaced = Make(4, 1, {1, 2});
  displaced.incarnations.erase(kThree);
  EXPECT_EQ(After(Make(4, 1, {1, 2}), Displace{kThree}), displaced);
  EXPECT_EQ(After(Make(4, 1, {1, 2}, {3}), Displace{kThree}), displaced);
  // Only the primary knows whether the others are what the set says.
  Refuses(Make(4, 1, {1, 2, 3}), Displace{kThree});
  Refuses(displaced, Displace{kThree});
}

TEST(Transitions, UnsafeFailover) {
  EXPECT_EQ(After(Make(4, 1, {1, 2}), UnsafeFailover{kThree, kFirst}), Make(5, 3, {3}));
  Refuses(Make(4, 1, {1, 2}), UnsafeFailover{kFour, kFirst});
  Refuses(Make(4, 1, {1, 2}), UnsafeFailover{kThree, Incarnation(0)});
}

// Whatever is asked for, in whatever order: what is granted is valid, epochs only rise, and no
// event but the unsafe one brings somebody into the set whom the primary has not let in.
TEST(Transitions, KeepTheirPromisesInAnyOrder) {
  Prng prng(11);
  Configuration now = Make(0, 0, {1, 2, 3});
  int granted = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto node = [&prng] { return NodeId(static_cast<uint32_t>(1 + prng.Below(5))); };
    const auto incarnation = [&prng] { return Incarnation(prng.Below(4)); };
    Event event = Place{node()};
    const uint64_t kind = prng.Below(6);
    if (kind == 1) event = Promote{node(), incarnation(), prng.Below(2) == 1};
    if (kind == 2) event = PromoteCut{node(), incarnation()};
    if (kind == 3) event = ChangeInSync{now.primary, {{node(), incarnation()}}, {node()}};
    if (kind == 4) event = prng.Below(2) == 0 ? Event(Retire{node()}) : Event(Stay{node()});
    if (kind == 5) event = Displace{node()};
    const auto next = Next(now, event);
    if (!next.ok()) continue;
    ++granted;
    ASSERT_TRUE(Validate(*next).ok());
    ASSERT_GE(next->epoch, now.epoch);
    if (next->primary != now.primary) {
      ASSERT_GT(next->epoch, now.epoch);
    }
    if (kind != 3) {
      for (const NodeId member : next->in_sync) ASSERT_TRUE(now.InSync(member));
    }
    ASSERT_GE(next->in_sync.size(), next->min_in_sync);
    now = *next;
  }
  EXPECT_GT(granted, 1'000);
}

}  // namespace
}  // namespace forebay::cluster
