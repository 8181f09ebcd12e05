// What happened in a cluster, for people: who led since when, changes of sets, operators' acts. And
// what an operator wishes of the node that leads.
//
// Values and pure functions, but for NewEvent, which takes the time, a count and a random name.
// Events are keys of their own, written in the same transaction as what they tell; whoever leads,
// or writes an operator's act, deletes the oldest beyond the limits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/configuration.h"
#include "node/coordinator.h"

namespace forebay::node {

inline constexpr std::string_view kEventsPrefix = "events/";
inline constexpr size_t kEventsMax = 512;
inline constexpr size_t kEventsBytesMax = 256 << 10;
// Of each text of an event; what is longer is cut.
inline constexpr size_t kEventTextBytesMax = 1024;

struct ClusterEvent {
  uint64_t time_ms = 0;  // since 1970, by the clock of who wrote it: for people
  std::string who;       // "node 2", or an operator: "user@host"
  std::string what;
  std::string why;
  bool operator==(const ClusterEvent&) const = default;
};
// A line each; line feeds within become spaces.
std::string EncodeEvent(const ClusterEvent& event);
ClusterEvent DecodeEvent(std::string_view value);
// As a change of the transaction that makes it true. `prefix` is the cluster's.
KeyChange NewEvent(std::string_view prefix, std::string_view who, std::string_view what,
                   std::string_view why = "");
// Names of the oldest ones, at most `most`, without which the others are within the limits.
std::vector<std::string> Superfluous(const std::map<std::string, ClusterEvent>& events,
                                     size_t most);

// "shard-0: node 2 leads, epoch 3 (before: node 1); in sync 2 3, left 1". "" if nothing that people
// ask for has changed.
std::string DescribeChange(std::string_view machine, const cluster::Configuration& before,
                           const cluster::Configuration& after);

struct SwitchoverWish {
  cluster::NodeId from;  // that led when it was wished: with another it is void
  cluster::NodeId to;    // 0: any other
  std::string who, why;
  bool operator==(const SwitchoverWish&) const = default;
};
std::string EncodeWish(const SwitchoverWish& wish);
SwitchoverWish DecodeWish(std::string_view value);

}  // namespace forebay::node
