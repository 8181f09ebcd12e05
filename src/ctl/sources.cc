// buffer-ctl sources [show|create|set], pause, resume
#include "ctl/sources.h"

#include <set>

#include "absl/strings/str_join.h"
#include "ctl/settings.h"

namespace forebay::ctl {
namespace {

struct Arguments {
  std::string name;
  std::vector<std::string> settings;
};

std::string Dropped(const v1::SourceState& source) {
  std::vector<std::string> parts;
  for (const auto& [reason, count] : source.dropped()) {
    if (count > 0) parts.push_back(absl::StrCat(reason, " ", count));
  }
  std::sort(parts.begin(), parts.end());
  return absl::StrJoin(parts, ", ");
}

absl::Status List(Context& context) {
  auto response = context.Ask<v1::ListSourcesResponse>("ListSources", v1::ListSourcesRequest());
  if (!response.ok()) return response.status();
  Table table({"SOURCE", "PURPOSE", "STATE", ">TASKS", ">QUARANTINED", ">EPOCH", ">OPEN", ">READY",
               ">LEASES", ">ROLLOUTS", ">TRAINED", ">REWARD", ">TOKENS", "OUTSTANDING", "DROPPED"});
  for (const auto& s : response->sources()) {
    table.Add({s.settings().name(), s.settings().purpose() == v1::PURPOSE_EVAL ? "eval" : "train",
               s.settings().paused() ? "paused" : "active", absl::StrCat(s.tasks()),
               absl::StrCat(s.quarantined()), absl::StrCat(s.epoch()),
               absl::StrCat(s.groups_open()), absl::StrCat(s.groups_ready()),
               absl::StrCat(s.leases()), absl::StrCat(s.rollouts()), absl::StrCat(s.trained()),
               Decimal(s.mean_reward()), Decimal(s.mean_tokens()),
               absl::StrCat(s.outstanding(), " of ", s.outstanding_max()), Dropped(s)});
  }
  context.Show(*response, table, "no sources; create one with: buffer-ctl sources create NAME");
  return absl::OkStatus();
}

absl::Status Missing(const std::string& name) {
  return absl::NotFoundError(absl::StrCat("there is no source '", name,
                                          "'\n  See which there are with: buffer-ctl sources"));
}

absl::Status ShowOne(Context& context, const Arguments& arguments) {
  auto found = FindSource(context, arguments.name);
  if (!found.ok()) return found.status();
  if (!found->has_value()) return Missing(arguments.name);
  *context.out << ToJson(**found) << "\n";
  return absl::OkStatus();
}

// `done`: what a change of a source is told as.
absl::Status Put(Context& context, const Arguments& arguments, bool create,
                 const char* done = " is set") {
  auto response = PutSource(context, arguments.name, arguments.settings, create);
  if (!response.ok()) return response.status();
  if (context.json) {
    *context.out << ToJson(*response) << "\n";
  } else {
    *context.out << "source " << arguments.name << (response->created() ? " created" : done)
                 << "\n";
  }
  return absl::OkStatus();
}

void AddPause(Commands* commands, const char* name, const char* help, const char* assignment,
              const char* done) {
  auto* command = commands->root()->add_subcommand(name, help);
  auto arguments = std::make_shared<Arguments>();
  arguments->settings = {assignment};
  command->add_option("SOURCE", arguments->name, "Name of the source")->required();
  commands->On(command, [arguments, done](Context& context) {
    return Put(context, *arguments, false, done);
  });
}

}  // namespace

absl::StatusOr<std::optional<v1::SourceState>> FindSource(const Context& context,
                                                          const std::string& name) {
  auto all = context.Ask<v1::ListSourcesResponse>("ListSources", v1::ListSourcesRequest());
  if (!all.ok()) return all.status();
  for (auto& source : *all->mutable_sources()) {
    if (source.settings().name() == name) return std::optional(std::move(source));
  }
  return std::optional<v1::SourceState>();
}

absl::StatusOr<v1::PutSourceResponse> PutSource(const Context& context, const std::string& name,
                                                const std::vector<std::string>& assignments,
                                                bool create) {
  auto found = FindSource(context, name);
  if (!found.ok()) return found.status();
  if (!found->has_value() && !create) return Missing(name);
  // Nested settings keep the parts that are not named.
  v1::PutSourceRequest request;
  if (found->has_value()) *request.mutable_settings() = (*found)->settings();
  request.mutable_settings()->set_name(name);
  std::set<std::string> fields;
  if (auto status = ApplySettings(assignments, request.mutable_settings(), &fields); !status.ok()) {
    return status;
  }
  if (found->has_value()) {
    if (fields.empty()) {
      v1::PutSourceResponse unchanged;
      unchanged.set_source((*found)->source());
      *unchanged.mutable_settings() = (*found)->settings();
      return unchanged;
    }
    for (const std::string& field : fields) request.add_fields(field);
  }
  return context.Ask<v1::PutSourceResponse>("PutSource", request);
}

void AddSources(Commands* commands) {
  constexpr char kSettings[] =
      "NAME=VALUE, by the names of SourceSettings: group_size=16, late=drop, lease.max_ms=60000, "
      "rewards.format=0.2";
  auto* sources = commands->root()->add_subcommand(
      "sources", "All sources: what is in flight, what became of their rollouts");
  commands->On(sources, List);

  auto show_arguments = std::make_shared<Arguments>();
  auto* show = sources->add_subcommand("show", "Settings and counters of one source, as JSON");
  show->add_option("SOURCE", show_arguments->name, "Name of the source")->required();
  commands->On(show, [show_arguments](Context& c) { return ShowOne(c, *show_arguments); });

  auto create_arguments = std::make_shared<Arguments>();
  auto* create =
      sources->add_subcommand("create", "Creates a source, or changes the settings named");
  create->add_option("SOURCE", create_arguments->name, "Name of the source")->required();
  create->add_option("SETTING", create_arguments->settings, kSettings);
  commands->On(create, [create_arguments](Context& c) { return Put(c, *create_arguments, true); });

  auto set_arguments = std::make_shared<Arguments>();
  auto* set = sources->add_subcommand("set", "Changes settings of a source; the others stay");
  set->add_option("SOURCE", set_arguments->name, "Name of the source")->required();
  set->add_option("SETTING", set_arguments->settings, kSettings)->required();
  commands->On(set, [set_arguments](Context& c) { return Put(c, *set_arguments, false); });

  AddPause(commands, "pause",
           "Begins no new groups of a source; what is in flight comes to its end", "paused=true",
           " is paused: it begins no new groups, what is in flight comes to its end");
  AddPause(commands, "resume", "Begins groups of a paused source again", "paused=false",
           " goes on");
}

}  // namespace forebay::ctl
