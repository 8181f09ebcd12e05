#include "server/grpc/fetch_spans.h"

#include <algorithm>
#include <string>

namespace forebay::server {

uint32_t SpanWriter::EngineIndex(std::string_view name) {
  const auto [at, added] =
      engines_.try_emplace(name, static_cast<uint32_t>(layout_.engine_names_size()));
  if (added) layout_.add_engine_names(std::string(name));
  return at->second;
}

// Runs of versions and turns of engines have bounds of their own; a span has one of each.
void SpanWriter::Add(const codec::RolloutHeader& header, uint32_t index, uint32_t version) {
  const codec::HeaderSequence& sequence = header.sequences[index];
  const auto runs = header.versions(sequence);
  turns_.clear();
  bounds_.assign(1, 0);
  for (const codec::HeaderVersionRun& run : runs) bounds_.push_back(run.offset);
  for (const codec::HeaderTurn& turn : header.turns_of(sequence)) {
    if (turn.engine.empty() || turn.engine == header.engine) continue;
    turns_.push_back(turn);
    bounds_.push_back(turn.offset);
    bounds_.push_back(turn.offset + turn.tokens);
  }
  std::ranges::stable_sort(turns_, {}, &codec::HeaderTurn::offset);
  std::ranges::sort(bounds_);
  size_t run = 0, turn = 0;
  uint32_t spans = 0, last_version = 0, last_engine = 0;
  for (const uint32_t offset : bounds_) {
    if (offset >= sequence.tokens) break;
    while (run + 1 < runs.size() && runs[run + 1].offset <= offset) ++run;
    while (turn < turns_.size() && turns_[turn].offset + turns_[turn].tokens <= offset) ++turn;
    const bool within = turn < turns_.size() && turns_[turn].offset <= offset;
    const uint32_t of_version = runs.empty() ? version : runs[run].number;
    const uint32_t engine = EngineIndex(within ? turns_[turn].engine : header.engine);
    if (spans > 0 && of_version == last_version && engine == last_engine) continue;
    ++spans;
    layout_.add_sampled_offsets(offset);
    layout_.add_sampled_versions(last_version = of_version);
    layout_.add_sampled_engines(last_engine = engine);
  }
  layout_.add_sampled_counts(spans);
}

}  // namespace forebay::server
