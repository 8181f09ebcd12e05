// buffer-ctl tasks load
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "ctl/sources.h"
#include "ctl/task_lines.h"
#include "ctl/usage.h"

namespace forebay::ctl {
namespace {

// Of one AddTasks request; the daemon takes more.
constexpr int kBatchTasks = 10'000;
constexpr size_t kBatchBytes = size_t{4} << 20;

struct Arguments {
  std::string file;
  std::string source;
  bool create = false;
  uint32_t group_size = 0;
  bool eval = false;
  std::vector<std::string> settings;
  LineFields fields;
  bool number = false;
};

absl::Status PrepareSource(const Context& context, const Arguments& arguments) {
  std::vector<std::string> settings;
  if (arguments.eval) settings.push_back("purpose=eval");
  if (arguments.group_size > 0)
    settings.push_back(absl::StrCat("group_size=", arguments.group_size));
  settings.insert(settings.end(), arguments.settings.begin(), arguments.settings.end());
  if (!arguments.create && !settings.empty()) {
    return UsageError("settings of the source need --create");
  }
  if (!arguments.create) return absl::OkStatus();
  return PutSource(context, arguments.source, settings, true).status();
}

absl::Status Send(const Context& context, v1::AddTasksRequest* batch, v1::AddTasksResponse* sum) {
  if (batch->tasks_size() == 0) return absl::OkStatus();
  auto response = context.Ask<v1::AddTasksResponse>("AddTasks", *batch);
  if (!response.ok()) return response.status();
  sum->set_added(sum->added() + response->added());
  sum->set_known(sum->known() + response->known());
  batch->clear_tasks();
  return absl::OkStatus();
}

// Sends batch after batch. What was sent before an error stays; the same file again goes on from
// there.
absl::Status LoadFrom(std::istream* in, const Context& context, const Arguments& arguments,
                      v1::AddTasksResponse* sum) {
  TaskLines lines(in, arguments.fields);
  v1::AddTasksRequest batch;
  batch.set_source(arguments.source);
  size_t bytes = 0;
  v1::Task task;
  while (lines.Next(&task)) {
    const size_t size = task.ByteSizeLong();
    if (batch.tasks_size() == kBatchTasks || (bytes > 0 && bytes + size > kBatchBytes)) {
      if (auto status = Send(context, &batch, sum); !status.ok()) return status;
      bytes = 0;
    }
    bytes += size;
    batch.add_tasks()->Swap(&task);
  }
  if (!lines.status().ok()) return lines.status();
  return Send(context, &batch, sum);
}

absl::Status Load(Context& context, const Arguments& arguments) {
  std::ifstream file;
  if (arguments.file != "-") {
    file.open(arguments.file);
    if (!file)
      return absl::NotFoundError(
          absl::StrCat("cannot read '", arguments.file, "': ", std::strerror(errno)));
  }
  if (auto status = PrepareSource(context, arguments); !status.ok()) return status;
  v1::AddTasksResponse sum;
  const auto status = LoadFrom(arguments.file == "-" ? &std::cin : &file, context, arguments, &sum);
  if (absl::IsNotFound(status) && sum.added() + sum.known() == 0) {
    return absl::NotFoundError(
        absl::StrCat(std::string(status.message()), "\n  Create it along the way with --create."));
  }
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(arguments.file, ": ", std::string(status.message()), "\n  ",
                                     sum.added(), " tasks were added before, ", sum.known(),
                                     " were known; load the file again once it is right"));
  }
  if (context.json) {
    *context.out << ToJson(sum) << "\n";
  } else {
    *context.out << sum.added() << " tasks added to " << arguments.source << ", " << sum.known()
                 << " known before\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddTaskLoad(Commands* commands, CLI::App* tasks) {
  auto arguments = std::make_shared<Arguments>();
  auto* load = tasks->add_subcommand(
      "load",
      "Adds tasks from JSONL: an object a line; the line is the payload. Again is harmless.");
  load->add_option("FILE", arguments->file, "JSONL file, or - for the standard input")->required();
  load->add_option("-s,--source", arguments->source, "Name of the source")->required();
  auto* id = load->add_option("--id-field", arguments->fields.id, "Field that holds the task's id")
                 ->capture_default_str();
  load->add_flag("--number", arguments->number, "The line's number is the task's id")->excludes(id);
  load->add_option("--weight-field", arguments->fields.weight,
                   "Field that holds the weight for weighted draws");
  load->add_flag("--create", arguments->create, "Create the source if it is not there");
  load->add_option("--group-size", arguments->group_size, "With --create: rollouts a group")
      ->check(CLI::Range(1u, 4096u));
  load->add_flag("--eval", arguments->eval, "With --create: the source is for evaluations");
  load->add_option("--set", arguments->settings,
                   "With --create: any other setting, NAME=VALUE; may be repeated");
  commands->On(load, [arguments](Context& context) {
    if (arguments->number) arguments->fields.id.clear();
    return Load(context, *arguments);
  });
}

}  // namespace forebay::ctl
