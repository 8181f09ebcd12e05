// The settings of a source, as the pure core holds them. The wire's SourceSettings is the same with
// comments for users.
//
// Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace forebay::codec {

enum class Purpose : uint8_t { kTrain, kEval };
enum class Order : uint8_t { kShuffled, kStatic, kWeighted, kLearnable };
enum class AdvantageKind : uint8_t { kGrpo, kDrGrpo, kRloo, kReinforcePp, kNone };
enum class LagOf : uint8_t { kOldest, kStart, kMeanToken, kNewest };
enum class LateRule : uint8_t { kDrop, kBaselineOnly, kMaskOldTokens, kTrain, kWait };
enum class TruncatedRule : uint8_t { kTrain, kMask, kDrop };
enum class AbortedRule : uint8_t { kRetry, kDrop };

struct SourceSettings {
  std::string name;
  Purpose purpose = Purpose::kTrain;
  uint32_t group_size = 16;
  uint32_t attempts_per_task = 16;
  std::string sampling_json;
  // Sorted by key; at most 8. The training scalar is the sum of weight x reward.
  std::vector<std::pair<std::string, double>> rewards = {{"reward", 1.0}};
  uint64_t reward_timeout_ms = 0;
  // A group is complete with this many rewarded rollouts ...
  uint32_t complete_at = 16;
  // ... or, this long after its first assignment (0: never), with `complete_minimum`.
  uint64_t complete_deadline_ms = 0;
  uint32_t complete_minimum = 2;
  bool keep_equal_rewards = false;
  // So many attempts of a group are made first; if their rewards are equal, the group is filtered,
  // and the others are not made. 0: all at once.
  uint32_t screen_attempts = 0;
  uint32_t filter_max_tokens = 0;  // 0: no limit
  AdvantageKind advantage = AdvantageKind::kGrpo;
  TruncatedRule truncated = TruncatedRule::kTrain;
  AbortedRule aborted = AbortedRule::kRetry;
  uint32_t max_lag = 1;
  LagOf lag_of = LagOf::kOldest;
  LateRule late = LateRule::kDrop;
  uint64_t lease_min_ms = 10'000;
  uint64_t lease_max_ms = 600'000;
  double lease_duration_factor = 3;
  uint32_t max_failures = 3;
  double weight = 1;
  double minimum_share = 0;
  Order order = Order::kShuffled;
  uint32_t epochs = 0;   // 0: without end
  double retest = 0.05;  // order learnable: of what is solved or unsolved, against half solved
  std::vector<std::string> required_columns = {"tokens", "loss_mask"};
  bool paused = false;

  bool operator==(const SourceSettings&) const = default;

  template <class A>
  void Fields(A& a) {
    a(name, purpose, group_size, attempts_per_task, sampling_json, rewards, reward_timeout_ms,
      complete_at, complete_deadline_ms, complete_minimum, keep_equal_rewards, screen_attempts,
      filter_max_tokens, advantage, truncated, aborted, max_lag, lag_of, late, lease_min_ms,
      lease_max_ms, lease_duration_factor, max_failures, weight, minimum_share, order, epochs,
      retest, required_columns, paused);
  }
};

}  // namespace forebay::codec
