#include "ctl/rollout_filter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "ctl/column_values.h"
#include "ctl/usage.h"

namespace forebay::ctl {
namespace {

constexpr char kNan[] = "nan";
constexpr char kRepeat[] = "repeat";
constexpr uint32_t kPageMax = 1'000;

bool IsContentFlag(const std::string& flag) { return flag == kNan || flag == kRepeat; }

bool Has(const std::vector<std::string>& flags, std::string_view flag) {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

absl::StatusOr<double> ParseBound(std::string_view text, std::string_view bound) {
  double value = 0;
  const absl::string_view number = absl::StripAsciiWhitespace({text.data(), text.size()});
  if (absl::SimpleAtod(number, &value) && std::isfinite(value)) return value;
  return UsageError(absl::StrCat("--reward: '", std::string(bound),
                                 "' must be <, <=, >, >= or = and a finite number"));
}

// A column with one float a row: log-probabilities, values, advantages.
bool IsScalarFloat(const v1::Column& column) {
  return IsFloat(column.dtype()) && HasRows(column) && column.inner_size() == 0;
}

absl::StatusOr<bool> HasNan(const RolloutReader& reader) {
  for (int i = 0; i < reader.header().columns_size(); ++i) {
    const v1::Column& column = reader.header().columns(i);
    if (!IsScalarFloat(column)) continue;
    StatisticsCollector collector(column);
    const auto status = reader.ReadColumn(
        i,
        [&collector](std::string_view piece) {
          collector.Add(piece);
          return absl::OkStatus();
        },
        kLookBytesMax);
    if (!status.ok()) return status;
    const ColumnStatistics found = collector.Result();
    if (found.nan + found.infinite > 0) return true;
  }
  return false;
}

absl::StatusOr<bool> Repeats(const RolloutReader& reader) {
  const int column = reader.FindColumn("tokens");
  if (column < 0) return false;
  const auto bytes = reader.ReadColumn(column, kLookBytesMax);
  if (!bytes.ok()) return bytes.status();
  size_t begin = 0;
  for (const auto& sequence : reader.header().sequences()) {
    const size_t end = std::min<size_t>(begin + sequence.tokens(), bytes->size() / 4);
    const size_t from = std::min<size_t>(begin + sequence.prompt_tokens(), end);
    std::vector<uint32_t> response(end - from);
    std::memcpy(response.data(), bytes->data() + from * 4, response.size() * 4);
    if (FindRepetition(response).has_value()) return true;
    begin = end;
  }
  return false;
}

// The flags that the daemon has told and those that its bytes tell; nothing if the rollout has
// gone.
absl::StatusOr<std::optional<v1::RolloutState>> LookAt(const Context& context,
                                                       const RolloutChoice& choice,
                                                       const v1::RolloutState& listed) {
  v1::RolloutState rollout = listed;
  const auto reader = RolloutReader::Open(context, listed.rollout_id());
  if (absl::IsNotFound(reader.status())) return std::nullopt;
  if (absl::IsDataLoss(reader.status())) {
    rollout.add_flags("lost");
    return rollout;
  }
  if (!reader.ok()) return reader.status();
  const auto found = FindContentFlags(*reader, choice.flags);
  if (absl::IsNotFound(found.status())) return std::nullopt;
  if (!found.ok()) return found.status();
  for (const std::string& flag : *found) rollout.add_flags(flag);
  return rollout;
}

bool FlagWanted(const RolloutChoice& choice, const v1::RolloutState& rollout) {
  return choice.flags.empty() ||
         std::any_of(rollout.flags().begin(), rollout.flags().end(),
                     [&choice](const std::string& flag) { return Has(choice.flags, flag); });
}

class Walk {
 public:
  Walk(const Context& context, const RolloutChoice& choice, TakeRollout take)
      : context_(context),
        choice_(choice),
        take_(take),
        looks_(std::any_of(choice.flags.begin(), choice.flags.end(), IsContentFlag)) {}

  absl::StatusOr<WalkEnd> Run() {
    v1::ListRolloutsRequest request;
    request.set_source(choice_.source);
    request.set_state(choice_.state);
    if (auto status = ParseReward(choice_.reward, &request); !status.ok()) return status;
    // What may apply besides a flag of the bytes is for us to see.
    if (!looks_) request.mutable_flags()->Add(choice_.flags.begin(), choice_.flags.end());
    do {
      request.set_page_size(looks_ ? kPageMax : std::min(choice_.limit - taken_, kPageMax));
      const auto page = context_.Ask<v1::ListRolloutsResponse>("ListRollouts", request);
      if (!page.ok()) return page.status();
      end_.page_token = page->page_token();
      request.set_page_token(page->page_token());
      for (const auto& rollout : page->rollouts()) {
        if (auto status = Visit(rollout); !status.ok()) return status;
        if (taken_ == choice_.limit || end_.look_max_hit) return end_;
      }
    } while (!end_.page_token.empty());
    return end_;
  }

 private:
  absl::Status Visit(const v1::RolloutState& listed) {
    if (!looks_) {
      ++taken_;
      return take_(listed);
    }
    if (end_.looked == choice_.look_max) {
      end_.look_max_hit = true;
      return absl::OkStatus();
    }
    ++end_.looked;
    const auto rollout = LookAt(context_, choice_, listed);
    if (!rollout.ok()) return rollout.status();
    if (!rollout->has_value() || !FlagWanted(choice_, **rollout)) return absl::OkStatus();
    ++taken_;
    return take_(**rollout);
  }

  const Context& context_;
  const RolloutChoice& choice_;
  const TakeRollout take_;
  const bool looks_;
  uint32_t taken_ = 0;
  WalkEnd end_;
};

}  // namespace

absl::Status ParseReward(std::string_view text, v1::ListRolloutsRequest* request) {
  if (text.empty()) return absl::OkStatus();
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(part);
    const std::string_view bound(stripped.data(), stripped.size());
    const size_t digits = bound.find_first_not_of("<>=");
    const std::string_view sign = bound.substr(0, std::min(digits, bound.size()));
    const auto value = ParseBound(bound.substr(sign.size()), bound);
    if (!value.ok()) return value.status();
    if (sign == "<") {
      request->set_reward_below(*value);
    } else if (sign == "<=") {
      request->set_reward_max(*value);
    } else if (sign == ">") {
      request->set_reward_above(*value);
    } else if (sign == ">=") {
      request->set_reward_min(*value);
    } else if (sign == "=") {
      request->set_reward_min(*value);
      request->set_reward_max(*value);
    } else {
      return ParseBound("", bound).status();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FindContentFlags(const RolloutReader& reader,
                                                          const std::vector<std::string>& wanted) {
  std::vector<std::string> found;
  if (Has(wanted, kNan)) {
    const auto nan = HasNan(reader);
    if (!nan.ok()) return nan.status();
    if (*nan) found.emplace_back(kNan);
  }
  if (Has(wanted, kRepeat)) {
    const auto repeats = Repeats(reader);
    if (!repeats.ok()) return repeats.status();
    if (*repeats) found.emplace_back(kRepeat);
  }
  return found;
}

absl::StatusOr<WalkEnd> WalkRollouts(const Context& context, const RolloutChoice& choice,
                                     TakeRollout take) {
  return Walk(context, choice, take).Run();
}

void AddRolloutOptions(CLI::App* command, RolloutChoice* choice) {
  command->add_option("-s,--source", choice->source, "Only of this source");
  command
      ->add_option("--state", choice->state,
                   "held: in an open group; ready: its group waits for a step; reserved: in a "
                   "step (default: these three); trained: in a committed step, there for a rewind; "
                   "kept: of a committed step, there for people to look at")
      ->check(CLI::IsMember({"held", "ready", "reserved", "trained", "kept"}));
  command->add_option("--reward", choice->reward,
                      "Bounds of the training reward: '<0.1', '>=0.5,<0.9', '=1'");
  command
      ->add_option("--flag", choice->flags,
                   "One of these applies: truncated, aborted, unrewarded, lost; nan, repeat, which "
                   "take a look at the bytes")
      ->delimiter(',')
      ->check(CLI::IsMember({"truncated", "aborted", "unrewarded", "lost", kNan, kRepeat}));
  command
      ->add_option("--look", choice->look_max,
                   "Rollouts whose bytes are read for nan and repeat, at most")
      ->check(CLI::Range(1u, 100'000'000u))
      ->capture_default_str();
  command->add_option("-n,--limit", choice->limit, "At most so many")
      ->check(CLI::Range(1u, 100'000'000u))
      ->capture_default_str();
}

}  // namespace forebay::ctl
