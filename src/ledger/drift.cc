// Drift between trainer and engines: what trainers report of it, and the hold that it may cause.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "drift/limits.h"
#include "ledger/limits.h"
#include "ledger/resolve_report.h"
#include "ledger/state.h"

namespace forebay::ledger {
namespace {

// The micro-batch's number within the whole plan, and how many there are.
struct Place {
  uint64_t number = 0;
  uint64_t count = 0;
};

Place PlaceOf(const Step& step, const MicroBatchRef& ref) {
  Place place;
  for (size_t m = 0; m < step.mini_batches.size(); ++m) {
    const uint64_t per_rank = step.mini_batches[m].micro_batches_per_rank;
    if (m == ref.mini_batch) {
      place.number = place.count + ref.dp_rank * per_rank + ref.micro_batch;
    }
    place.count += per_rank * step.spec.mesh.dp;
  }
  return place;
}

absl::Status CheckTokens(const char* kind, const std::vector<drift::Cell>& cells, uint64_t most) {
  double tokens = 0;
  for (const drift::Cell& cell : cells) tokens += cell.sums.tokens + cell.sums.non_finite;
  if (tokens <= static_cast<double>(most)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kind, ".tokens: ", tokens, ", the micro-batch has ", most));
}

bool Counted(const State& state, const ReportSequences& c) {
  const Step* held = state.step(c.step);
  return held != nullptr && held->revision == c.revision && held->Has(c.micro_batch) &&
         state.drift().reports.Counted(c.step, c.revision, PlaceOf(*held, c.micro_batch).number);
}

absl::Status Refuse(const char* kind, const char* field, size_t i, uint64_t value, uint64_t limit) {
  return absl::InvalidArgumentError(
      absl::StrCat(kind, ".", field, "[", i, "]: ", value, ", less than ", limit));
}

// `engines`: names that parts may point to.
absl::Status Resolve(const char* kind, const MicroBatchView& view, uint32_t train_version,
                     size_t engines, std::vector<drift::Part>* parts,
                     std::vector<drift::Cell>* cells) {
  if (parts->size() > drift::kPartsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(kind, ": ", parts->size(), " parts, at most ", drift::kPartsMax));
  }
  std::vector<double> tokens(view.slots.size());
  cells->clear();
  cells->reserve(parts->size());
  for (size_t i = 0; i < parts->size(); ++i) {
    const drift::Part& part = (*parts)[i];
    if (part.sequence >= view.slots.size()) {
      return Refuse(kind, "sequences", i, part.sequence, view.slots.size());
    }
    if (part.engine >= engines) return Refuse(kind, "engines", i, part.engine, engines);
    if (part.lag > train_version) {
      return Refuse(kind, "lags", i, part.lag, uint64_t{train_version} + 1);
    }
    const Slot& slot = view.slots[part.sequence];
    tokens[part.sequence] += part.sums.tokens + part.sums.non_finite;
    if (!(tokens[part.sequence] <= slot.loss_tokens)) {
      return absl::InvalidArgumentError(absl::StrCat(kind, ".tokens[", i, "]: with it sequence ",
                                                     part.sequence, " has ", tokens[part.sequence],
                                                     ", its loss tokens are ", slot.loss_tokens));
    }
    cells->push_back({.source = slot.task.source(),
                      .length = drift::LengthBucket(slot.tokens),
                      .engine = part.engine,
                      .lag = std::min(part.lag, drift::kLagsKept),
                      .sums = part.sums});
  }
  *parts = {};
  return absl::OkStatus();
}

}  // namespace

absl::Status ResolveReport(const State& state, ReportSequences* command) {
  if (Counted(state, *command)) {
    command->engine_parts = command->reference_parts = {};
    command->report = {};
    return absl::OkStatus();
  }
  FOREBAY_RETURN_IF_ERROR(state.CheckGeneration(command->generation));
  const auto view = state.ViewMicroBatch(command->step, command->revision, command->micro_batch);
  if (!view.ok()) return view.status();
  const uint32_t version = state.step(command->step)->train_version.number;
  drift::Report& report = command->report;
  FOREBAY_RETURN_IF_ERROR(Resolve("engine", *view, version, report.engines.size(),
                                  &command->engine_parts, &report.engine));
  FOREBAY_RETURN_IF_ERROR(
      Resolve("reference", *view, version, 1, &command->reference_parts, &report.reference));
  drift::Compact(&report);
  return absl::OkStatus();
}

absl::Status State::CheckOne(const ReportSequences& c) const {
  FOREBAY_RETURN_IF_ERROR(CheckGeneration(c.generation));
  if (Counted(*this, c)) return absl::OkStatus();
  FOREBAY_RETURN_IF_ERROR(CheckSealed(c.step, c.revision));
  const Step& held = *step(c.step);
  FOREBAY_RETURN_IF_ERROR(CheckMicroBatch(held, c.micro_batch));
  FOREBAY_RETURN_IF_ERROR(drift::CheckReport(c.report, sources_.size()));
  const uint64_t tokens = held.mini_batches[c.micro_batch.mini_batch]
                              .micro_batch(c.micro_batch.dp_rank, c.micro_batch.micro_batch)
                              .tokens;
  FOREBAY_RETURN_IF_ERROR(CheckTokens("engine", c.report.engine, tokens));
  return CheckTokens("reference", c.report.reference, tokens);
}

absl::Status State::Run(const ReportSequences& c, Tag tag, Effects* effects) {
  const Place place = PlaceOf(*step(c.step), c.micro_batch);
  const bool counted =
      drift_.reports.Count(c.step, c.revision, place.number, place.count, c.report);
  Answer(tag, ReportReply{absl::OkStatus(), !counted}, effects);
  return absl::OkStatus();
}

void State::DriftCommitted(const Step& step, const drift::Rules& rules) {
  const drift::Sums all = drift_.reports.OfStep(step.step, step.revision).All();
  const double k3 = all.Mean(all.k3);
  if (rules.hold_k3 > 0 && k3 > rules.hold_k3 && !drift_.hold) {
    drift_.hold = DriftHold{step.step, k3, rules.hold_k3};
  }
  drift_.reports.Committed(step.step, step.revision);
}

absl::Status State::CheckOne(const LiftHold& c) const {
  if (c.reason.size() <= kReasonBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("reason: ", c.reason.size(), " bytes, at most ", kReasonBytesMax));
}

absl::Status State::Run(const LiftHold&, Tag tag, Effects* effects) {
  const bool lifted = drift_.hold.has_value();
  drift_.hold.reset();
  for (auto& [id, step] : steps_) SealIfComplete(step, effects);
  Answer(tag, LiftReply{absl::OkStatus(), lifted}, effects);
  return absl::OkStatus();
}

absl::Status Drift::Holds() const {
  if (!reports.Holds(kOpenStepsMax)) return absl::InternalError("drift is not within its limits");
  if (hold && !(hold->k3 > hold->limit && hold->limit > 0)) {
    return absl::InternalError("held for no drift");
  }
  return absl::OkStatus();
}

}  // namespace forebay::ledger
