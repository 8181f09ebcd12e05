#include "node/check_recovered.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::node {
namespace {

absl::Status Check(const std::string& machine, uint64_t has, const std::string& other,
                   uint64_t knows, absl::string_view what) {
  if (knows <= has) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "the log of ", machine, " lacks committed records: it ", what, " ", has, " messages, and ",
      other, " knows of ", knows, ". Its folder in storage.directory was lost, cut or replaced. ",
      "Bring it back from a copy, with the others from the same time, or give storage.directory ",
      "a new path for a new run"));
}

std::string NameOf(const shard::State& shard) {
  return absl::StrCat("shard-", shard.shard().value);
}

}  // namespace

absl::Status CheckLedger(const ledger::State& ledger, const shard::State& shard) {
  const ShardId id = shard.shard();
  FOREBAY_RETURN_IF_ERROR(
      Check("ledger", ledger.outbox(id).last(), NameOf(shard), shard.from_ledger(), "has sent"));
  return Check("ledger", ledger.inbox(id).last(), NameOf(shard), shard.to_ledger().acknowledged(),
               "has taken");
}

absl::Status CheckShard(const ledger::State& ledger, const shard::State& shard) {
  const ShardId id = shard.shard();
  FOREBAY_RETURN_IF_ERROR(Check(NameOf(shard), shard.to_ledger().last(), "ledger",
                                ledger.inbox(id).last(), "has sent"));
  return Check(NameOf(shard), shard.from_ledger(), "ledger", ledger.outbox(id).acknowledged(),
               "has taken");
}

absl::Status CheckRecovered(const ledger::State& ledger,
                            absl::Span<const shard::State* const> shards) {
  for (const shard::State* const shard : shards) {
    FOREBAY_RETURN_IF_ERROR(CheckLedger(ledger, *shard));
    FOREBAY_RETURN_IF_ERROR(CheckShard(ledger, *shard));
  }
  return absl::OkStatus();
}

}  // namespace forebay::node
