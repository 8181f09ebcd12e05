#include "node/check_recovered.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace forebay::node {

absl::Status CheckRecovered(const ledger::State& ledger,
                            absl::Span<const shard::State* const> shards) {
  const auto check = [](const std::string& machine, uint64_t has, const std::string& other,
                        uint64_t knows, absl::string_view what) -> absl::Status {
    if (knows <= has) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        "the log of ", machine, " lacks committed records: it ", what, " ", has, " messages, and ",
        other, " knows of ", knows, ". Its folder in storage.directory was lost, cut or replaced. ",
        "Bring it back from a copy, with the others from the same time, or give storage.directory ",
        "a new path for a new run"));
  };
  const std::string name = "ledger";
  for (const shard::State* const s : shards) {
    const std::string shard = absl::StrCat("shard-", s->shard().value);
    const codec::PeerOutbox &down = ledger.outbox(s->shard()), &up = s->to_ledger();
    const uint64_t got_up = ledger.inbox(s->shard()).last(), got_down = s->from_ledger();
    for (const absl::Status& status :
         {check(name, down.last(), shard, got_down, "has sent"),
          check(name, got_up, shard, up.acknowledged(), "has taken"),
          check(shard, up.last(), name, got_up, "has sent"),
          check(shard, got_down, name, down.acknowledged(), "has taken")}) {
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace forebay::node
