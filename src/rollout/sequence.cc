#include "rollout/sequence.h"

#include <algorithm>

namespace forebay::rollout {
namespace {

struct Extent {
  uint32_t oldest = UINT32_MAX;
  uint32_t newest = 0;
  uint32_t start = UINT32_MAX;
  unsigned __int128 weighted = 0;
  uint64_t tokens = 0;
};

void AddRun(uint32_t number, uint64_t tokens, Extent* extent) {
  extent->oldest = std::min(extent->oldest, number);
  extent->newest = std::max(extent->newest, number);
  extent->weighted += static_cast<unsigned __int128>(number) * tokens;
  extent->tokens += tokens;
}

void AddSequence(const SequenceMeta& sequence, uint32_t assigned, Extent* extent) {
  if (sequence.versions.empty()) {
    extent->start = std::min(extent->start, assigned);
    AddRun(assigned, sequence.tokens, extent);
    return;
  }
  extent->start = std::min(extent->start, sequence.versions.front().version.number);
  for (size_t i = 0; i < sequence.versions.size(); ++i) {
    const uint32_t end =
        i + 1 < sequence.versions.size() ? sequence.versions[i + 1].offset : sequence.tokens;
    AddRun(sequence.versions[i].version.number, end - sequence.versions[i].offset, extent);
  }
}

}  // namespace

uint32_t VersionByRuns(codec::LagOf lag_of, std::span<const SequenceMeta> sequences,
                       uint32_t assigned) {
  if (sequences.empty()) return assigned;
  Extent extent;
  for (const SequenceMeta& sequence : sequences) AddSequence(sequence, assigned, &extent);
  switch (lag_of) {
    case codec::LagOf::kOldest:
      return extent.oldest;
    case codec::LagOf::kStart:
      return extent.start;
    case codec::LagOf::kNewest:
      return extent.newest;
    case codec::LagOf::kMeanToken:
      break;
  }
  return extent.tokens == 0 ? extent.oldest
                            : static_cast<uint32_t>(extent.weighted / extent.tokens);
}

uint32_t LossTokensFrom(const SequenceMeta& sequence, uint32_t mask_below, uint32_t assigned) {
  if (sequence.versions.empty()) return assigned >= mask_below ? sequence.loss_tokens : 0;
  uint32_t sum = 0;
  for (const VersionRun& run : sequence.versions) {
    if (run.version.number >= mask_below) sum += run.loss_tokens;
  }
  return sum;
}

}  // namespace forebay::rollout
