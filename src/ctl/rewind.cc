// buffer-ctl rewind, snapshot
#include "base/units.h"
#include "ctl/command.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

struct RewindArguments {
  uint64_t step = 0;
  bool replay = false;
  std::string why;
  uint64_t request_id = 0;
};

absl::Status Rewind(Context& context, const RewindArguments& arguments) {
  v1::RewindRequest request;
  request.set_request_id(arguments.request_id == 0 ? RandomId() : arguments.request_id);
  request.set_step(arguments.step);
  request.set_mode(arguments.replay ? v1::REWIND_MODE_REPLAY : v1::REWIND_MODE_FRESH);
  request.set_reason(arguments.why);
  auto response = context.Ask<v1::RewindResponse>("Rewind", request);
  if (!response.ok()) {
    if (!absl::IsUnavailable(response.status()) && !absl::IsDeadlineExceeded(response.status())) {
      return response.status();
    }
    // It may have happened: with the same id it is safe to ask again.
    return absl::Status(response.status().code(),
                        absl::StrCat(response.status().message(), "\n  Ask again with --id ",
                                     request.request_id(), " to learn whether it was done."));
  }
  if (context.json) {
    *context.out << ToJson(*response) << "\n";
    return absl::OkStatus();
  }
  const uint64_t taken = response->taken_back(), again = response->served_again();
  *context.out << "went back to step " << arguments.step << ": " << taken
               << (taken == 1 ? " step" : " steps") << " taken back, " << again
               << " served again; the next is step " << response->next_step() << " on version "
               << Version(response->train_version()) << "\n"
               << "  The trainer has to attach again, and to publish that version for actors to go "
                  "on.\n";
  return absl::OkStatus();
}

absl::Status Snapshot(Context& context, const std::string& why) {
  v1::SnapshotRequest request;
  request.set_who("buffer-ctl");
  request.set_why(why);
  auto response = context.Ask<v1::SnapshotResponse>("Snapshot", request);
  if (!response.ok()) return response.status();
  Table table({"MACHINE", ">POSITION", ">BYTES", "FILE"});
  for (const auto& m : response->machines()) {
    table.Add({m.machine(), absl::StrCat(m.position()), BytesText(m.bytes()),
               m.file().empty() ? "- (nothing to snapshot yet)" : m.file()});
  }
  context.Show(*response, table, "no machines");
  return absl::OkStatus();
}

}  // namespace

void AddRewind(Commands* commands) {
  auto arguments = std::make_shared<RewindArguments>();
  auto* rewind = commands->root()->add_subcommand(
      "rewind", "Takes back the steps after one, and begins a new branch of versions there");
  AddNumber(rewind, "STEP", &arguments->step, "The last step that stays; 0: none")->required();
  rewind->add_flag("--replay", arguments->replay,
                   "Serve those steps again as they were, instead of dropping their rollouts");
  rewind->add_option("--why", arguments->why, "For the daemon's log");
  AddNumber(rewind, "--id", &arguments->request_id, "Of an earlier try, to ask again")
      ->check(CLI::Range(uint64_t{1}, UINT64_MAX));
  commands->On(rewind, [arguments](Context& c) { return Rewind(c, *arguments); });

  auto why = std::make_shared<std::string>();
  auto* snapshot = commands->root()->add_subcommand(
      "snapshot", "Snapshots every machine's state now: position, bytes, file");
  snapshot->add_option("--why", *why, "For the daemon's log");
  commands->On(snapshot, [why](Context& c) { return Snapshot(c, *why); });
}

}  // namespace forebay::ctl
