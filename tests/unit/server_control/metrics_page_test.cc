#include "server/metrics_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace forebay::server {
namespace {

using ::testing::HasSubstr;

Observation Busy() {
  Observation seen;
  seen.drift.table.lags[1].tokens = 1;
  SourceFacts source;
  source.name = "ma\"th";
  source.counters.assignments = 12;
  source.counters.dropped[static_cast<size_t>(shard::DropReason::kStale)] = 3;
  seen.sources.push_back(source);
  seen.engines.push_back({.name = "e0", .behind = 2});
  seen.shards = 2;
  seen.absent = {{.shard = ShardId(1), .why = "shard-1 is absent"}};
  seen.storage.durable = true;
  seen.storage.snapshots["shard-0"] = {.taken = 4, .pause_seconds_max = 0.25};
  seen.logs = {{"ledger", {.bytes = 100, .bytes_max = 1000}}};
  return seen;
}

// A node that follows, with a replica and a peer.
ClusterPage Clustered() {
  ClusterPage page;
  page.facts.node = 2;
  page.facts.leader = 1;
  page.facts.epoch = 7;
  page.facts.tolerated = 0;
  page.facts.tolerable = 1;
  page.facts.paused = true;
  page.facts.paused_why = "ann@desk: maintenance";
  page.facts.drained = {3};
  page.facts.machines = 2;
  page.facts.out_of_sync = {{.node = 3, .present = false, .behind = {"ledger", "shard-0"}},
                            {.node = 4, .present = true, .behind = {"shard-0"}}};
  page.replicas = {{"ledger", {.epoch = cluster::Epoch(7), .last = LogPosition(12)}}};
  page.peers[cluster::NodeId(1)].last_heard = absl::UnixEpoch();
  return page;
}

TEST(MetricsPage, ANodeThatFollowsTellsOfItsReplicas) {
  const std::string page = FollowerMetricsPage(Clustered(), MethodTable(), 5'000);
  for (const char* line :
       {"forebay_cluster_leads 0\n", "forebay_cluster_leader 1\n", "forebay_cluster_paused 1\n",
        "forebay_replica_primary{machine=\"ledger\"} 0\n",
        "forebay_replica_position{machine=\"ledger\",what=\"last\"} 12\n",
        "forebay_uptime_seconds 5\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  EXPECT_THAT(page, ::testing::Not(HasSubstr("forebay_sources")));
}

TEST(MetricsPage, ADaemonAloneTellsOfNoCluster) {
  EXPECT_THAT(MetricsPage(Observation(), RunMetrics(), MethodTable()),
              ::testing::Not(HasSubstr("forebay_cluster")));
}

TEST(ClusterReasons, NameWhatIsWrongTheGravestFirst) {
  ClusterFacts facts = Clustered().facts;
  facts.coordinator_reachable = false;
  facts.coordinator_away_ms = 12'345;
  facts.coordinator_why = "connection refused";
  std::vector<std::string> reasons;
  AddClusterReasons(facts, &reasons);
  EXPECT_THAT(
      reasons,
      ::testing::ElementsAre(
          "etcd cannot be reached since 12 s, and no node can take over meanwhile: connection "
          "refused",
          "can lose 0 nodes now, and 1 when all replicas are in sync",
          "node 3 is down, and out of sync with every machine",
          "node 4 is out of sync with shard-0",
          "automatic failover is paused by ann@desk: maintenance (buffer-ctl failover resume)",
          "node 3 is drained (buffer-ctl undrain 3)"));
  reasons.clear();
  AddClusterReasons(ClusterFacts(), &reasons);
  EXPECT_TRUE(reasons.empty());
}

TEST(MetricsPage, CountsBySourceAndReasonWithEscapedNames) {
  const std::string page = MetricsPage(Busy(), RunMetrics(), MethodTable());
  EXPECT_THAT(page, HasSubstr("forebay_assignments_total{source=\"ma\\\"th\"} 12"));
  EXPECT_THAT(page,
              HasSubstr("forebay_rollouts_dropped_total{source=\"ma\\\"th\",reason=\"stale\"} 3"));
  EXPECT_THAT(page, HasSubstr("forebay_engine_behind{engine=\"e0\"} 2"));
  EXPECT_THAT(page, HasSubstr("forebay_shards_absent 1"));
  EXPECT_THAT(page, HasSubstr("forebay_shard_absent{shard=\"0\"} 0"));
  EXPECT_THAT(page, HasSubstr("forebay_shard_absent{shard=\"1\"} 1"));
  EXPECT_THAT(page, HasSubstr("forebay_snapshots_total{log=\"shard-0\"} 4"));
  EXPECT_THAT(page, HasSubstr("forebay_snapshot_pause_seconds_max{log=\"shard-0\"} 0.25"));
}

TEST(MetricsPage, LagsBecomeACumulativeHistogram) {
  RunMetrics run;
  run.Committed({5, 3});
  run.Committed({1, 0, 0, 0, 0, 2});
  const std::string page = MetricsPage(Observation(), run, MethodTable());
  EXPECT_THAT(page, HasSubstr("forebay_trained_lag_bucket{le=\"0\"} 6"));
  EXPECT_THAT(page, HasSubstr("forebay_trained_lag_bucket{le=\"1\"} 9"));
  EXPECT_THAT(page, HasSubstr("forebay_trained_lag_bucket{le=\"6\"} 11"));
  EXPECT_THAT(page, HasSubstr("forebay_trained_lag_bucket{le=\"+Inf\"} 11"));
  EXPECT_THAT(page, HasSubstr("forebay_trained_lag_sum 13"));
}

TEST(MetricsPage, CallsAreCountedByCodeWithTheirLatency) {
  MethodTable methods;
  methods.AddUnary("/s/M", [](const CallContext&, grpc::ByteBuffer, Responder) {});
  auto& stats = methods.Find("/s/M")->stats;
  stats.running = 1;
  stats.Ended(5);
  stats.Took(100);
  const std::string page = MetricsPage(Observation(), RunMetrics(), methods);
  EXPECT_THAT(page, HasSubstr("forebay_rpc_ended_total{method=\"/s/M\",code=\"5\"} 1"));
  EXPECT_THAT(page, HasSubstr("forebay_rpc_seconds_count{method=\"/s/M\"} 1"));
}

size_t Lines(const std::string& page) {
  return static_cast<size_t>(std::count(page.begin(), page.end(), '\n'));
}

// Of as many sources and engines as a run may have.
TEST(MetricsPage, TheNumberOfSeriesIsBounded) {
  Observation seen;
  for (uint32_t i = 0; i < 1024; ++i) {
    SourceFacts source;
    source.name = "s" + std::to_string(i);
    source.counters.assignments = i;
    seen.sources.push_back(source);
  }
  for (uint32_t i = 0; i < 16'384; ++i) {
    seen.engines.push_back({.name = "e" + std::to_string(i),
                            .version = {.number = 100 + i},
                            .behind = i % 100,
                            .pause_ms = i});
  }
  RunMetrics run;
  for (int i = 0; i < 1000; ++i) {
    run.Waited("actor", "admission: version " + std::to_string(i), 5);
    run.Waited("actor",
               std::string("x") + static_cast<char>('a' + i % 26) +
                   static_cast<char>('a' + i / 26 % 26) + "y",
               5);
  }
  const std::string page = MetricsPage(seen, run, MethodTable());
  EXPECT_LT(Lines(page), 7'000u);
  // What is the busiest, or the furthest behind, has its own line; the rest is not lost.
  EXPECT_THAT(page, HasSubstr("forebay_sources 1024"));
  EXPECT_THAT(page, HasSubstr("forebay_assignments_total{source=\"s1023\"} 1023"));
  EXPECT_THAT(page, HasSubstr("forebay_assignments_total{source=\"s960\"} 960"));
  EXPECT_THAT(page, HasSubstr("forebay_assignments_total{source=\"(other)\"} " +
                              std::to_string(959 * 960 / 2)));
  EXPECT_THAT(page, HasSubstr("forebay_engines 16384"));
  EXPECT_THAT(page, HasSubstr("forebay_engine_behind{engine=\"e99\"} 99"));
  EXPECT_THAT(page, HasSubstr("forebay_engine_version{engine=\"(other)\"} 100"));
  EXPECT_THAT(page,
              HasSubstr("forebay_waited_seconds_total{who=\"actor\",reason=\"admission\"} 5"));
}

TEST(MetricsPage, ASourceNamedAsTheRestIsPartOfIt) {
  Observation seen;
  seen.sources.resize(65);
  for (size_t i = 0; i < seen.sources.size(); ++i) {
    seen.sources[i].name = i == 64 ? "(other)" : "s" + std::to_string(i);
    seen.sources[i].counters.assignments = i;
  }
  const std::string page = MetricsPage(seen, RunMetrics(), MethodTable());
  EXPECT_THAT(page, HasSubstr("forebay_assignments_total{source=\"(other)\"} 64"));
}

// The page of the documentation and the program name the same metrics.
TEST(MetricsPage, EveryMetricIsDocumentedAndNoOther) {
  MethodTable methods;
  methods.AddUnary("/s/M", [](const CallContext&, grpc::ByteBuffer, Responder) {});
  methods.Find("/s/M")->stats.running = 1;
  methods.Find("/s/M")->stats.Ended(0);
  RunMetrics run;
  run.Waited("trainer", "memory", 5);
  std::istringstream page(MetricsPage(Busy(), run, methods, Clustered()));
  std::set<std::string> shown;
  for (std::string line; std::getline(page, line);) {
    std::istringstream words(line);
    std::string hash, type, name;
    words >> hash >> type >> name;
    if (hash == "#" && type == "TYPE") shown.insert(name);
  }
  std::ifstream file(FOREBAY_METRICS_MD);
  std::set<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| `", 0) == 0) documented.insert(line.substr(3, line.find('`', 3) - 3));
  }
  EXPECT_EQ(shown, documented);
}

}  // namespace
}  // namespace forebay::server
