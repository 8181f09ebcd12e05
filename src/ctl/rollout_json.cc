#include "ctl/rollout_json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "codec/wire.h"
#include "ctl/column_values.h"
#include "ctl/json.h"
#include "ctl/text.h"

namespace forebay::ctl {
namespace {

// What came over the wire as text need not be UTF-8 in every field.
std::string Text(std::string_view text) {
  return JsonText(codec::IsUtf8(text) ? std::string(text) : Printable(text));
}

std::string VersionText(const v1::VersionRun& run) {
  return absl::StrCat("{\"offset\":", run.offset(), ",\"branch\":", run.branch(),
                      ",\"number\":", run.number(), ",\"loss_tokens\":", run.loss_tokens(), "}");
}

std::string TurnText(const v1::Turn& turn) {
  const v1::Sampling& s = turn.sampling();
  return absl::StrCat("{\"offset\":", turn.offset(), ",\"tokens\":", turn.tokens(),
                      ",\"role\":", Text(turn.role()), ",\"engine\":", Text(turn.engine()),
                      ",\"temperature\":", JsonNumber(s.temperature()),
                      ",\"top_p\":", JsonNumber(s.top_p()), ",\"top_k\":", s.top_k(),
                      ",\"seed\":\"", s.seed(), "\",\"tool_wait_ms\":", turn.tool_wait_ms(), "}");
}

std::string SequenceText(const v1::Sequence& s) {
  const auto version = [](std::string* out, const v1::VersionRun& run) {
    *out += VersionText(run);
  };
  const auto turn = [](std::string* out, const v1::Turn& t) { *out += TurnText(t); };
  return absl::StrCat("{\"tokens\":", s.tokens(), ",\"prompt_tokens\":", s.prompt_tokens(),
                      ",\"loss_tokens\":", s.loss_tokens(),
                      ",\"advantage\":", s.has_advantage() ? JsonNumber(s.advantage()) : "null",
                      ",\"versions\":[", absl::StrJoin(s.versions(), ",", version), "],\"turns\":[",
                      absl::StrJoin(s.turns(), ",", turn), "]}");
}

std::string RewardsText(const v1::RolloutHeader& header) {
  std::vector<std::pair<std::string, double>> rewards(header.rewards().begin(),
                                                      header.rewards().end());
  std::sort(rewards.begin(), rewards.end());
  return absl::StrCat("{",
                      absl::StrJoin(rewards, ",",
                                    [](std::string* out, const auto& reward) {
                                      absl::StrAppend(out, Text(reward.first), ":",
                                                      JsonNumber(reward.second));
                                    }),
                      "}");
}

}  // namespace

std::string RolloutFields(const v1::RolloutState& r, const v1::RolloutHeader& header) {
  const auto quoted = [](std::string* out, const std::string& flag) { *out += Text(flag); };
  const auto sequence = [](std::string* out, const v1::Sequence& s) { *out += SequenceText(s); };
  return absl::StrCat(
      "\"rollout_id\":\"", Hex(r.rollout_id()), "\",\"group_id\":\"", Hex(r.group_id()),
      "\",\"attempt_id\":\"", Hex(r.attempt_id()), "\",\"task_id\":\"", Hex(r.task_id()),
      "\",\"source\":", Text(r.source()), ",\"external_id\":", Text(r.external_id()),
      ",\"state\":", Text(r.state()), ",\"step\":", r.step(), ",\"status\":\"",
      EnumName(r.status()), "\",\"reward\":", r.rewarded() ? JsonNumber(r.reward()) : "null",
      ",\"advantage\":", r.state() == "held" ? "null" : JsonNumber(r.advantage()),
      ",\"version\":{\"branch\":", r.version().branch(), ",\"number\":", r.version().number(),
      "},\"flags\":[", absl::StrJoin(r.flags(), ",", quoted), "],\"rewards\":", RewardsText(header),
      ",\"duration_ms\":", header.duration_ms(), ",\"site\":", Text(header.site()),
      ",\"extra_json\":", Text(header.extra_json()), ",\"sequences\":[",
      absl::StrJoin(header.sequences(), ",", sequence), "]");
}

std::string ColumnFields(const v1::RolloutHeader& header, const v1::Column& column) {
  std::string fields = absl::StrCat(
      "{\"dtype\":\"", EnumName(column.dtype()), "\",\"domain\":\"",
      EnumName(column.domain() == v1::DOMAIN_UNSPECIFIED ? v1::DOMAIN_TOKEN : column.domain()),
      "\",\"shape\":[", absl::StrJoin(ShapeOf(header, column), ","),
      "],\"missing\":", JsonNumber(column.missing()));
  if (column.sequence_bytes_size() > 0) {
    absl::StrAppend(&fields, ",\"sequence_bytes\":[", absl::StrJoin(column.sequence_bytes(), ","),
                    "]");
  }
  return fields;
}

}  // namespace forebay::ctl
