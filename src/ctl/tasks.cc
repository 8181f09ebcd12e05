// buffer-ctl tasks, quarantine, requeue
#include "ctl/command.h"
#include "ctl/usage.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

constexpr uint32_t kLimit = 100;

struct ListArguments {
  std::string source;
  std::string filter;
  uint32_t limit = kLimit;
};

double PassRate(const v1::TaskState& task) {
  const double sum = task.pass_a() + task.pass_b();
  return sum > 0 ? task.pass_a() / sum : 0;
}

absl::Status List(Context& context, const ListArguments& arguments) {
  v1::ListTasksRequest request;
  request.set_source(arguments.source);
  request.set_filter(arguments.filter);
  auto response = AskPages<v1::ListTasksResponse>(context, "ListTasks", request, arguments.limit,
                                                  [](auto& r) { return r.mutable_tasks(); });
  if (!response.ok()) return response.status();
  Table table({"TASK", ">ATTEMPTS", ">GROUPS", ">PASS", ">FAILURES", "STATE", ">WEIGHT", ">TOKENS",
               ">VERSION", "LAST FAILURE"});
  for (const auto& t : response->tasks()) {
    table.Add({t.external_id(), absl::StrCat(t.attempts()), absl::StrCat(t.groups()),
               t.attempts() == 0 ? "-" : Decimal(PassRate(t)), absl::StrCat(t.failures()),
               t.quarantined() ? "quarantined" : "active", Decimal(t.weight()),
               Decimal(t.mean_tokens()), t.attempts() == 0 ? "-" : absl::StrCat(t.last_version()),
               t.last_failure()});
  }
  context.Show(*response, table, "no such tasks");
  return absl::OkStatus();
}

struct NameArguments {
  std::string source;
  std::vector<std::string> ids;
  bool all = false;
};

absl::Status Change(Context& context, const char* method, const char* done,
                    const NameArguments& arguments) {
  if (arguments.ids.empty() && !arguments.all) {
    return UsageError("name tasks by their ids, or all quarantined ones with --all");
  }
  v1::TaskNamesRequest request;
  request.set_source(arguments.source);
  request.mutable_external_ids()->Add(arguments.ids.begin(), arguments.ids.end());
  request.set_all_quarantined(arguments.all);
  auto response = context.Ask<v1::TaskNamesResponse>(method, request);
  if (!response.ok()) return response.status();
  if (context.json) {
    *context.out << ToJson(*response) << "\n";
  } else {
    const uint64_t changed = response->changed();
    *context.out << changed << (changed == 1 ? " task " : " tasks ") << done << "\n";
    if (changed < arguments.ids.size()) {
      *context.out << "  " << arguments.ids.size() - changed << " of those named "
                   << (arguments.ids.size() - changed == 1 ? "was" : "were")
                   << " so already, or no task of the source; see: buffer-ctl tasks --source "
                   << arguments.source << "\n";
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddTasks(Commands* commands) {
  auto* tasks =
      commands->root()->add_subcommand("tasks", "Tasks of a source with their statistics");
  auto arguments = std::make_shared<ListArguments>();
  tasks->add_option("-s,--source", arguments->source, "Name of the source");
  tasks
      ->add_option("--filter", arguments->filter,
                   "Only quarantined ones, or the hardest, easiest or most learnable first")
      ->check(CLI::IsMember({"quarantined", "hardest", "easiest", "learnable"}));
  tasks->add_option("-n,--limit", arguments->limit, "At most so many")
      ->check(CLI::Range(1u, 10'000'000u))
      ->capture_default_str();
  commands->On(tasks, [arguments](Context& c) {
    if (arguments->source.empty()) {
      return UsageError("name the source with --source");
    }
    return List(c, *arguments);
  });
  AddTaskLoad(commands, tasks);

  auto quarantined = std::make_shared<NameArguments>();
  auto* quarantine =
      commands->root()->add_subcommand("quarantine", "Takes tasks out of circulation");
  quarantine->add_option("SOURCE", quarantined->source, "Name of the source")->required();
  quarantine->add_option("TASK", quarantined->ids, "Ids of tasks")->required();
  commands->On(quarantine, [quarantined](Context& c) {
    return Change(c, "QuarantineTasks", "quarantined", *quarantined);
  });

  auto requeued = std::make_shared<NameArguments>();
  auto* requeue = commands->root()->add_subcommand(
      "requeue", "Puts quarantined tasks back; their failures are forgotten");
  requeue->add_option("SOURCE", requeued->source, "Name of the source")->required();
  requeue->add_option("TASK", requeued->ids, "Ids of tasks");
  requeue->add_flag("--all", requeued->all, "All tasks of the source that are quarantined");
  commands->On(requeue,
               [requeued](Context& c) { return Change(c, "RequeueTasks", "requeued", *requeued); });
}

}  // namespace forebay::ctl
