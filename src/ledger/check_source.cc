#include "ledger/check_source.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "codec/limits.h"
#include "ledger/limits.h"

namespace forebay::ledger {
namespace {

template <class... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status InRange(absl::string_view field, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return Refuse(field, ": ", value, ", from ", least, " to ", most);
}

absl::Status InRange(absl::string_view field, double value, double least, double most) {
  // False for NaN.
  if (value >= least && value <= most) return absl::OkStatus();
  return Refuse(field, ": ", value, ", from ", least, " to ", most);
}

template <class Enum>
absl::Status Known(absl::string_view field, Enum value, Enum last) {
  return InRange(field, static_cast<uint64_t>(value), 0, static_cast<uint64_t>(last));
}

absl::Status CheckName(absl::string_view field, absl::string_view name, size_t most,
                       absl::string_view signs) {
  if (name.empty() || name.size() > most) {
    return Refuse(field, ": ", name.size(), " bytes, from 1 to ", most);
  }
  for (char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        signs.find(c) == absl::string_view::npos) {
      return Refuse(field, ": \"", name, "\", of letters, digits and ", signs);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckEnums(const codec::SourceSettings& s) {
  FOREBAY_RETURN_IF_ERROR(Known("purpose", s.purpose, codec::Purpose::kEval));
  FOREBAY_RETURN_IF_ERROR(Known("advantage", s.advantage, codec::AdvantageKind::kNone));
  FOREBAY_RETURN_IF_ERROR(Known("truncated", s.truncated, codec::TruncatedRule::kDrop));
  FOREBAY_RETURN_IF_ERROR(Known("aborted", s.aborted, codec::AbortedRule::kDrop));
  FOREBAY_RETURN_IF_ERROR(Known("lag_of", s.lag_of, codec::LagOf::kNewest));
  FOREBAY_RETURN_IF_ERROR(Known("late", s.late, codec::LateRule::kWait));
  return Known("order", s.order, codec::Order::kLearnable);
}

const char* NameOf(codec::AdvantageKind kind) {
  switch (kind) {
    case codec::AdvantageKind::kGrpo:
      return "grpo";
    case codec::AdvantageKind::kDrGrpo:
      return "dr_grpo";
    case codec::AdvantageKind::kRloo:
      return "rloo";
    case codec::AdvantageKind::kReinforcePp:
      return "reinforce_pp";
    case codec::AdvantageKind::kNone:
      break;
  }
  return "none";
}

absl::Status CheckGroup(const codec::SourceSettings& s) {
  FOREBAY_RETURN_IF_ERROR(InRange("group_size", uint64_t{s.group_size}, 1, kGroupSizeMax));
  FOREBAY_RETURN_IF_ERROR(InRange("attempts_per_task", uint64_t{s.attempts_per_task}, s.group_size,
                                  kAttemptsPerTaskMax));
  FOREBAY_RETURN_IF_ERROR(
      InRange("completeness.at_least", uint64_t{s.complete_at}, 1, s.attempts_per_task));
  if (s.purpose == codec::Purpose::kTrain && s.complete_at == 1 &&
      s.advantage != codec::AdvantageKind::kNone) {
    return Refuse(s.group_size == 1 ? "group_size" : "completeness.at_least", ": 1, but advantage ",
                  NameOf(s.advantage),
                  " compares the rollouts of a group with each other, and every group of one would "
                  "be filtered: at least 2, or advantage none");
  }
  FOREBAY_RETURN_IF_ERROR(
      InRange("completeness.deadline_ms", s.complete_deadline_ms, 0, kDurationMsMax));
  if (s.screen_attempts != 0) {
    FOREBAY_RETURN_IF_ERROR(InRange("filters.screen_attempts", uint64_t{s.screen_attempts}, 2,
                                    uint64_t{s.attempts_per_task} - 1));
    if (s.keep_equal_rewards) {
      return Refuse("filters.screen_attempts: ", s.screen_attempts,
                    ", but keep_equal_rewards keeps what screening would leave out: 0");
    }
  }
  if (s.complete_deadline_ms == 0) return absl::OkStatus();
  const uint64_t least = s.purpose == codec::Purpose::kTrain ? 2 : 1;
  return InRange("completeness.minimum", uint64_t{s.complete_minimum}, least, s.complete_at);
}

absl::Status CheckRewards(const codec::SourceSettings& s) {
  if (s.rewards.empty() || s.rewards.size() > kRewardsMax) {
    return Refuse("rewards: ", s.rewards.size(), " keys, from 1 to ", kRewardsMax);
  }
  for (size_t i = 0; i < s.rewards.size(); ++i) {
    const auto& [key, weight] = s.rewards[i];
    if (key.empty() || key.size() > kColumnNameBytesMax) {
      return Refuse("rewards: a key of ", key.size(), " bytes, from 1 to ", kColumnNameBytesMax);
    }
    if (!(std::abs(weight) <= codec::kRewardWeightMax)) {
      return Refuse("rewards[", key, "]: ", weight, ", must be finite and within +-",
                    codec::kRewardWeightMax);
    }
    if (i > 0 && s.rewards[i - 1].first >= key) {
      return Refuse("rewards: \"", key, "\" after \"", s.rewards[i - 1].first,
                    "\", must be sorted and distinct");
    }
  }
  return InRange("reward_timeout_ms", s.reward_timeout_ms, 0, kDurationMsMax);
}

absl::Status CheckLease(const codec::SourceSettings& s) {
  FOREBAY_RETURN_IF_ERROR(InRange("lease.max_ms", s.lease_max_ms, 1, kDurationMsMax));
  FOREBAY_RETURN_IF_ERROR(InRange("lease.min_ms", s.lease_min_ms, 1, s.lease_max_ms));
  FOREBAY_RETURN_IF_ERROR(InRange("lease.duration_factor", s.lease_duration_factor, 0.01, 1'000.0));
  return InRange("lease.max_failures", uint64_t{s.max_failures}, 1, UINT32_MAX);
}

absl::Status CheckColumns(const codec::SourceSettings& s) {
  if (s.required_columns.size() > kRequiredColumnsMax) {
    return Refuse("required_columns: ", s.required_columns.size(), ", at most ",
                  kRequiredColumnsMax);
  }
  std::vector<std::string> names = s.required_columns;
  for (const std::string& name : names) {
    FOREBAY_RETURN_IF_ERROR(CheckName("required_columns", name, kColumnNameBytesMax, "_."));
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return Refuse("required_columns: \"", *twice, "\" twice, once at most");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSettings(const codec::SourceSettings& s) {
  FOREBAY_RETURN_IF_ERROR(CheckName("name", s.name, kSourceNameBytesMax, "._-/"));
  FOREBAY_RETURN_IF_ERROR(CheckEnums(s));
  FOREBAY_RETURN_IF_ERROR(CheckGroup(s));
  if (s.sampling_json.size() > kSamplingBytesMax) {
    return Refuse("sampling_json: ", s.sampling_json.size(), " bytes, at most ", kSamplingBytesMax);
  }
  FOREBAY_RETURN_IF_ERROR(CheckRewards(s));
  FOREBAY_RETURN_IF_ERROR(InRange("retest", s.retest, 0.0, 1.0));
  FOREBAY_RETURN_IF_ERROR(InRange("max_lag", uint64_t{s.max_lag}, 0, kMaxLagMax));
  FOREBAY_RETURN_IF_ERROR(CheckLease(s));
  if (!std::isfinite(s.weight) || s.weight < 0) {
    return Refuse("weight: ", s.weight, ", must be finite and at least 0");
  }
  FOREBAY_RETURN_IF_ERROR(InRange("minimum_share", s.minimum_share, 0.0, 1.0));
  return CheckColumns(s);
}

}  // namespace forebay::ledger
