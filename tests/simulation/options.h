// What a history is like: sizes, features and faults, drawn from its seed so that no two histories
// are alike.
//
// Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/mutations.h"
#include "codec/keep_rule.h"
#include "codec/source_settings.h"

namespace forebay::simulation {

struct HistoryOptions {
  uint64_t seed = 0;
  // Draws what happens when, and what goes wrong, apart from the run's own seed.
  uint64_t timing = 0;
  // What an attempt gives follows from its own seed alone.
  bool deterministic_policy = false;
  Mutations mutations;
  // More mutations: commands count before the disk has them; every process of the store calls
  // itself by the first one's name; the store takes what has gone cold for dead.
  bool commit_unsynced = false, one_incarnation = false, free_cold = false;
  // The history ends when so many events have happened, and the run has shown that it still makes
  // progress.
  uint64_t events = 20'000;
  uint64_t steps = 0;           // if not 0, the history ends with this commit instead
  uint64_t scan_every = 1'000;  // events, between two looks at the whole state
  uint32_t shards = 1;
  std::vector<codec::SourceSettings> sources;
  uint32_t tasks_per_source = 100;

  // Actors.
  uint32_t actors = 50;
  uint32_t slots = 4;           // leases at a time, of one actor
  uint64_t attempt_ms = 2'000;  // median duration
  double straggler = 0.02;      // share of attempts that take twenty times as long
  double tool_wait = 0.1;       // share of attempts that pause, under renewal
  double length_drift = 0;      // growth of lengths over the history
  double equal_rewards = 0.3;   // share of tasks whose attempts all get the same reward
  double late_weights = 0.2;    // share of engines that load versions late
  bool multi_sequence = true;
  uint32_t equal_tokens = 0;  // of each sequence, if not 0: groups are alike but for their tasks
  double crash = 0;           // each chance is by actor and acquired batch ...
  double leave = 0;
  double fail = 0;  // ... or by attempt
  double release = 0;
  double partial = 0;
  double aborted = 0;
  double truncated = 0;
  double late_reward = 0;
  double lost_reward = 0;
  double forgetful = 0;    // share of actors that do not renew
  double repeat_push = 0;  // acknowledged pushes that are sent again
  double bad_input = 0;
  double push_group = 0;

  // Trainers.
  uint32_t ranks = 2;
  uint32_t groups_per_step = 8;
  uint64_t tokens_per_step = 0;  // instead of groups, if not 0
  uint32_t mini_batches = 1;
  uint32_t publish_every = 1;  // commits
  uint32_t open_ahead = 1;     // steps open at a time
  bool custom_advantages = false;
  bool pending_first = false;
  double step_max_lag = 0;  // chance that a step has a limit of its own
  double step_source = 0;   // chance that a step takes from one source only
  double put_columns = 0;
  double refetch = 0.1;
  double abort = 0;
  double job_crash = 0;  // chances by step
  double rank_crash = 0;
  double zombie = 0;  // chance that a crashed job goes on for a while
  double replan = 0;
  double checkpoint = 0;  // chance that a commit is followed by one
  double rewind = 0;      // ... that the job goes back
  uint64_t retention_bytes_max = 0;
  codec::KeepRule keep;  // of committed steps, for people

  // The node and its network.
  double loss = 0;
  double repeat = 0;
  uint64_t delay_ms_max = 20;
  bool peer_faults = false;     // loss, repetition and reordering between ledger and shards too
  uint64_t restart_one_in = 0;  // events
  uint64_t sync_ms_max = 0;     // until what is logged is committed
  bool disk = false;            // logs are the daemon's own, on disks with faults; else in memory
  uint64_t log_file_bytes = uint64_t{64} << 20;
  uint64_t log_pending_bytes_max = uint64_t{64} << 20;
  uint64_t snapshot_log_bytes = uint64_t{256} << 20;
  bool store = false;  // payloads have bytes, in the daemon's segments on a disk of their own
  uint64_t store_memory_bytes = uint64_t{64} << 20;
  uint64_t segment_bytes = uint64_t{1} << 20;
  double disk_trouble = 0;  // chance by second
  double flip = 0;          // chance by restart that a bit of what is stored changes
  uint64_t payload_bytes_max = uint64_t{1} << 40;
  uint32_t closed_groups_max = 16'384;
  double damage = 0;  // chance by fetch that a payload of it cannot be read any more

  double away = 0;  // chance by second that a shard answers no more, for seconds or minutes ...
  double away_for_good = 0;  // ... or, of those, for the rest of the history

  // The operator.
  double source_change = 0;  // chances by operator's round (one a second)
  double operator_rewind = 0;
  double quarantine = 0;
  double eval = 0;
  double add_tasks = 0;
  double drop = 0;
  bool pauses = false;

  bool Faulty() const { return loss > 0 || repeat > 0 || crash > 0 || restart_one_in > 0; }
  std::string Summary() const;
};

// One of the size of a large run, with few faults; groups of 16.
struct Scale {
  uint64_t seed = 1;
  uint32_t actors = 10'000, ranks = 1'000, shards = 64;
  uint32_t rollouts_per_step = 100'000;
  uint64_t steps = 100;
};
HistoryOptions ScaleOptions(const Scale& scale);

// A history of this seed. Switching features on and off at random finds more than having them all
// on always.
HistoryOptions DrawHistory(uint64_t seed);

}  // namespace forebay::simulation
