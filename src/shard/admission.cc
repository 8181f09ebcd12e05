#include "shard/admission.h"

#include <algorithm>
#include <cmath>

#include "shard/limits.h"

namespace forebay::shard {
namespace {

constexpr double kLimitMax = 9007199254740992.0;  // 2^53: whole numbers in a double

}  // namespace

Admission::Admission(const curriculum::Curriculum& curriculum, const codec::VersionState& versions,
                     uint32_t train_floor, bool expect_all)
    : curriculum_(curriculum),
      versions_(versions),
      train_floor_(train_floor),
      expect_all_(expect_all) {
  for (const auto& source : curriculum_.sources()) {
    if (!MayBegin(*source)) continue;
    all_ += source->settings().weight;
    if (Wanted(*source)) wanted_ += source->settings().weight;
  }
}

bool Admission::MayBegin(const curriculum::Source& source) const {
  const codec::SourceSettings& settings = source.settings();
  return settings.purpose == codec::Purpose::kTrain && source.CanDraw() &&
         !UselessAt(versions_.published.number, train_floor_, settings);
}

bool Admission::Wanted(const curriculum::Source& source) const {
  return std::ranges::find(versions_.wanted_sources, source.id()) != versions_.wanted_sources.end();
}

double Admission::WeightsBeside(const curriculum::Source& source) const {
  return Wanted(source) ? wanted_ : all_;
}

uint64_t Admission::Limit(const curriculum::Source& source, double weights) const {
  const codec::SourceSettings& settings = source.settings();
  const double per_version =
      static_cast<double>(versions_.rollouts_per_version > 0 ? versions_.rollouts_per_version
                                                             : kDefaultRolloutsPerVersion);
  const double share =
      std::max(weights > 0 ? settings.weight / weights : 0, settings.minimum_share);
  const uint32_t lag = settings.max_lag / std::max(versions_.numbers_per_version, 1u);
  const double survival = expect_all_ ? 1 : source.survival();
  const double limit =
      std::ceil((lag + 1.0) * per_version * share / survival / std::max(versions_.shards, 1u));
  return static_cast<uint64_t>(std::clamp(limit, 1.0, kLimitMax));
}

void Admission::Limits(std::vector<uint64_t>* limits) const {
  const auto& sources = curriculum_.sources();
  limits->assign(sources.empty() ? 0 : sources.back()->id().value + size_t{1}, 0);
  if (versions_.published.branch != versions_.branch) return;
  for (const auto& source : curriculum_.sources()) {
    if (!MayBegin(*source)) continue;
    (*limits)[source->id().value] = Limit(*source, WeightsBeside(*source));
  }
}

uint64_t Admission::LimitShown(const curriculum::Source& source) const {
  const double own = MayBegin(source) ? 0 : source.settings().weight;
  return Limit(source, WeightsBeside(source) + own);
}

bool UselessAt(uint32_t version, uint32_t train_floor, const codec::SourceSettings& settings) {
  return settings.late != codec::LateRule::kTrain && train_floor > version &&
         train_floor - version > settings.max_lag;
}

}  // namespace forebay::shard
