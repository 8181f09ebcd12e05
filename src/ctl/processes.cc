// buffer-ctl actors, engines, trainers
#include "base/units.h"
#include "ctl/command.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

absl::Status ListActors(Context& context, uint32_t limit) {
  auto response =
      AskPages<v1::ListActorsResponse>(context, "ListActors", v1::ListActorsRequest(), limit,
                                       [](auto& r) { return r.mutable_actors(); });
  if (!response.ok()) return response.status();
  Table table({"SESSION", "ACTOR", "ENGINE", "SITE", "CLIENT", ">LEASES", ">PUSHED", ">FAILED",
               ">VERSION", ">SEEN AGO", ">CPU", ">LIBRARY CPU", ">MEMORY", ">SENT"});
  for (const auto& a : response->actors()) {
    table.Add({Hex(a.session()), a.actor(), a.engine(), a.site(), a.client(),
               absl::StrCat(a.leases()), absl::StrCat(a.pushed()), absl::StrCat(a.failed()),
               Version(a.version()), Duration(a.last_seen_ms_ago()), Duration(a.usage().cpu_ms()),
               Duration(a.usage().library_cpu_ms()), BytesText(a.usage().resident_bytes()),
               BytesText(a.usage().pushed_bytes())});
  }
  context.Show(*response, table, "no actors");
  return absl::OkStatus();
}

absl::Status ListEngines(Context& context) {
  auto response = context.Ask<v1::ListEnginesResponse>("ListEngines", v1::ListEnginesRequest());
  if (!response.ok()) return response.status();
  Table table({"ENGINE", ">VERSION", ">BEHIND", ">LOADED AFTER", ">PAUSE", ">REPORTED AGO", ">CPU",
               ">MEMORY", ">HOST LOAD"});
  for (const auto& e : response->engines()) {
    table.Add({e.engine(), Version(e.version()), absl::StrCat(e.behind()),
               Duration(e.pending_to_loaded_ms()), Duration(e.pause_ms()),
               Duration(e.last_report_ms_ago()), Duration(e.usage().cpu_ms()),
               BytesText(e.usage().resident_bytes()),
               Decimal(static_cast<double>(e.usage().host_load()))});
  }
  context.Show(*response, table, "no engine has reported a version");
  return absl::OkStatus();
}

absl::Status ListTrainers(Context& context) {
  auto response = context.Ask<v1::ListTrainersResponse>("ListTrainers", v1::ListTrainersRequest());
  if (!response.ok()) return response.status();
  Table table({"TRAINER", ">GENERATION", ">DP RANK", ">PEER", ">SEEN AGO", ">FETCHED"});
  for (const auto& t : response->trainers()) {
    table.Add({t.trainer(), absl::StrCat(t.generation()), absl::StrCat(t.dp_rank()),
               absl::StrCat(t.peer()), Duration(t.last_seen_ms_ago()),
               BytesText(t.fetched_bytes())});
  }
  context.Show(*response, table, "no trainers");
  return absl::OkStatus();
}

}  // namespace

void AddProcesses(Commands* commands) {
  auto limit = std::make_shared<uint32_t>(1000);
  auto* actors = commands->root()->add_subcommand(
      "actors", "Actor sessions: leases, pushes, what each client costs");
  actors->add_option("-n,--limit", *limit, "At most so many")
      ->check(CLI::Range(1u, 10'000'000u))
      ->capture_default_str();
  commands->On(actors, [limit](Context& c) { return ListActors(c, *limit); });
  auto* engines = commands->root()->add_subcommand(
      "engines", "Engines: the version each holds, how long it took to load");
  commands->On(engines, ListEngines);
  auto* trainers =
      commands->root()->add_subcommand("trainers", "The ranks of the current generation");
  commands->On(trainers, ListTrainers);
}

}  // namespace forebay::ctl
