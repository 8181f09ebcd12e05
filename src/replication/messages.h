// What replicas of one machine say to each other.
//
// Plain values and pure functions. Any message may be lost, repeated, late and out of order.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "cluster/configuration.h"

namespace forebay::replication {

using cluster::Epoch;
using cluster::Incarnation;
using cluster::NodeId;

// Of the log. Its epoch is that of the primary which took the command.
struct Entry {
  Epoch epoch;
  std::string command;  // empty: the primary's own, which changes nothing
  template <class A>
  void Fields(A& a) {
    a(epoch, command);
  }
  bool operator==(const Entry&) const = default;
};

// A position and the epoch of the entry there: two logs that have both have the same up to there.
// Of two logs in sync, the one whose end is greater holds all that the other does.
struct LogPlace {
  Epoch epoch;
  LogPosition position;
  template <class A>
  void Fields(A& a) {
    a(epoch, position);
  }
  auto operator<=>(const LogPlace&) const = default;
};

struct StateHash {
  LogPosition position;
  uint64_t hash = 0;
  template <class A>
  void Fields(A& a) {
    a(position, hash);
  }
  bool operator==(const StateHash&) const = default;
};

// By the primary, with entries or as a heartbeat.
struct Append {
  LogPlace before;  // the entries follow this one
  std::vector<Entry> entries;
  LogPosition committed;
  LogPosition reign_start;        // where the primary's own first entry is
  std::optional<StateHash> hash;  // of the primary's state at some position
  template <class A>
  void Fields(A& a) {
    a(before, entries, committed, reign_start, hash);
  }
  bool operator==(const Append&) const = default;
};

// A backup's answer.
struct Appended {
  bool matched = false;  // the log has `before`
  LogPosition synced;    // up to here it has synced what the primary has
  // Matched: up to here it has what the primary has. Else: where the primary may try next.
  LogPosition end;
  template <class A>
  void Fields(A& a) {
    a(matched, synced, end);
  }
  bool operator==(const Appended&) const = default;
};

// By a replica that hears no primary, to all others.
struct Hello {
  Incarnation kept_since;  // the log is a beginning of what it was under each incarnation since
  LogPlace last;
  template <class A>
  void Fields(A& a) {
    a(kept_since, last);
  }
  bool operator==(const Hello&) const = default;
};

// By the primary, to a backup that has everything: take over now.
struct TakeOver {
  template <class A>
  void Fields(A&) {}
  bool operator==(const TakeOver&) const = default;
};

// By a backup whose process is about to end, to its primary: it need not be waited for.
struct Goodbye {
  template <class A>
  void Fields(A&) {}
  bool operator==(const Goodbye&) const = default;
};

struct Message {
  NodeId from;
  Incarnation incarnation;  // of the sender's log
  Epoch epoch;              // the latest that the sender knows
  std::variant<Append, Appended, Hello, TakeOver, Goodbye> body;
  template <class A>
  void Fields(A& a) {
    a(from, incarnation, epoch, body);
  }
  bool operator==(const Message&) const = default;
};

// A byte for the version of the format, then the fields (codec/archive.h).
std::string EncodeMessage(const Message& message);
// Refuses what no replica sends.
absl::StatusOr<Message> DecodeMessage(std::string_view bytes);

}  // namespace forebay::replication
