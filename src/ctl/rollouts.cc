// buffer-ctl rollouts, leases
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "ctl/command.h"
#include "ctl/hex.h"
#include "ctl/rollout_filter.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

constexpr uint32_t kLimit = 100;

std::string Flags(const v1::RolloutState& rollout) {
  return rollout.flags_size() == 0 ? "-" : absl::StrJoin(rollout.flags(), ",");
}

absl::Status ListRollouts(Context& context, const RolloutChoice& choice) {
  v1::ListRolloutsResponse all;
  const auto end = WalkRollouts(context, choice, [&all](const v1::RolloutState& rollout) {
    *all.add_rollouts() = rollout;
    return absl::OkStatus();
  });
  if (!end.ok()) return end.status();
  all.set_page_token(end->page_token);
  Table table({"ROLLOUT", "SOURCE", "TASK", "STATE", "STATUS", ">REWARD", ">ADVANTAGE", ">TOKENS",
               ">LOSS TOKENS", ">VERSION", ">BYTES", ">STEP", "FLAGS"});
  for (const auto& r : all.rollouts()) {
    table.Add({Hex(r.rollout_id()), r.source(), r.external_id(), r.state(), EnumName(r.status()),
               r.rewarded() ? Decimal(r.reward()) : "-",
               r.state() == "held" ? "-" : Decimal(r.advantage()), absl::StrCat(r.tokens()),
               absl::StrCat(r.loss_tokens()), Version(r.version()), BytesText(r.payload_bytes()),
               r.step() == 0 ? "-" : absl::StrCat(r.step()), Flags(r)});
  }
  context.Show(all, table, "no rollouts");
  if (!context.json && end->look_max_hit) {
    *context.out << "looked at the bytes of " << end->looked
                 << " rollouts, and there are more: see --look\n";
  }
  return absl::OkStatus();
}

struct LeaseArguments {
  std::string session;
  uint32_t limit = kLimit;
};

absl::Status ListLeases(Context& context, const LeaseArguments& arguments) {
  auto session = ParseHex("--session", arguments.session, "actors");
  if (!session.ok()) return session.status();
  v1::ListLeasesRequest request;
  request.set_session(*session);
  auto response = AskPages<v1::ListLeasesResponse>(context, "ListLeases", request, arguments.limit,
                                                   [](auto& r) { return r.mutable_leases(); });
  if (!response.ok()) return response.status();
  Table table({"ATTEMPT", "SESSION", "SOURCE", "TASK", ">NUMBER", ">AGE", ">EXPIRES IN", ">TOKENS",
               ">VERSION"});
  for (const auto& l : response->leases()) {
    table.Add({Hex(l.attempt_id()), Hex(l.session()), l.source(), l.external_id(),
               absl::StrCat(l.attempt()), Duration(l.age_ms()), Duration(l.expires_in_ms()),
               absl::StrCat(l.generated_tokens()), Version(l.version())});
  }
  context.Show(*response, table, "nothing in flight");
  return absl::OkStatus();
}

}  // namespace

void AddRollouts(Commands* commands) {
  auto choice = std::make_shared<RolloutChoice>();
  auto* rollouts = commands->root()->add_subcommand("rollouts", "Rollouts that the buffer holds");
  AddRolloutOptions(rollouts, choice.get());
  commands->On(rollouts, [choice](Context& c) { return ListRollouts(c, *choice); });

  auto lease_arguments = std::make_shared<LeaseArguments>();
  auto* leases = commands->root()->add_subcommand("leases", "Attempts in flight, and with whom");
  leases->add_option("--session", lease_arguments->session, "Only of this actor session");
  leases->add_option("-n,--limit", lease_arguments->limit, "At most so many")
      ->check(CLI::Range(1u, 10'000'000u))
      ->capture_default_str();
  commands->On(leases, [lease_arguments](Context& c) { return ListLeases(c, *lease_arguments); });
}

}  // namespace forebay::ctl
