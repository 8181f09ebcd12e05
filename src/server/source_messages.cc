#include "server/source_messages.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::server {
namespace {

// The wire's enumerators by position: entry i belongs to the number i, entry 0 to "not given".
template <class Core, size_t N, class Wire>
absl::Status FromWire(const Core (&by_number)[N], Wire wire, const char* field, Core* out) {
  const auto number = static_cast<size_t>(wire);
  if (number >= N) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": is ", number, "; the largest is ", N - 1));
  }
  *out = by_number[number];
  return absl::OkStatus();
}

template <class Wire, class Core, size_t N>
Wire ToWire(const Core (&by_number)[N], Core core) {
  const auto* found = std::find(by_number + 1, by_number + N, core);
  return static_cast<Wire>(found - by_number);
}

using codec::AbortedRule;
using codec::AdvantageKind;
using codec::LagOf;
using codec::LateRule;
using codec::Order;
using codec::Purpose;
using codec::TruncatedRule;

constexpr Purpose kPurposes[] = {Purpose::kTrain, Purpose::kTrain, Purpose::kEval};
constexpr Order kOrders[] = {Order::kShuffled, Order::kStatic, Order::kShuffled, Order::kWeighted,
                             Order::kLearnable};
constexpr AdvantageKind kAdvantages[] = {AdvantageKind::kGrpo,        AdvantageKind::kGrpo,
                                         AdvantageKind::kDrGrpo,      AdvantageKind::kRloo,
                                         AdvantageKind::kReinforcePp, AdvantageKind::kNone};
constexpr LagOf kLagOfs[] = {LagOf::kOldest, LagOf::kOldest, LagOf::kStart, LagOf::kMeanToken,
                             LagOf::kNewest};
constexpr LateRule kLateRules[] = {LateRule::kDrop,         LateRule::kDrop,
                                   LateRule::kBaselineOnly, LateRule::kMaskOldTokens,
                                   LateRule::kTrain,        LateRule::kWait};
constexpr TruncatedRule kTruncatedRules[] = {TruncatedRule::kTrain, TruncatedRule::kTrain,
                                             TruncatedRule::kMask, TruncatedRule::kDrop};
constexpr AbortedRule kAbortedRules[] = {AbortedRule::kRetry, AbortedRule::kRetry,
                                         AbortedRule::kDrop};

absl::Status EnumsFromWire(const v1::SourceSettings& in, codec::SourceSettings* out) {
  FOREBAY_RETURN_IF_ERROR(FromWire(kPurposes, in.purpose(), "purpose", &out->purpose));
  FOREBAY_RETURN_IF_ERROR(FromWire(kOrders, in.order(), "order", &out->order));
  FOREBAY_RETURN_IF_ERROR(FromWire(kAdvantages, in.advantage(), "advantage", &out->advantage));
  FOREBAY_RETURN_IF_ERROR(FromWire(kLagOfs, in.lag_of(), "lag_of", &out->lag_of));
  FOREBAY_RETURN_IF_ERROR(FromWire(kLateRules, in.late(), "late", &out->late));
  FOREBAY_RETURN_IF_ERROR(FromWire(kTruncatedRules, in.truncated(), "truncated", &out->truncated));
  return FromWire(kAbortedRules, in.aborted(), "aborted", &out->aborted);
}

// Clients parse it for each assignment: one that cannot be parsed would cost every task its turn.
// protobuf's parser takes more than JSON (names without quotes), so what is kept is written anew.
absl::Status SamplingFromWire(const std::string& json, std::string* out) {
  if (json.empty()) return absl::OkStatus();
  google::protobuf::Struct object;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, &object);
  if (parsed.ok() && google::protobuf::util::MessageToJsonString(object, out).ok()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("sampling_json: is no JSON object: ", std::string(parsed.message())));
}

}  // namespace

absl::StatusOr<codec::SourceSettings> FromWire(const v1::SourceSettings& in) {
  codec::SourceSettings out;
  FOREBAY_RETURN_IF_ERROR(EnumsFromWire(in, &out));
  out.name = in.name();
  if (in.group_size() != 0) out.group_size = in.group_size();
  out.attempts_per_task = in.attempts_per_task() != 0 ? in.attempts_per_task() : out.group_size;
  FOREBAY_RETURN_IF_ERROR(SamplingFromWire(in.sampling_json(), &out.sampling_json));
  if (in.rewards_size() != 0) {
    out.rewards.assign(in.rewards().begin(), in.rewards().end());
    std::ranges::sort(out.rewards);
  }
  out.reward_timeout_ms = in.reward_timeout_ms();
  out.complete_at =
      in.completeness().at_least() != 0 ? in.completeness().at_least() : out.group_size;
  out.complete_deadline_ms = in.completeness().deadline_ms();
  out.complete_minimum = in.completeness().minimum();
  if (out.complete_minimum == 0) out.complete_minimum = std::min(2u, out.complete_at);
  out.keep_equal_rewards = in.filters().keep_equal_rewards();
  out.filter_max_tokens = in.filters().max_tokens();
  out.screen_attempts = in.filters().screen_attempts();
  if (in.has_max_lag()) out.max_lag = in.max_lag();
  if (in.lease().min_ms() != 0) out.lease_min_ms = in.lease().min_ms();
  if (in.lease().max_ms() != 0) out.lease_max_ms = in.lease().max_ms();
  if (in.lease().duration_factor() != 0) out.lease_duration_factor = in.lease().duration_factor();
  if (in.lease().max_failures() != 0) out.max_failures = in.lease().max_failures();
  if (in.has_weight()) out.weight = in.weight();
  out.minimum_share = in.minimum_share();
  out.epochs = in.epochs();
  if (in.has_retest()) out.retest = in.retest();
  if (in.required_columns_size() != 0) {
    out.required_columns.assign(in.required_columns().begin(), in.required_columns().end());
  }
  out.paused = in.paused();
  return out;
}

void ToWire(const codec::SourceSettings& in, v1::SourceSettings* out) {
  out->set_name(in.name);
  out->set_purpose(ToWire<v1::Purpose>(kPurposes, in.purpose));
  out->set_group_size(in.group_size);
  out->set_attempts_per_task(in.attempts_per_task);
  out->set_sampling_json(in.sampling_json);
  for (const auto& [key, weight] : in.rewards) (*out->mutable_rewards())[key] = weight;
  out->set_reward_timeout_ms(in.reward_timeout_ms);
  out->mutable_completeness()->set_at_least(in.complete_at);
  out->mutable_completeness()->set_deadline_ms(in.complete_deadline_ms);
  out->mutable_completeness()->set_minimum(in.complete_minimum);
  out->mutable_filters()->set_keep_equal_rewards(in.keep_equal_rewards);
  out->mutable_filters()->set_max_tokens(in.filter_max_tokens);
  out->mutable_filters()->set_screen_attempts(in.screen_attempts);
  out->set_advantage(ToWire<v1::AdvantageKind>(kAdvantages, in.advantage));
  out->set_truncated(ToWire<v1::TruncatedRule>(kTruncatedRules, in.truncated));
  out->set_aborted(ToWire<v1::AbortedRule>(kAbortedRules, in.aborted));
  out->set_max_lag(in.max_lag);
  out->set_lag_of(ToWire<v1::LagOf>(kLagOfs, in.lag_of));
  out->set_late(ToWire<v1::LateRule>(kLateRules, in.late));
  out->mutable_lease()->set_min_ms(in.lease_min_ms);
  out->mutable_lease()->set_max_ms(in.lease_max_ms);
  out->mutable_lease()->set_duration_factor(in.lease_duration_factor);
  out->mutable_lease()->set_max_failures(in.max_failures);
  out->set_weight(in.weight);
  out->set_minimum_share(in.minimum_share);
  out->set_order(ToWire<v1::Order>(kOrders, in.order));
  out->set_epochs(in.epochs);
  out->set_retest(in.retest);
  for (const auto& column : in.required_columns) out->add_required_columns(column);
  out->set_paused(in.paused);
}

// Settings whose defaults are made of group_size, and that are at them, will be at the new ones.
void LetFollowGroupSize(v1::SourceSettings* held) {
  if (held->attempts_per_task() == held->group_size()) held->clear_attempts_per_task();
  v1::Completeness* const complete = held->mutable_completeness();
  if (complete->minimum() == std::min(2u, complete->at_least())) complete->clear_minimum();
  if (complete->at_least() == held->group_size()) complete->clear_at_least();
}

absl::Status MergeFields(const v1::SourceSettings& from, const std::vector<std::string>& fields,
                         v1::SourceSettings* to) {
  const auto* descriptor = v1::SourceSettings::descriptor();
  const auto* reflection = v1::SourceSettings::GetReflection();
  v1::SourceSettings picked = from;
  std::vector<const google::protobuf::FieldDescriptor*> wanted;
  for (const auto& name : fields) {
    const auto* field = descriptor->FindFieldByName(name);
    if (field == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("fields: '", name, "' is no field of SourceSettings"));
    }
    wanted.push_back(field);
  }
  if (std::ranges::find(fields, "group_size") != fields.end()) LetFollowGroupSize(to);
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    const bool named = std::ranges::find(wanted, field) != wanted.end();
    // What is named replaces; what is not named keeps its value.
    reflection->ClearField(named ? to : &picked, field);
  }
  to->MergeFrom(picked);
  return absl::OkStatus();
}

}  // namespace forebay::server
