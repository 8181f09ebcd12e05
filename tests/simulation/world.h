// What everyone in a history shares: time, chance, the network and the node.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/hash.h"
#include "ledger/messages.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/network.h"
#include "tests/simulation/node.h"
#include "tests/simulation/options.h"
#include "tests/simulation/stats.h"

namespace forebay::simulation {

struct World {
  const HistoryOptions& options;
  EventQueue& queue;
  Dice& dice;
  Stats& stats;
  Network& network;
  Node& node;
  std::function<void(const char* invariant, const std::string& what)> alarm;
  // After the last fault: nobody misbehaves any more.
  bool healed = false;

  // A fault that may happen as long as there are faults.
  bool Mishap(double probability) { return !healed && probability > 0 && dice.Chance(probability); }
  // How far the history has gone, from 0 to 1.
  double progress() const {
    const double part = static_cast<double>(queue.events()) / static_cast<double>(options.events);
    return part < 1 ? part : 1;
  }
  uint64_t TaskHash(SourceId source, uint64_t index) const {
    return HashCombine(source.value + 1, index + 1);
  }
};

inline constexpr const char* kBadInput = "bad input is refused and changes nothing";

}  // namespace forebay::simulation
