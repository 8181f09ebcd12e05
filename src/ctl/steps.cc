// buffer-ctl steps
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "ctl/command.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

// "0:12 1:4": rollouts by lag, without the lags that none has.
std::string Lags(const v1::StepSummary& step) {
  std::vector<std::string> parts;
  for (int lag = 0; lag < step.rollouts_by_lag_size(); ++lag) {
    if (step.rollouts_by_lag(lag) > 0) {
      parts.push_back(absl::StrCat(lag, ":", step.rollouts_by_lag(lag)));
    }
  }
  return absl::StrJoin(parts, " ");
}

absl::Status List(Context& context, uint32_t count) {
  v1::ListStepsRequest request;
  request.set_count(count);
  auto response = context.Ask<v1::ListStepsResponse>("ListSteps", request);
  if (!response.ok()) return response.status();
  Table table({">STEP", "STATE", ">REVISION", ">VERSION", ">GROUPS", ">ROLLOUTS", ">TOKENS",
               ">LOSS TOKENS", ">REWARD", "LAGS", ">WAITED", "PLAN", ">KEPT", "WAITING"});
  for (const auto& s : response->steps()) {
    table.Add({absl::StrCat(s.step()),
               absl::StrCat(EnumName(s.state()), s.served_again() ? ", again" : ""),
               absl::StrCat(s.revision()), Version(s.train_version()),
               s.groups_wanted() == 0
                   ? absl::StrCat(s.groups_reserved())
                   : absl::StrCat(s.groups_reserved(), " of ", s.groups_wanted()),
               absl::StrCat(s.totals().rollouts()), absl::StrCat(s.totals().tokens()),
               absl::StrCat(s.totals().loss_tokens()), Decimal(s.reward_mean()), Lags(s),
               Duration(s.waited_ms()), s.plan_hash() == 0 ? "-" : Hex(s.plan_hash()),
               s.retained_bytes() == 0 ? "-" : BytesText(s.retained_bytes()), s.waiting()});
  }
  context.Show(*response, table, "no steps yet");
  return absl::OkStatus();
}

}  // namespace

void AddSteps(Commands* commands) {
  auto count = std::make_shared<uint32_t>(20);
  auto* steps = commands->root()->add_subcommand(
      "steps", "The newest steps: what is in them, how long they waited and why");
  steps->add_option("-n,--limit", *count, "At most so many")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  commands->On(steps, [count](Context& c) { return List(c, *count); });
}

}  // namespace forebay::ctl
