// 9. Every payload that state names exists, and every payload that exists is named by state, once.
//
// The rest of it is checked where it happens: that none is freed twice by the node (Die); where
// payloads have bytes, that a command names them only once they are synced, that each is found
// after any end of the process, and that its bytes are those that were pushed, by payload_disk.h.
#include <vector>

#include "absl/strings/str_cat.h"
#include "shard/machine.h"
#include "tests/simulation/invariants/invariant.h"

namespace forebay::simulation {
namespace {

class PayloadsNamedByState final : public Invariant {
 public:
  explicit PayloadsNamedByState(Checker* checker)
      : Invariant("9 payloads named by state exist", checker) {}

  void OnScan() override {
    Names payloads{node().payloads(), "payload", this};
    Names contents{node().contents(), "content", this};
    for (uint32_t s = 0; s < node().shards(); ++s) {
      const shard::Machine& machine = node().shard(ShardId(static_cast<uint8_t>(s))).machine();
      const rollout::Tables& tables = machine.tables();
      for (uint32_t slot = 0; slot < tables.rollouts().size(); ++slot) {
        if (tables.rollouts().InUse(slot)) payloads.Add(tables.rollout(slot).payload);
      }
      for (uint32_t slot = 0; slot < tables.attempts().size(); ++slot) {
        if (tables.attempts().InUse(slot)) payloads.Add(tables.attempt(slot).partial);
      }
      const auto& kept = machine.kept().table();
      for (uint32_t slot = 0; slot < kept.size(); ++slot) {
        if (kept.InUse(slot)) payloads.Add(kept[slot].payload);
      }
      for (const auto& source : machine.curriculum().sources()) {
        for (uint32_t i = 0; i < source->tasks().size(); ++i)
          contents.Add(source->tasks()[i].content);
      }
    }
    for (const ledger::Step* step : node().ledger().StepsNewestFirst()) {
      for (const auto& [ref, columns] : step->written) {
        for (const ledger::WrittenColumn& column : columns) payloads.Add(column.payload);
      }
      for (const ledger::HeldRollout& rollout : step->rollouts) {
        if (!node().payloads().Alive(rollout.payload)) {
          Violated(absl::StrCat("step ", step->step.value, " holds payload ", rollout.payload.value,
                                ", which is gone"));
        }
      }
    }
    const Brought brought = node().BroughtAndNotLogged();
    for (const PayloadId id : brought.payloads) payloads.Add(id);
    for (const PayloadId id : brought.contents) contents.Add(id);
    payloads.Finish();
    contents.Finish();
  }

 private:
  struct Names {
    const Payloads& store;
    const char* what;
    PayloadsNamedByState* invariant;
    std::vector<bool> named = {};
    uint64_t count = 0;

    void Add(PayloadId id) {
      if (id == PayloadId()) return;
      named.resize(store.ids() + 1);
      if (!store.Alive(id))
        return invariant->Violated(absl::StrCat(what, " ", id.value, " is named, and is gone"));
      if (named[id.value])
        return invariant->Violated(absl::StrCat(what, " ", id.value, " is named twice"));
      named[id.value] = true;
      ++count;
    }
    void Finish() const {
      if (count == store.alive()) return;
      uint64_t lost = 1;
      while (!store.Alive(PayloadId(lost)) || (lost < named.size() && named[lost])) ++lost;
      invariant->Violated(
          absl::StrCat(what, " ", lost, " is leaked, with ", store.alive() - count - 1, " others"));
    }
  };
};

}  // namespace

std::unique_ptr<Invariant> MakePayloadsNamedByState(Checker* checker) {
  return std::make_unique<PayloadsNamedByState>(checker);
}

}  // namespace forebay::simulation
