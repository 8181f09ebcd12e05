// Snapshot and restore. What is read is checked whole before it is used: CheckInvariants trusts no
// link and no count.
#include "shard/machine.h"

namespace forebay::shard {
namespace {

constexpr uint32_t kFormat = 4;

}  // namespace

void Machine::Snapshot(codec::Writer& writer) const {
  writer(kFormat, options_.shard, options_.run_seed);
  curriculum_.Snapshot(writer);
  tables_.Snapshot(writer);
  sessions_.Snapshot(writer);
  const std::vector<std::pair<uint64_t, GroupId>> put_groups(put_group_order_.begin(),
                                                             put_group_order_.end());
  writer(sources_, evals_, holds_, retained_);
  history_.Snapshot(writer);
  writer(unpublished_, closed_, versions_, train_floor_, sequence_, payload_bytes_, retained_bytes_,
         prng_.state(), outbox_, inbox_, put_groups);
  kept_.Snapshot(writer);
}

bool Machine::Restore(codec::Reader& reader) {
  *this = Machine(options_);
  uint32_t format = 0;
  Options options;
  reader(format, options.shard, options.run_seed);
  const bool ours = reader.ok() && format == kFormat && options.shard == options_.shard;
  if (!ours) return false;
  options_.run_seed = options.run_seed;
  uint64_t prng = 0;
  std::vector<std::pair<uint64_t, GroupId>> put_groups;
  bool ok = curriculum_.Restore(reader) && tables_.Restore(reader) && sessions_.Restore(reader);
  if (ok) {
    reader(sources_, evals_, holds_, retained_);
    ok = history_.Restore(reader);
    reader(unpublished_, closed_, versions_, train_floor_, sequence_, payload_bytes_,
           retained_bytes_, prng, outbox_, inbox_, put_groups);
    ok = ok && kept_.Restore(reader);
  }
  prng_.set_state(prng);
  put_group_order_.assign(put_groups.begin(), put_groups.end());
  for (const auto& [request, group] : put_group_order_)
    ok &= put_groups_.emplace(request, group).second;
  ok = ok && reader.ok() && CheckInvariants().empty();
  if (!ok) *this = Machine(options_);
  return ok;
}

}  // namespace forebay::shard
