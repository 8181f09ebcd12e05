// What the ledger is asked, and what it logs.
//
// A request goes to Primary::Propose, which refuses it or passes it on; State::Apply runs it once
// it is committed. Commands have a byte encoding (codec/archive.h). Plain values; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "batch/cost.h"
#include "codec/peer_messages.h"
#include "drift/rules.h"
#include "ledger/drift_commands.h"
#include "ledger/micro_batch_ref.h"
#include "ledger/rewind_commands.h"
#include "ledger/shard_commands.h"

namespace forebay::ledger {

struct Mesh {
  uint32_t dp = 1, tp = 1, pp = 1, cp = 1;
  uint32_t micro_batches_multiple_of = 1;
  bool operator==(const Mesh&) const = default;
  template <class A>
  void Fields(A& a) {
    a(dp, tp, pp, cp, micro_batches_multiple_of);
  }
};

struct StepSpec {
  uint32_t groups = 0;
  uint64_t tokens = 0;
  Mesh mesh;
  uint64_t token_budget = 0;
  uint32_t mini_batches = 1;
  std::optional<uint32_t> max_lag;
  bool refuse_over_budget = false;
  bool groups_whole = false;
  uint32_t pad_multiple = 1;
  bool custom_advantages = false;
  std::vector<SourceId> sources;
  double cost_linear = 24576;
  double cost_quadratic = 1;
  std::vector<batch::CostPoint> cost_table;  // if any, instead of the coefficients
  bool operator==(const StepSpec&) const = default;
  template <class A>
  void Fields(A& a) {
    a(groups, tokens, mesh, token_budget, mini_batches, max_lag, refuse_over_budget, groups_whole,
      pad_multiple, custom_advantages, sources, cost_linear, cost_quadratic, cost_table);
  }
};

// Creates the source of that name, or replaces its settings.
struct PutSource {
  codec::SourceSettings settings;
  template <class A>
  void Fields(A& a) {
    a(settings);
  }
};

struct AttachTrainer {
  std::string trainer;
  uint64_t process = 0;
  Mesh mesh;
  uint32_t dp_rank = 0;
  uint32_t peer = 0;
  std::optional<StepId> resume_step;
  uint64_t first_generation = 1;  // Propose sets that of the run: no trainer of another one fits
  template <class A>
  void Fields(A& a) {
    a(trainer, process, mesh, dp_rank, peer, resume_step, first_generation);
  }
};

struct OpenStep {
  Generation generation;
  StepId step;
  StepSpec spec;
  bool replan = false;
  template <class A>
  void Fields(A& a) {
    a(generation, step, spec, replan);
  }
};

// The ledger decides to ask shards for groups of the oldest step that lacks some. Proposed from
// ReadySummary.
struct RequestGroups {
  struct Part {
    ShardId shard;
    uint32_t groups = 0;
    uint64_t tokens = 0;
    template <class A>
    void Fields(A& a) {
      a(shard, groups, tokens);
    }
  };
  StepId step;
  Revision revision;
  std::vector<Part> parts;
  template <class A>
  void Fields(A& a) {
    a(step, revision, parts);
  }
};

struct FromShard {
  ShardId shard;
  uint64_t number = 0;
  codec::ToLedger message;
  template <class A>
  void Fields(A& a) {
    a(shard, number, message);
  }
};

struct ShardAcknowledged {
  ShardId shard;
  uint64_t number = 0;
  template <class A>
  void Fields(A& a) {
    a(shard, number);
  }
};

struct PutAdvantages {
  Generation generation;
  StepId step;
  Revision revision;
  std::vector<float> advantages;
  template <class A>
  void Fields(A& a) {
    a(generation, step, revision, advantages);
  }
};

// A per-token column that a trainer wrote for one micro-batch; the bytes are in the payload store.
struct WrittenColumn {
  std::string name;
  uint8_t dtype = 0;  // forebay.v1.DType
  std::vector<uint32_t> inner;
  PayloadId payload;
  uint64_t bytes = 0;
  template <class A>
  void Fields(A& a) {
    a(name, dtype, inner, payload, bytes);
  }
};

// The payloads of a refused one stay the caller's, who frees them.
struct PutColumns {
  Generation generation;
  StepId step;
  Revision revision;
  MicroBatchRef micro_batch;
  std::vector<WrittenColumn> columns;
  template <class A>
  void Fields(A& a) {
    a(generation, step, revision, micro_batch, columns);
  }
};

struct CommitStep {
  Generation generation;
  StepId step;
  Revision revision;
  // Payloads of committed steps that stay for a rewind; what Propose finds in the configuration.
  uint64_t retention_bytes_max = 0;
  codec::KeepRule keep;  // likewise, for people to look at
  drift::Rules drift;    // likewise
  template <class A>
  void Fields(A& a) {
    a(generation, step, revision, retention_bytes_max, keep, drift);
  }
};

struct AbortStep {
  Generation generation;
  StepId step;
  std::string reason;
  template <class A>
  void Fields(A& a) {
    a(generation, step, reason);
  }
};

enum class VersionPhase : uint8_t { kPending = 1, kPublished = 2 };

struct Announcement {
  PolicyVersion version;
  VersionPhase phase = VersionPhase::kPublished;
  std::optional<PolicyVersion> base;
  std::string where;
  std::string checksum;
  StepId step;
  template <class A>
  void Fields(A& a) {
    a(version, phase, base, where, checksum, step);
  }
};

struct PublishVersion {
  Generation generation;
  Announcement announcement;
  template <class A>
  void Fields(A& a) {
    a(generation, announcement);
  }
};

struct ReportAdoption {
  std::string engine;
  PolicyVersion version;
  uint64_t pending_to_loaded_ms = 0;
  uint64_t pause_ms = 0;
  template <class A>
  void Fields(A& a) {
    a(engine, version, pending_to_loaded_ms, pause_ms);
  }
};

// Payloads that cannot be read any more: columns that were written to steps, and rollouts of shards
// that are absent, which cannot say so themselves.
struct DropDamaged {
  std::vector<PayloadId> payloads;
  template <class A>
  void Fields(A& a) {
    a(payloads);
  }
};

using Command = std::variant<PutSource, AttachTrainer, OpenStep, RequestGroups, FromShard,
                             ShardAcknowledged, PutAdvantages, PutColumns, CommitStep, AbortStep,
                             PublishVersion, ReportAdoption, DropDamaged, CheckpointStep, Rewind,
                             TrimRetained, ReportSequences, LiftHold, MarkShard>;

}  // namespace forebay::ledger
