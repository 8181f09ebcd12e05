// The bytes of a ledger.
#include "base/check.h"
#include "base/hash.h"
#include "ledger/state.h"

namespace forebay::ledger {
namespace {

constexpr uint32_t kFormat = 6;

}  // namespace

template <class A>
void State::Fields(A& a) {
  a(sources_, channels_, generation_, mesh_, places_, displaced_, steps_, next_step_,
    committed_version_, last_request_, checkpoint_, keep_, branch_begin_, newest_revision_,
    fenced_revision_, rewinds_, versions_, published_, pending_, announcements_,
    rollouts_since_published_, measured_rollouts_, adoptions_, adoption_reports_, counters_,
    drift_);
}

void State::Snapshot(codec::Writer& writer) const {
  writer(kFormat, options_.run_seed, options_.shards);
  const_cast<State*>(this)->Fields(writer);  // a Writer only reads
}

bool State::Restore(codec::Reader& reader) {
  uint32_t format = 0, shards = 0;
  uint64_t run_seed = 0;
  reader(format, run_seed, shards);
  if (format != kFormat || run_seed != options_.run_seed || shards != options_.shards) {
    return false;
  }
  Fields(reader);
  return reader.ok() && InvariantsHold().ok();
}

uint64_t State::Hash() const {
  std::string bytes;
  codec::Writer writer(&bytes);
  Snapshot(writer);
  return Hash64(bytes);
}

}  // namespace forebay::ledger
