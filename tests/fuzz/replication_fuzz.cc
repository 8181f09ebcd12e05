// Any bytes as messages between replicas, and as a configuration: what decodes encodes to the same
// bytes, and a replica of any role takes what decodes without harm to its process.
//
// An input is a list of pieces: a byte says what it is, two bytes how long it is.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "replication/replica.h"

namespace {

using forebay::LogPosition;
using forebay::cluster::Configuration;
using forebay::cluster::ConfigurationRevision;
using forebay::cluster::DecodeConfiguration;
using forebay::cluster::EncodeConfiguration;
using forebay::cluster::Incarnation;
using forebay::cluster::NodeId;
using forebay::replication::DecodeMessage;
using forebay::replication::EncodeMessage;
using forebay::replication::Mutations;
using forebay::replication::Options;
using forebay::replication::Output;
using forebay::replication::Replica;
using forebay::replication::Role;
using forebay::replication::SwapOutcome;

// A driver that does everything at once.
class Driver {
 public:
  Driver() : replica_(Options(), Mutations(), {NodeId(1), Incarnation(1), Incarnation(1)}, {}, 0) {
    for (uint32_t node = 1; node <= 3; ++node) {
      first_.incarnations[NodeId(node)] = Incarnation(1);
      first_.in_sync.emplace_back(node);
    }
    first_.min_in_sync = 2;
    replica_.OnConfiguration(ConfigurationRevision(1), first_, 0);
  }

  void Message(std::string_view bytes) {
    const auto message = DecodeMessage(bytes);
    if (!message.ok()) return;
    FOREBAY_CHECK(EncodeMessage(*message) == bytes);
    replica_.OnMessage(*message, now_);
    Do();
  }
  void Configure(std::string_view bytes) {
    const auto configuration = DecodeConfiguration(bytes);
    if (configuration.ok()) FOREBAY_CHECK(EncodeConfiguration(*configuration) == bytes);
  }
  void Tick(uint64_t ms) {
    now_ += ms;
    replica_.OnTick(now_);
    Do();
  }
  void Propose(std::string_view command) {
    replica_.Propose(std::string(command), now_).status().IgnoreError();
    Do();
  }

 private:
  void Do() {
    // Every answer may ask for more; a replica that never rests would be found as a timeout.
    for (Output output = replica_.Take(); !Rests(output); output = replica_.Take()) {
      if (!output.log.empty())
        replica_.OnSynced(output.log.back().generation, replica_.log().last().position, now_);
      for (const auto& swap : output.swaps) {
        replica_.OnSwapAnswer({swap.id, SwapOutcome::kDone, ConfigurationRevision(++revision_), {}},
                              now_);
      }
    }
    if (!replica_.failed()) replica_.OnApplied(replica_.committed(), replica_.committed().value);
  }
  static bool Rests(const Output& output) { return output.log.empty() && output.swaps.empty(); }

  Configuration first_;
  Replica replica_;
  uint64_t now_ = 0;
  uint64_t revision_ = 1;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  Driver driver;
  while (input.size() >= 3) {
    const uint8_t kind = static_cast<uint8_t>(input[0]);
    const size_t length = static_cast<uint8_t>(input[1]) | size_t{static_cast<uint8_t>(input[2])}
                                                               << 8;
    const std::string_view piece = input.substr(3, length);
    input.remove_prefix(3 + piece.size());
    switch (kind % 4) {
      case 0:
        driver.Message(piece);
        break;
      case 1:
        driver.Configure(piece);
        break;
      case 2:
        driver.Tick(1 + length % 700);
        break;
      case 3:
        driver.Propose(piece);
        break;
    }
  }
  return 0;
}
