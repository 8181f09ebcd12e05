#include "ledger/check_spec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "batch/cost.h"
#include "batch/pack.h"
#include "ledger/limits.h"

namespace forebay::ledger {
namespace {

absl::Status InRange(absl::string_view field, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, ", from ", least, " to ", most));
}

std::string Text(bool value) { return value ? "true" : "false"; }
std::string Text(const std::optional<uint32_t>& value) {
  return value ? absl::StrCat(*value) : "none";
}
std::string Text(const std::vector<SourceId>& sources) {
  if (sources.empty()) return "all";
  return absl::StrJoin(sources, "+",
                       [](std::string* out, SourceId id) { absl::StrAppend(out, id.value); });
}
std::string Text(const std::vector<batch::CostPoint>& table) {
  if (table.empty()) return "none";
  return absl::StrJoin(table, ",", [](std::string* out, const batch::CostPoint& point) {
    absl::StrAppend(out, point.tokens, "=", point.cost);
  });
}
std::string Text(double value) { return absl::StrCat(value); }
std::string Text(uint64_t value) { return absl::StrCat(value); }
std::string Text(uint32_t value) { return absl::StrCat(value); }

// Collects the first field that differs.
class Difference {
 public:
  template <class T>
  Difference& Field(absl::string_view name, const T& asked, const T& held) {
    if (!found_ && !(asked == held)) {
      found_ = absl::StrCat(name, ": ", Text(asked), ", not ", Text(held));
    }
    return *this;
  }
  std::optional<std::string> found() const { return found_; }

 private:
  std::optional<std::string> found_;
};

}  // namespace

absl::Status CheckMesh(const Mesh& mesh) {
  FOREBAY_RETURN_IF_ERROR(InRange("mesh.dp", mesh.dp, 1, kMeshMax));
  FOREBAY_RETURN_IF_ERROR(InRange("mesh.tp", mesh.tp, 1, kMeshMax));
  FOREBAY_RETURN_IF_ERROR(InRange("mesh.pp", mesh.pp, 1, kMeshMax));
  FOREBAY_RETURN_IF_ERROR(InRange("mesh.cp", mesh.cp, 1, kMeshMax));
  const uint64_t peers = uint64_t{mesh.tp} * mesh.pp * mesh.cp;  // at most 2^48
  FOREBAY_RETURN_IF_ERROR(InRange("mesh.tp * pp * cp", peers, 1, kMeshMax));
  return InRange("mesh.micro_batches_multiple_of", mesh.micro_batches_multiple_of, 1, kMeshMax);
}

absl::Status CheckPacking(const StepSpec& spec) {
  FOREBAY_RETURN_IF_ERROR(CheckMesh(spec.mesh));
  FOREBAY_RETURN_IF_ERROR(InRange("token_budget", spec.token_budget, 1, batch::kMaxTokens));
  FOREBAY_RETURN_IF_ERROR(InRange("mini_batches", spec.mini_batches, 1, kMiniBatchesMax));
  FOREBAY_RETURN_IF_ERROR(InRange("pad_multiple", spec.pad_multiple, 1, spec.token_budget));
  const auto smallest = static_cast<unsigned __int128>(spec.mesh.dp) *
                        spec.mesh.micro_batches_multiple_of * spec.mini_batches;
  if (smallest > batch::kMaxMicroBatches) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh.dp * micro_batches_multiple_of * mini_batches: ", spec.mesh.dp, " * ",
                     spec.mesh.micro_batches_multiple_of, " * ", spec.mini_batches, ", at most ",
                     batch::kMaxMicroBatches));
  }
  return batch::CheckCost({spec.cost_linear, spec.cost_quadratic, spec.cost_table});
}

absl::Status CheckSelection(const StepSpec& spec) {
  if (spec.groups == 0) {
    FOREBAY_RETURN_IF_ERROR(InRange("tokens (groups is 0)", spec.tokens, 1, kTokensPerStepMax));
  } else {
    FOREBAY_RETURN_IF_ERROR(InRange("groups", spec.groups, 1, kGroupsPerStepMax));
    FOREBAY_RETURN_IF_ERROR(InRange("tokens (groups is not 0)", spec.tokens, 0, 0));
    if (spec.groups_whole) {
      FOREBAY_RETURN_IF_ERROR(
          InRange("mini_batches (groups_whole)", spec.mini_batches, 1, spec.groups));
    }
  }
  if (spec.max_lag) FOREBAY_RETURN_IF_ERROR(InRange("max_lag", *spec.max_lag, 0, kMaxLagMax));
  return InRange("sources", spec.sources.size(), 0, kSourcesMax);
}

StepSpec Normalized(const StepSpec& spec) {
  StepSpec result = spec;
  std::sort(result.sources.begin(), result.sources.end());
  result.sources.erase(std::unique(result.sources.begin(), result.sources.end()),
                       result.sources.end());
  return result;
}

std::optional<std::string> SelectionDifference(const StepSpec& asked, const StepSpec& held) {
  return Difference()
      .Field("groups", asked.groups, held.groups)
      .Field("tokens", asked.tokens, held.tokens)
      .Field("max_lag", asked.max_lag, held.max_lag)
      .Field("sources", asked.sources, held.sources)
      .found();
}

std::optional<std::string> PackingDifference(const StepSpec& asked, const StepSpec& held) {
  return Difference()
      .Field("mesh.dp", asked.mesh.dp, held.mesh.dp)
      .Field("mesh.tp", asked.mesh.tp, held.mesh.tp)
      .Field("mesh.pp", asked.mesh.pp, held.mesh.pp)
      .Field("mesh.cp", asked.mesh.cp, held.mesh.cp)
      .Field("mesh.micro_batches_multiple_of", asked.mesh.micro_batches_multiple_of,
             held.mesh.micro_batches_multiple_of)
      .Field("token_budget", asked.token_budget, held.token_budget)
      .Field("mini_batches", asked.mini_batches, held.mini_batches)
      .Field("refuse_over_budget", asked.refuse_over_budget, held.refuse_over_budget)
      .Field("groups_whole", asked.groups_whole, held.groups_whole)
      .Field("pad_multiple", asked.pad_multiple, held.pad_multiple)
      .Field("custom_advantages", asked.custom_advantages, held.custom_advantages)
      .Field("cost_linear", asked.cost_linear, held.cost_linear)
      .Field("cost_quadratic", asked.cost_quadratic, held.cost_quadratic)
      .Field("cost_table", asked.cost_table, held.cost_table)
      .found();
}

}  // namespace forebay::ledger
