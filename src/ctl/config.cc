// buffer-ctl config get|set
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "ctl/command.h"
#include "ctl/usage.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

struct GetArguments {
  std::vector<std::string> names;
  bool changed = false;
};

// An entry, or the entries of a family: "memory" names all of "memory.".
bool Named(const std::string& entry, const std::vector<std::string>& names) {
  if (names.empty()) return true;
  for (const std::string& name : names) {
    if (entry == name || absl::StartsWith(entry, absl::StrCat(name, "."))) return true;
  }
  return false;
}

absl::Status Get(Context& context, const GetArguments& arguments) {
  auto response = context.Ask<v1::GetConfigResponse>("GetConfig", v1::GetConfigRequest());
  if (!response.ok()) return response.status();
  v1::GetConfigResponse shown;
  Table table({"NAME", "VALUE", "DEFAULT", "CHANGEABLE", "MEANING"});
  for (const auto& e : response->entries()) {
    if (!Named(e.name(), arguments.names)) continue;
    if (arguments.changed && e.value() == e.default_value()) continue;
    *shown.add_entries() = e;
    table.Add({e.name(), e.value(), e.value() == e.default_value() ? "" : e.default_value(),
               e.changeable() ? "yes" : "at start", e.help()});
  }
  if (shown.entries_size() == 0 && !arguments.names.empty() && !arguments.changed) {
    return absl::NotFoundError(absl::StrCat("there is no setting '", arguments.names[0],
                                            "'\n  See all with: buffer-ctl config get"));
  }
  context.Show(shown, table, "all settings have their defaults");
  return absl::OkStatus();
}

struct SetArguments {
  std::vector<std::string> values;
  std::string why;
  bool dry_run = false;
};

absl::Status Set(Context& context, const SetArguments& arguments) {
  v1::SetConfigRequest request;
  for (const std::string& value : arguments.values) {
    const size_t equals = value.find('=');
    if (equals == std::string::npos || equals == 0) {
      return UsageError(absl::StrCat(
          "'", value, "' is no setting: write NAME=VALUE, as in memory.payload_bytes_max=8GiB"));
    }
    (*request.mutable_values())[value.substr(0, equals)] = value.substr(equals + 1);
  }
  request.set_who(Who());
  request.set_why(arguments.why);
  request.set_dry_run(arguments.dry_run);
  auto response = context.Ask<v1::SetConfigResponse>("SetConfig", request);
  if (!response.ok()) return response.status();
  if (context.json) {
    *context.out << ToJson(*response) << "\n";
    return absl::OkStatus();
  }
  if (response->changes_size() == 0) *context.out << "nothing changes\n";
  for (const auto& change : response->changes()) {
    *context.out << (arguments.dry_run ? "would change " : "changed ") << change.name() << "\n  - "
                 << change.before() << "\n  + " << change.after() << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

std::string Who() {
  const char* user = std::getenv("USER");
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return absl::StrCat(user == nullptr ? std::to_string(getuid()) : std::string(user), "@", host);
}

void AddConfig(Commands* commands) {
  auto* config = commands->root()->add_subcommand("config", "The daemon's settings");
  config->require_subcommand(1);

  auto get_arguments = std::make_shared<GetArguments>();
  auto* get = config->add_subcommand("get", "Settings with their defaults and meaning");
  get->add_option("NAME", get_arguments->names, "Only these settings or families (memory, limits)");
  get->add_flag("--changed", get_arguments->changed, "Only those that differ from their defaults");
  commands->On(get, [get_arguments](Context& c) { return Get(c, *get_arguments); });

  auto set_arguments = std::make_shared<SetArguments>();
  auto* set = config->add_subcommand(
      "set", "Changes settings while the daemon runs, all of them or none; shows the difference");
  set->add_option("NAME=VALUE", set_arguments->values, "As in memory.payload_bytes_max=8GiB")
      ->required();
  set->add_option("--why", set_arguments->why, "Reason, for the daemon's log");
  set->add_flag("--dry-run", set_arguments->dry_run, "Only show what would change");
  commands->On(set, [set_arguments](Context& c) { return Set(c, *set_arguments); });
}

}  // namespace forebay::ctl
