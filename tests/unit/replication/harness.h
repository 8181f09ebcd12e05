// One replica, spoken to by hand: node 1 unless it is said otherwise, of replicas 1, 2 and 3.
//
// Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "replication/replica.h"

namespace forebay::replication {

inline constexpr NodeId kOne{1}, kTwo{2}, kThree{3};

inline Configuration Config(uint64_t epoch, uint32_t primary, std::vector<uint32_t> in_sync,
                            uint32_t min_in_sync = 2) {
  Configuration c;
  c.epoch = Epoch(epoch);
  c.primary = NodeId(primary);
  for (const uint32_t node : in_sync) c.in_sync.emplace_back(node);
  for (const NodeId node : {kOne, kTwo, kThree}) c.incarnations[node] = Incarnation(1);
  c.min_in_sync = min_in_sync;
  return c;
}

inline Entry Of(uint64_t epoch, std::string command) { return {Epoch(epoch), std::move(command)}; }
inline LogPlace At(uint64_t epoch, uint64_t position) {
  return {Epoch(epoch), LogPosition(position)};
}

class Harness {
 public:
  explicit Harness(Recovered recovered = {}, Identity self = {kOne, Incarnation(1), Incarnation(1)},
                   Options options = {})
      : replica(options, Mutations(), self, std::move(recovered), 0) {}

  // What the last event asked for.
  const Output& Look() {
    output = replica.Take();
    for (const LogWrite& write : output.log) generation = write.generation;
    return output;
  }
  void Configure(const Configuration& c) {
    replica.OnConfiguration(ConfigurationRevision(++revision), c, now);
    Look();
  }
  void Tick(uint64_t ms = 100) {
    now += ms;
    replica.OnTick(now);
    Look();
  }
  // Time goes by without a word of anybody.
  void Silence(uint64_t ms) {
    for (const uint64_t until = now + ms; now < until;) {
      Tick(50);
      if (!output.swaps.empty()) return;
    }
  }
  void Hear(NodeId from, uint64_t epoch, decltype(Message::body) body, uint64_t incarnation = 1) {
    replica.OnMessage({from, Incarnation(incarnation), Epoch(epoch), std::move(body)}, now);
    Look();
  }
  void SyncAll() {
    replica.OnSynced(generation, replica.log().last().position, now);
    Look();
    // The state follows at once.
    for (uint64_t p = applied + 1; p <= replica.committed().value; ++p) Apply(p);
  }
  void Apply(uint64_t position, std::optional<uint64_t> hash = std::nullopt) {
    applied = position;
    replica.OnApplied(LogPosition(position), hash);
  }
  void Acknowledge(NodeId from, uint64_t position, uint64_t incarnation = 1) {
    Hear(from, replica.epoch().value, Appended{true, LogPosition(position), LogPosition(position)},
         incarnation);
    for (uint64_t p = applied + 1; p <= replica.committed().value; ++p) Apply(p);
  }
  void AnswerSwap(SwapOutcome outcome, uint64_t id, Configuration current = {}) {
    if (outcome != SwapOutcome::kUnknown) ++revision;
    replica.OnSwapAnswer({id, outcome, ConfigurationRevision(revision), std::move(current)}, now);
    Look();
  }
  // Becomes the serving primary of epoch 1, of all three.
  void Reign() {
    Configure(Config(0, 0, {1, 2, 3}));
    Silence(2'000);
    AnswerSwap(SwapOutcome::kDone, output.swaps.at(0).id);
    SyncAll();
    Acknowledge(kTwo, 1);
    Acknowledge(kThree, 1);
  }
  uint64_t Propose(std::string command) {
    const auto at = replica.Propose(std::move(command), now);
    Look();
    return at.ok() ? at->value : 0;
  }

  template <class Body>
  std::optional<Body> Said(NodeId to) const {
    std::optional<Body> last;
    for (const auto& [node, message] : output.messages) {
      if (const auto* body = std::get_if<Body>(&message.body); body != nullptr && node == to)
        last = *body;
    }
    return last;
  }
  uint64_t committed() const { return replica.committed().value; }

  Replica replica;
  Output output;
  uint64_t now = 0, revision = 0, applied = 0;
  LogGeneration generation = 0;
};

}  // namespace forebay::replication
