// What a replica asks its driver to do, and what a driver found when it started.
//
// Plain values. The log's writes keep their order; nothing else waits for anything: a message only
// says that something is synced after the driver has said so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/configuration.h"
#include "replication/messages.h"

namespace forebay::replication {

using cluster::Configuration;
using cluster::ConfigurationRevision;

// How a log's writes are told apart when their syncs are reported: rises with each write that is
// no append.
using LogGeneration = uint64_t;

struct AppendEntry {
  LogPosition position;
  Entry entry;
};
struct TruncateLog {
  LogPosition from;  // this and all that follows
};
// A snapshot at `base` was installed: the log goes on after it, and holds what it held there only
// if it has `base` itself.
struct RestartLog {
  LogPlace base;
};
struct LogWrite {
  LogGeneration generation = 0;
  std::variant<AppendEntry, TruncateLog, RestartLog> what;
};

// A compare-and-swap of the configuration. The driver answers each exactly once, unknown when it
// does not hear in time, and never later than that.
struct Swap {
  uint64_t id = 0;
  ConfigurationRevision base;
  Configuration next;
};
enum class SwapOutcome : uint8_t {
  kDone,     // `revision` is that of `next`
  kRefused,  // another one stands there: `current`, at `revision`
  kUnknown,  // it may have been done, or be done later
};
struct SwapAnswer {
  uint64_t id = 0;
  SwapOutcome outcome = SwapOutcome::kUnknown;
  ConfigurationRevision revision;
  Configuration current;  // of a refusal
};

enum class Role : uint8_t { kBackup, kPrimary };
struct RoleChange {
  Role role = Role::kBackup;
  Epoch epoch;
  // Of a log that was cut, as no other member could take over: entries that were acknowledged may
  // be missing.
  bool from_cut_log = false;
};

struct Output {
  std::vector<LogWrite> log;
  std::vector<std::pair<NodeId, Message>> messages;
  std::vector<Swap> swaps;
  std::vector<RoleChange> roles;
  std::vector<NodeId> snapshots;  // peers that need one of the applied state
  // Set once: the replica has stopped, as what it sees breaks the protocol or its state differs.
  std::optional<std::string> failure;
};

struct Identity {
  NodeId node;
  Incarnation incarnation;  // of the log; a later one when it was lost or cut
  // The incarnation from which on this log was only cut, never lost; <= incarnation.
  Incarnation kept_since;
};
struct Recovered {
  LogPlace base;  // of the snapshot; 0 if there is none
  std::vector<Entry> entries;
};

}  // namespace forebay::replication
