// One look at the whole daemon, for status and metrics: gathered from the loops one after another,
// then a plain value.
//
// Observe may be called from any thread; `done` runs inside a loop and must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "drift/outliers.h"
#include "drift/table.h"
#include "node/engine.h"
#include "server/client_table.h"
#include "server/run_storage.h"
#include "server/services.h"

namespace forebay::server {

struct SourceFacts {
  std::string name;
  bool eval = false;
  bool paused = false;
  uint64_t attempts_per_task = 0;
  uint64_t tasks = 0;
  uint64_t quarantined = 0;
  uint64_t epoch = 0;
  uint64_t groups_open = 0, groups_ready = 0, groups_reserved = 0, ready_tokens = 0;
  uint64_t in_flight = 0;
  uint64_t outstanding = 0, outstanding_max = 0;
  // Means over the shards, by what each has accepted.
  double survival = 1, mean_tokens = 0, mean_duration_ms = 0;
  double mean_tokens_dispatched = 0, mean_tokens_trained = 0, mean_reward = 0;
  shard::SourceCounters counters;

  // One shard's part of the source.
  void Add(const shard::SourceView& view);
  // Adds another source up with this one, which keeps its name.
  void Merge(const SourceFacts& other);
};

struct StepFacts {
  uint64_t step = 0;
  std::string state;    // "open", "reserved", "sealed", "committed", "aborted"
  std::string waiting;  // why it is not sealed
  uint64_t waited_ms = 0;
  uint64_t groups = 0, groups_wanted = 0;
  bool too_large = false;  // for the memory for payloads
  bool lacks_groups = false;
};

struct EngineFacts {
  std::string name;
  PolicyVersion version;
  uint32_t behind = 0;
  uint64_t pending_to_loaded_ms = 0;
  uint64_t pause_ms = 0;
};

// How far the trainer is from the engines.
struct DriftFacts {
  drift::Table table;
  std::vector<drift::Outlier> outliers;
  std::string hold;  // why no more steps are sealed; "": they are
  uint64_t reports = 0, repeated = 0;
};

struct ProcessFacts {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0;
  uint64_t threads = 0;
  uint64_t open_files = 0;
};

// Of a run in a directory.
struct StorageFacts {
  bool durable = false;
  storage::StoreUse use;
  storage::StoreTrouble trouble;
  uint64_t trouble_ms = 0;                                                // how long it has lasted
  std::map<std::string, RunStorage::SnapshotUse, std::less<>> snapshots;  // by machine
};

// Of one machine.
struct LogFacts {
  std::string machine;
  node::LogQueue queue;
};

struct AbsentShard {
  ShardId shard;
  std::string why;  // names it
  bool planned_without = false;
  uint64_t planned_rollouts = 0;  // of it, in plans that are not committed: served from the store
};

struct Observation {
  bool draining = false;
  uint32_t shards = 0;
  std::vector<AbsentShard> absent;
  std::vector<SourceFacts> sources;
  uint64_t sessions = 0;     // ever opened, and remembered
  uint64_t actors_live = 0;  // heard within clients.silent_ms
  uint64_t acquires_waiting = 0;
  std::string
      idle_reason;  // why an Acquire for any source would get nothing; "" if it would get something
  uint64_t table_bytes = 0;
  ClientUsage actor_usage;  // of live actors together

  uint64_t checkpoint = 0;      // the newest step that one covers
  uint64_t oldest_replay = 0;   // the oldest step after which all can be served again
  uint64_t retained_bytes = 0;  // of committed steps
  uint64_t retained_steps = 0;
  uint64_t retained_bytes_max = 0;
  uint64_t kept_rollouts = 0;  // of committed steps, for people
  uint64_t kept_bytes = 0;
  uint64_t kept_bytes_max = 0;
  PolicyVersion train_version;   // of the next step
  std::vector<StepFacts> steps;  // live ones, oldest first
  uint64_t next_step = 0;
  std::string unpublished;      // what has to be published for admission to go on
  double last_reward_mean = 0;  // of the newest committed step
  uint64_t last_step_waited_ms = 0;
  PolicyVersion published;
  bool has_pending = false;
  PolicyVersion pending;
  uint64_t generation = 0;
  uint64_t trainers = 0;
  std::vector<EngineFacts> engines;
  ledger::Counters ledger;
  DriftFacts drift;

  storage::PayloadUse payloads;
  StorageFacts storage;
  std::vector<LogFacts> logs;
  uint64_t pushes_held = 0;  // for a log
  storage::ContentUse contents;
  ProcessFacts process;
  ClusterFacts cluster;
  uint64_t uptime_ms = 0;
};

// What its waiting and dropping loops would say of a source: "" if something of it can be handed
// out.
std::string ReasonOf(const SourceFacts& source, const std::string& idle_reason);
const char* NameOf(ledger::StepState state);
ProcessFacts ReadProcess();
// Published versions that are newer.
uint32_t VersionsBehind(const ledger::State& state, PolicyVersion version);

void Observe(ServiceContext* context, std::function<void(std::shared_ptr<Observation>)> done);

}  // namespace forebay::server
