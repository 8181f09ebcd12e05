// AdminService: drift between trainer and engines, and the hold that it may have caused.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "drift/limits.h"
#include "drift/outliers.h"
#include "forebay/v1/admin.pb.h"
#include "server/admin.h"
#include "server/log.h"

namespace forebay::server {
namespace {

constexpr size_t kNoteBytesMax = 1024;

void ToWire(const drift::Sums& sums, v1::Drift* out) {
  out->set_tokens(sums.tokens);
  out->set_k1(sums.Mean(sums.k1));
  out->set_k2(sums.Mean(sums.k2));
  out->set_k3(sums.Mean(sums.k3));
  out->set_max_abs(sums.MaxAbs());
  out->set_non_finite(sums.non_finite);
  out->set_clamped(sums.clamped);
}

void ToWire(std::string name, const drift::Row& row, v1::DriftRow* out) {
  out->set_name(std::move(name));
  ToWire(row.All(), out->mutable_all());
  ToWire(row.mismatch(), out->mutable_mismatch());
  ToWire(row.reference, out->mutable_reference());
  out->set_last_step(row.last_step);
}

std::string LagName(uint32_t lag) {
  return lag < drift::kLagsKept ? absl::StrCat(lag) : absl::StrCat(drift::kLagsKept, "+");
}

void AddRows(const drift::Table& table, const ledger::State& state,
             v1::GetDriftResponse* response) {
  for (const auto& [lag, sums] : table.lags) {
    auto* out = response->add_lags();
    out->set_name(LagName(lag));
    ToWire(sums, out->mutable_all());
    if (lag == 0) ToWire(sums, out->mutable_mismatch());
  }
  for (const auto& [source, row] : table.sources) {
    const auto* known = state.source(source);
    ToWire(known == nullptr ? "" : known->settings.name, row, response->add_sources());
  }
  for (const auto& [length, row] : table.lengths) {
    ToWire(drift::LengthName(length), row, response->add_lengths());
  }
  for (const auto& [name, row] : table.engines) ToWire(name, row, response->add_engines());
}

void ToWire(const drift::Outlier& outlier, v1::OutlyingEngine* out) {
  out->set_engine(outlier.engine);
  out->set_lag(drift::LagClassName(outlier.lag_class));
  out->set_value(outlier.value);
  out->set_median(outlier.median);
  out->set_limit(outlier.limit);
  out->set_tokens(outlier.tokens);
  out->set_unusable(outlier.unusable);
}

void GetDrift(ServiceContext* context, v1::GetDriftRequest,
              TypedResponder<v1::GetDriftResponse> responder) {
  auto answer = std::make_shared<TypedResponder<v1::GetDriftResponse>>(std::move(responder));
  context->engine->OnLedger([answer](node::LedgerLoop& loop, uint64_t) {
    const auto& drift = loop.state().drift();
    const drift::Table table = drift.reports.Sum();
    v1::GetDriftResponse response;
    response.set_reports(drift.reports.reports());
    response.set_repeated(drift.reports.repeated());
    response.set_steps(drift.reports.steps());
    ToWire(table.All(), response.mutable_all());
    const auto same = table.lags.find(0);
    ToWire(same == table.lags.end() ? drift::Sums() : same->second, response.mutable_mismatch());
    ToWire(table.reference, response.mutable_reference());
    AddRows(table, loop.state(), &response);
    for (const auto& outlier : drift::FindOutliers(table)) {
      ToWire(outlier, response.add_outliers());
    }
    if (drift.hold) {
      auto* hold = response.mutable_hold();
      hold->set_step(drift.hold->step.value);
      hold->set_k3(drift.hold->k3);
      hold->set_limit(drift.hold->limit);
    }
    answer->Reply(response);
  });
}

void LiftHold(ServiceContext* context, v1::LiftHoldRequest request,
              TypedResponder<v1::LiftHoldResponse> responder) {
  for (const auto& [field, text] :
       {std::pair("who", &request.who()), std::pair("why", &request.why())}) {
    if (text->size() <= kNoteBytesMax) continue;
    return responder.Fail(absl::InvalidArgumentError(
        absl::StrCat(field, ": has ", text->size(), " bytes; the limit is ", kNoteBytesMax)));
  }
  auto answer = std::make_shared<TypedResponder<v1::LiftHoldResponse>>(std::move(responder));
  context->engine->AskLedger<ledger::LiftReply>(
      ledger::LiftHold{.reason = request.why()},
      [answer, who = request.who(), why = request.why()](ledger::LiftReply&& reply) {
        if (!reply.status.ok()) return answer->Fail(reply.status);
        Log(LogLevel::kWarning, reply.lifted ? "hold lifted" : "there was no hold to lift",
            {{"who", who}, {"why", why}});
        v1::LiftHoldResponse response;
        response.set_lifted(reply.lifted);
        answer->Reply(response);
      });
}

}  // namespace

void AddDriftMethods(ServiceContext* context, MethodTable* methods) {
  AddAdmin(methods, context, "GetDrift", &GetDrift);
  AddAdmin(methods, context, "LiftHold", &LiftHold);
}

}  // namespace forebay::server
