// The sources as the services see them: names to ids, and what a push to each of them is checked
// against.
//
// Immutable snapshots behind one pointer: readers take one and keep it for a request. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "base/sync.h"
#include "codec/name_table.h"
#include "codec/source_settings.h"

namespace forebay::server {

struct CatalogSource {
  SourceId id;
  codec::SourceSettings settings;
  // Columns that a rollout must have, and by reward number: the bit in
  // RolloutMeta::rewards_present, and the weight.
  uint64_t required_bits = 0;
  struct Reward {
    uint8_t number = 0;
    uint8_t bit = 0;
    double weight = 0;
  };
  std::vector<Reward> rewards;
};

// The numbers of its names belong to it: what was decoded with a snapshot is checked with the same
// one.
class CatalogSnapshot : public codec::NameTable {
 public:
  CatalogSnapshot() = default;
  // ResourceExhausted when the sources together name too many columns or rewards.
  static absl::Status Build(std::vector<CatalogSource> sources, CatalogSnapshot* out);

  const CatalogSource* Find(std::string_view name) const;
  const CatalogSource* Find(SourceId id) const {
    return id.value < sources_.size() ? &sources_[id.value] : nullptr;
  }
  const std::vector<CatalogSource>& sources() const { return sources_; }

 private:
  std::vector<CatalogSource> sources_;  // by id, dense
  absl::flat_hash_map<std::string, uint16_t> by_name_;
};

class Catalog {
 public:
  std::shared_ptr<const CatalogSnapshot> Get() const;
  // Whether the catalog could hold the source as well; it is not added.
  absl::Status CanHold(const codec::SourceSettings& settings) const;
  // Takes up a source that the ledger has accepted.
  absl::Status Put(SourceId id, const codec::SourceSettings& settings);

 private:
  static absl::Status With(const CatalogSnapshot& before, SourceId id,
                           const codec::SourceSettings& settings, CatalogSnapshot* out);

  mutable Mutex mutex_;
  std::shared_ptr<const CatalogSnapshot> current_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<CatalogSnapshot>();
};

}  // namespace forebay::server
