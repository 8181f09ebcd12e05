#include "server/report_sequences.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::server {
namespace {

// `size` entries, or none where a list may be left out.
absl::Status CheckList(const char* kind, const char* field, int has, int size, bool optional) {
  if (has == size || (optional && has == 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kind, ".", field, ": has ", has, " entries, sequences has ", size));
}

absl::Status CheckLists(const char* kind, const v1::DriftParts& parts, bool engines) {
  const int size = parts.sequences_size();
  if (!engines) {
    FOREBAY_RETURN_IF_ERROR(CheckList(kind, "lags", parts.lags_size(), 0, false));
    FOREBAY_RETURN_IF_ERROR(CheckList(kind, "engines", parts.engines_size(), 0, false));
  } else {
    FOREBAY_RETURN_IF_ERROR(CheckList(kind, "lags", parts.lags_size(), size, false));
    FOREBAY_RETURN_IF_ERROR(CheckList(kind, "engines", parts.engines_size(), size, false));
  }
  FOREBAY_RETURN_IF_ERROR(CheckList(kind, "tokens", parts.tokens_size(), size, false));
  FOREBAY_RETURN_IF_ERROR(CheckList(kind, "k1", parts.k1_size(), size, false));
  FOREBAY_RETURN_IF_ERROR(CheckList(kind, "k2", parts.k2_size(), size, false));
  FOREBAY_RETURN_IF_ERROR(CheckList(kind, "k3", parts.k3_size(), size, false));
  FOREBAY_RETURN_IF_ERROR(CheckList(kind, "max_abs", parts.max_abs_size(), size, false));
  FOREBAY_RETURN_IF_ERROR(CheckList(kind, "non_finite", parts.non_finite_size(), size, true));
  return CheckList(kind, "clamped", parts.clamped_size(), size, true);
}

std::vector<drift::Part> PartsOf(const v1::DriftParts& from) {
  std::vector<drift::Part> parts;
  parts.reserve(static_cast<size_t>(from.sequences_size()));
  for (int i = 0; i < from.sequences_size(); ++i) {
    drift::Part& part = parts.emplace_back();
    part.sequence = from.sequences(i);
    if (from.engines_size() > 0) part.engine = from.engines(i);
    if (from.lags_size() > 0) part.lag = from.lags(i);
    part.sums.tokens = static_cast<double>(from.tokens(i));
    part.sums.k1 = from.k1(i);
    part.sums.k2 = from.k2(i);
    part.sums.k3 = from.k3(i);
    part.sums.max_abs = from.max_abs(i);
    if (from.non_finite_size() > 0) {
      part.sums.non_finite = static_cast<double>(from.non_finite(i));
    }
    if (from.clamped_size() > 0) part.sums.clamped = static_cast<double>(from.clamped(i));
  }
  return parts;
}

}  // namespace

absl::StatusOr<ledger::ReportSequences> FromWire(const v1::ReportSequencesRequest& request) {
  FOREBAY_RETURN_IF_ERROR(CheckLists("engine", request.engine(), true));
  FOREBAY_RETURN_IF_ERROR(CheckLists("reference", request.reference(), false));
  ledger::ReportSequences command;
  command.generation = Generation(request.generation());
  command.step = StepId(request.step());
  command.revision = Revision(request.revision());
  command.micro_batch = {.dp_rank = request.dp_rank(),
                         .mini_batch = request.mini_batch(),
                         .micro_batch = request.micro_batch()};
  command.report.engines = {request.engine_names().begin(), request.engine_names().end()};
  command.engine_parts = PartsOf(request.engine());
  command.reference_parts = PartsOf(request.reference());
  return command;
}

void ReportSequences(ServiceContext* context, v1::ReportSequencesRequest request,
                     TypedResponder<v1::ReportSequencesResponse> responder) {
  auto command = FromWire(request);
  if (!command.ok()) return responder.Fail(command.status());
  auto answer = std::make_shared<TypedResponder<v1::ReportSequencesResponse>>(std::move(responder));
  context->engine->AskLedger<ledger::ReportReply>(
      *std::move(command), [answer](ledger::ReportReply&& reply) {
        if (!reply.status.ok()) return answer->Fail(reply.status);
        v1::ReportSequencesResponse response;
        response.set_already_counted(reply.already_counted);
        answer->Reply(response);
      });
}

}  // namespace forebay::server
