// buffer-ctl kl
#include <memory>
#include <string>

#include "ctl/command.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

struct KlArguments {
  bool lift = false;
  std::string why;
};

std::string Count(double tokens) { return absl::StrCat(static_cast<uint64_t>(tokens + 0.5)); }

// A mean of nothing is none.
std::string Mean(const v1::Drift& of, double mean) { return of.tokens() > 0 ? Decimal(mean) : "-"; }

void AddRow(const char* by, const std::string& name, const v1::Drift& all,
            const v1::Drift& mismatch, const v1::Drift& reference, Table* table) {
  table->Add({by, name, Count(all.tokens()), Mean(all, all.k1()), Mean(all, all.k2()),
              Mean(all, all.k3()),
              all.tokens() > 0 ? Decimal(static_cast<double>(all.max_abs())) : "-",
              Count(all.non_finite()), Count(all.clamped()), Mean(mismatch, mismatch.k3()),
              Mean(reference, reference.k3())});
}

void AddRows(const char* by, const google::protobuf::RepeatedPtrField<v1::DriftRow>& rows,
             Table* table) {
  for (const auto& row : rows) {
    AddRow(by, row.name().empty() ? "(no name)" : row.name(), row.all(), row.mismatch(),
           row.reference(), table);
  }
}

std::string About(const v1::OutlyingEngine& engine) {
  const std::string name = engine.engine().empty() ? "the engines without a name"
                                                   : absl::StrCat("'", engine.engine(), "'");
  const char* const what =
      engine.unusable() ? "share of tokens without a usable log-probability" : "mean k3";
  return absl::StrCat("outlier: ", name, ", ", what, " ", Decimal(engine.value()), " over ",
                      Count(engine.tokens()), " tokens of lag ", engine.lag(), "; the median is ",
                      Decimal(engine.median()), ", the limit ", Decimal(engine.limit()));
}

absl::Status ShowDrift(Context& context) {
  auto response = context.Ask<v1::GetDriftResponse>("GetDrift", v1::GetDriftRequest());
  if (!response.ok()) return response.status();
  Table table({"BY", "", ">TOKENS", ">K1", ">K2", ">K3", ">MAX |D|", ">NON-FINITE", ">CLAMPED",
               ">K3 AT LAG 0", ">K3 TO REFERENCE"});
  if (response->reports() > 0) {
    AddRow("all", "", response->all(), response->mismatch(), response->reference(), &table);
    AddRows("lag", response->lags(), &table);
    AddRows("source", response->sources(), &table);
    AddRows("length", response->lengths(), &table);
    AddRows("engine", response->engines(), &table);
  }
  context.Show(*response, table, "no trainer has reported its log-probabilities");
  if (context.json) return absl::OkStatus();
  for (const auto& engine : response->outliers()) *context.out << About(engine) << "\n";
  if (response->has_hold()) {
    const auto& hold = response->hold();
    *context.out << "held: no step is sealed since step " << hold.step()
                 << ", whose tokens had a mean k3 of " << Decimal(hold.k3())
                 << "; drift.hold_k3 was " << Decimal(hold.limit())
                 << ". Go back with buffer-ctl rewind, or go on with buffer-ctl kl --lift.\n";
  }
  return absl::OkStatus();
}

absl::Status Lift(Context& context, const std::string& why) {
  v1::LiftHoldRequest request;
  request.set_who(Who());
  request.set_why(why);
  auto response = context.Ask<v1::LiftHoldResponse>("LiftHold", request);
  if (!response.ok()) return response.status();
  if (context.json) {
    *context.out << ToJson(*response) << "\n";
  } else {
    *context.out << (response->lifted() ? "lifted: steps are sealed again\n"
                                        : "nothing was held\n");
  }
  return absl::OkStatus();
}

}  // namespace

void AddKl(Commands* commands) {
  auto arguments = std::make_shared<KlArguments>();
  auto* kl = commands->root()->add_subcommand(
      "kl", "How far the trainer is from the engines: by lag, source, length and engine");
  auto* lift = kl->add_flag("--lift", arguments->lift,
                            "Seal steps again, after drift.hold_k3 has stopped that");
  kl->add_option("--why", arguments->why, "For the daemon's log")->needs(lift);
  commands->On(kl, [arguments](Context& c) {
    return arguments->lift ? Lift(c, arguments->why) : ShowDrift(c);
  });
}

}  // namespace forebay::ctl
