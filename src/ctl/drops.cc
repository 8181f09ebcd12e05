// buffer-ctl drop
#include "ctl/command.h"
#include "ctl/hex.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

struct Arguments {
  std::string source;
  std::vector<std::string> rollouts;
  bool ready = false;
  std::string why;
};

absl::Status Drop(Context& context, const Arguments& arguments) {
  v1::DropRolloutsRequest request;
  request.set_source(arguments.source);
  request.set_ready(arguments.ready);
  for (const std::string& text : arguments.rollouts) {
    auto id = ParseHex("--rollout", text, "rollouts");
    if (!id.ok()) return id.status();
    request.add_rollout_ids(*id);
  }
  request.set_who(Who());
  request.set_why(arguments.why);
  auto response = context.Ask<v1::DropRolloutsResponse>("DropRollouts", request);
  if (!response.ok()) return response.status();
  if (context.json) {
    *context.out << ToJson(*response) << "\n";
  } else {
    const uint64_t dropped = response->dropped();
    *context.out << dropped << (dropped == 1 ? " rollout" : " rollouts") << " dropped\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddDrops(Commands* commands) {
  auto arguments = std::make_shared<Arguments>();
  auto* drop = commands->root()->add_subcommand(
      "drop", "Drops rollouts of a source for good: they are not trained");
  drop->add_option("SOURCE", arguments->source, "Name of the source")->required();
  auto* what = drop->add_option_group("WHAT", "One of them");
  what->add_flag("--ready", arguments->ready, "All groups that are ready");
  what->add_option("--rollout", arguments->rollouts,
                   "Ids as `buffer-ctl rollouts` shows them; a group with too few left goes too");
  what->require_option(1);
  drop->add_option("--why", arguments->why, "For the daemon's log");
  commands->On(drop, [arguments](Context& c) { return Drop(c, *arguments); });
}

}  // namespace forebay::ctl
