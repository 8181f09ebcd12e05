#include "cluster/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/prng.h"
#include "tests/unit/cluster/make.h"

namespace forebay::cluster {
namespace {

class Cluster {
 public:
  Cluster(uint32_t nodes, uint32_t count, uint32_t replicas) : replicas_(replicas) {
    for (uint32_t n = 1; n <= nodes; ++n) available.insert(NodeId(n));
    for (uint32_t m = 0; m < count; ++m) {
      Configuration c;  // all on the first nodes
      for (uint32_t n = 1; n <= replicas; ++n) {
        c.incarnations[NodeId(n)] = Incarnation(1);
        c.in_sync.emplace_back(n);
      }
      c.min_in_sync = std::min(replicas, 2u);
      machines.push_back(*Next(c, Promote{NodeId(1), Incarnation(1)}));
    }
  }

  // What a primary does: who is to leave leaves, who has come joins.
  void Primaries() {
    for (Configuration& c : machines) {
      for (const auto& [node, incarnation] : std::map(c.incarnations)) {
        if (!c.InSync(node) && !c.Leaving(node) && available.contains(node))
          c = *Next(c, ChangeInSync{c.primary, {{node, Incarnation(1)}}, {}});
      }
      for (const NodeId node : std::vector(c.leaving)) {
        if (node == c.primary) {
          for (const NodeId other : std::vector(c.in_sync)) {
            if (c.Leaving(other) || node != c.primary) continue;
            c = *Next(c, Promote{other, Incarnation(1), /*keep_primary=*/true});
          }
        }
        if (!c.InSync(node)) continue;
        const auto next = Next(c, ChangeInSync{c.primary, {}, {node}});
        if (next.ok()) c = *next;
      }
    }
  }

  // Moves until nothing is left to do.
  int Settle() {
    int moves = 0;
    for (int round = 0; round < 2'000; ++round) {
      const std::vector<Move> plan = PlanPlacement(machines, available, replicas_);
      if (plan.empty()) return moves;
      for (const Move& move : plan) {
        const auto next = Next(machines[move.machine], move.event);
        EXPECT_TRUE(next.ok()) << next.status();
        machines[move.machine] = *next;
        ++moves;
      }
      Primaries();
    }
    ADD_FAILURE() << "it never comes to rest";
    return moves;
  }

  void IsBalanced() const {
    std::map<NodeId, uint64_t> load;
    for (const NodeId node : available) load[node] = 0;
    for (const Configuration& c : machines) {
      EXPECT_EQ(c.in_sync.size(), replicas_);
      EXPECT_EQ(c.incarnations.size(), replicas_);
      for (const auto& [node, incarnation] : c.incarnations) {
        EXPECT_TRUE(available.contains(node));
        ++load[node];
      }
    }
    const auto by_load = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto [least, most] = std::minmax_element(load.begin(), load.end(), by_load);
    EXPECT_LE(most->second, least->second + 1);
  }

  std::vector<Configuration> machines;
  std::set<NodeId> available;

 private:
  const uint32_t replicas_;
};

TEST(Placement, SpreadsReplicasAndThenRests) {
  Cluster cluster(5, 9, 3);
  EXPECT_GT(cluster.Settle(), 0);
  cluster.IsBalanced();
  EXPECT_EQ(cluster.Settle(), 0);
}

TEST(Placement, ADrainedNodeIsEmptiedAfterOthersHaveItsReplicas) {
  Cluster cluster(4, 8, 3);
  cluster.Settle();
  cluster.available.erase(NodeId(2));
  const std::vector<Move> first = PlanPlacement(cluster.machines, cluster.available, 3);
  ASSERT_FALSE(first.empty());
  for (const Move& move : first) EXPECT_TRUE(std::holds_alternative<Place>(move.event));
  cluster.Settle();
  cluster.IsBalanced();
}

TEST(Placement, MovesLittleWhenANodeComes) {
  Cluster cluster(4, 20, 3);
  cluster.Settle();
  cluster.available.insert(NodeId(9));
  const int moves = cluster.Settle();
  cluster.IsBalanced();
  // 12 replicas go to the new node: each is placed, retired and displaced.
  EXPECT_LE(moves, 3 * 12);
}

TEST(Placement, TooFewNodesIsAsGoodAsItCanBe) {
  Cluster cluster(3, 4, 3);
  cluster.available.erase(NodeId(3));
  EXPECT_TRUE(PlanPlacement(cluster.machines, cluster.available, 3).empty());
  cluster.available.insert(NodeId(3));
  EXPECT_TRUE(PlanPlacement(cluster.machines, cluster.available, 3).empty());
}

TEST(Placement, ComesToRestWhateverHappens) {
  Prng prng(5);
  for (int i = 0; i < 50; ++i) {
    Cluster cluster(static_cast<uint32_t>(4 + prng.Below(6)),
                    static_cast<uint32_t>(1 + prng.Below(12)),
                    static_cast<uint32_t>(2 + prng.Below(2)));
    for (int change = 0; change < 4; ++change) {
      const NodeId node(static_cast<uint32_t>(1 + prng.Below(10)));
      if (cluster.available.contains(node) && cluster.available.size() > 4) {
        cluster.available.erase(node);
      } else {
        cluster.available.insert(node);
      }
      cluster.Settle();
      cluster.IsBalanced();
    }
  }
}

TEST(FailuresTolerated, CountsWhatIsInSyncAndWhatCanBe) {
  const std::set<NodeId> all = {NodeId(1), NodeId(2), NodeId(3)};
  EXPECT_EQ(FailuresTolerated(Make(1, 1, {1, 2, 3}), all), 1);
  EXPECT_EQ(FailuresTolerated(Make(1, 1, {1, 2}), all), 1);
  EXPECT_EQ(FailuresTolerated(Make(1, 1, {1, 2, 3}), {NodeId(1), NodeId(2)}), 0);
  EXPECT_EQ(FailuresTolerated(Make(1, 1, {1, 2}), {NodeId(2), NodeId(3)}), 0);
  EXPECT_EQ(FailuresTolerated(Make(1, 1, {1, 2}), {NodeId(3)}), -1);
  EXPECT_EQ(FailuresTolerated(Make(1, 1, {1, 2, 3}), {NodeId(1)}), -1);
  Configuration one = Make(1, 1, {1, 2, 3});
  one.min_in_sync = 1;
  EXPECT_EQ(FailuresTolerated(one, all), 2);
}

}  // namespace
}  // namespace forebay::cluster
