// buffer-ctl rollouts, leases
#include "base/units.h"
#include "ctl/command.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

constexpr uint32_t kLimit = 100;

struct RolloutArguments {
  std::string source;
  std::string state;
  double reward_min = 0;
  double reward_max = 0;
  CLI::Option* has_min = nullptr;
  CLI::Option* has_max = nullptr;
  uint32_t limit = kLimit;
};

absl::Status ListRollouts(Context& context, const RolloutArguments& arguments) {
  v1::ListRolloutsRequest request;
  request.set_source(arguments.source);
  request.set_state(arguments.state);
  if (arguments.has_min->count() > 0) request.set_reward_min(arguments.reward_min);
  if (arguments.has_max->count() > 0) request.set_reward_max(arguments.reward_max);
  auto response =
      AskPages<v1::ListRolloutsResponse>(context, "ListRollouts", request, arguments.limit,
                                         [](auto& r) { return r.mutable_rollouts(); });
  if (!response.ok()) return response.status();
  Table table({"ROLLOUT", "SOURCE", "TASK", "STATE", "STATUS", ">REWARD", ">ADVANTAGE", ">TOKENS",
               ">LOSS TOKENS", ">VERSION", ">BYTES", ">STEP"});
  for (const auto& r : response->rollouts()) {
    table.Add({Hex(r.rollout_id()), r.source(), r.external_id(), r.state(), EnumName(r.status()),
               r.rewarded() ? Decimal(r.reward()) : "-",
               r.state() == "held" ? "-" : Decimal(r.advantage()), absl::StrCat(r.tokens()),
               absl::StrCat(r.loss_tokens()), Version(r.version()), BytesText(r.payload_bytes()),
               r.step() == 0 ? "-" : absl::StrCat(r.step())});
  }
  context.Show(*response, table, "no rollouts");
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
  auto arguments = std::make_shared<RolloutArguments>();
  auto* rollouts = commands->root()->add_subcommand("rollouts", "Rollouts that the buffer holds");
  rollouts->add_option("-s,--source", arguments->source, "Only of this source");
  rollouts
      ->add_option("--state", arguments->state,
                   "held: in an open group; ready: its group waits for a step; reserved: in a step")
      ->check(CLI::IsMember({"held", "ready", "reserved"}));
  arguments->has_min =
      rollouts->add_option("--reward-min", arguments->reward_min, "Reward at least");
  arguments->has_max =
      rollouts->add_option("--reward-max", arguments->reward_max, "Reward at most");
  rollouts->add_option("-n,--limit", arguments->limit, "At most so many")
      ->check(CLI::Range(1u, 10'000'000u))
      ->capture_default_str();
  commands->On(rollouts, [arguments](Context& c) { return ListRollouts(c, *arguments); });

  auto lease_arguments = std::make_shared<LeaseArguments>();
  auto* leases = commands->root()->add_subcommand("leases", "Attempts in flight, and with whom");
  leases->add_option("--session", lease_arguments->session, "Only of this actor session");
  leases->add_option("-n,--limit", lease_arguments->limit, "At most so many")
      ->check(CLI::Range(1u, 10'000'000u))
      ->capture_default_str();
  commands->On(leases, [lease_arguments](Context& c) { return ListLeases(c, *lease_arguments); });
}

}  // namespace forebay::ctl
