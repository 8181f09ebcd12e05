#include "server/catalog.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sync.h"

namespace forebay::server {

absl::Status CatalogSnapshot::Build(std::vector<CatalogSource> sources, CatalogSnapshot* out) {
  out->sources_ = std::move(sources);
  for (const auto& source : out->sources_) {
    if (!out->Add(source.settings)) {
      return absl::ResourceExhaustedError(absl::StrCat("source '", source.settings.name,
                                                       "': the sources together name more than ",
                                                       kNamesMax, " required columns or rewards"));
    }
  }
  for (auto& source : out->sources_) {
    out->by_name_[source.settings.name] = source.id.value;
    source.required_bits = out->RequiredBits(source.settings);
    source.rewards.clear();
    uint8_t bit = 0;
    for (const auto& [name, weight] : source.settings.rewards) {
      const auto number = static_cast<uint8_t>(out->RewardNumber(name));
      source.rewards.push_back({.number = number, .bit = bit++, .weight = weight});
    }
  }
  return absl::OkStatus();
}

const CatalogSource* CatalogSnapshot::Find(std::string_view name) const {
  const auto found = by_name_.find(absl::string_view(name.data(), name.size()));
  return found == by_name_.end() ? nullptr : &sources_[found->second];
}

std::shared_ptr<const CatalogSnapshot> Catalog::Get() const {
  MutexLock lock(&mutex_);
  return current_;
}

absl::Status Catalog::With(const CatalogSnapshot& before, SourceId id,
                           const codec::SourceSettings& settings, CatalogSnapshot* out) {
  std::vector<CatalogSource> sources = before.sources();
  if (id.value >= sources.size()) {
    FOREBAY_CHECK(id.value == sources.size());
    sources.emplace_back();
  }
  sources[id.value] = {.id = id, .settings = settings};
  return CatalogSnapshot::Build(std::move(sources), out);
}

absl::Status Catalog::CanHold(const codec::SourceSettings& settings) const {
  const auto now = Get();
  // Mostly the names that are known already suffice, and nothing need be built anew.
  codec::NameTable names = *now;
  if (names.Add(settings)) return absl::OkStatus();
  const auto* known = now->Find(settings.name);
  const SourceId id =
      known != nullptr ? known->id : SourceId(static_cast<uint16_t>(now->sources().size()));
  CatalogSnapshot ignored;
  return With(*now, id, settings, &ignored);
}

absl::Status Catalog::Put(SourceId id, const codec::SourceSettings& settings) {
  MutexLock lock(&mutex_);
  auto next = std::make_shared<CatalogSnapshot>();
  FOREBAY_RETURN_IF_ERROR(With(*current_, id, settings, next.get()));
  current_ = std::move(next);
  return absl::OkStatus();
}

}  // namespace forebay::server
