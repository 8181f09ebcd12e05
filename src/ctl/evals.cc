// buffer-ctl eval start|show|list
#include "absl/strings/numbers.h"
#include "ctl/command.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

constexpr uint32_t kWaitMsMax = 60'000;

struct StartArguments {
  std::string source;
  uint64_t run = 0;
  uint32_t version = 0;
  uint32_t branch = 0;
  CLI::Option* has_version = nullptr;
  uint32_t attempts = 1;
  double share = 1;
};

absl::Status Start(Context& context, const StartArguments& arguments) {
  v1::StartEvalRequest request;
  request.set_eval_run(arguments.run != 0 ? arguments.run : RandomId());
  request.set_source(arguments.source);
  request.set_attempts(arguments.attempts);
  request.set_share(arguments.share);
  if (arguments.has_version->count() > 0) {
    request.mutable_version()->set_number(arguments.version);
    request.mutable_version()->set_branch(arguments.branch);
  }
  auto response = context.Ask<v1::StartEvalResponse>("StartEval", request);
  if (!response.ok()) return response.status();
  if (context.json) {
    *context.out << ToJson(*response) << "\n";
  } else {
    *context.out << "evaluation " << response->eval_run()
                 << " started; see it with: buffer-ctl eval show " << response->eval_run() << "\n";
  }
  return absl::OkStatus();
}

std::string PassAt(const v1::EvalResult& result) {
  std::string out;
  for (int i = 0; i < result.pass_at_size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : " ", uint64_t{1} << i, ":", Decimal(result.pass_at(i)));
  }
  return out;
}

Table ResultTable() {
  return Table({">EVAL", "SOURCE", ">VERSION", "STATE", ">TASKS", ">ROLLOUTS", ">FAILED", ">REWARD",
                ">STD ERROR", "PASS@K", ">TOKENS"});
}

void AddRow(const v1::EvalResult& r, Table* table) {
  table->Add({absl::StrCat(r.eval_run()), r.source(), Version(r.version()),
              r.done() ? "done" : "running", absl::StrCat(r.tasks()), absl::StrCat(r.rollouts()),
              absl::StrCat(r.failed()), Decimal(r.mean_reward()), Decimal(r.standard_error()),
              PassAt(r), Decimal(r.mean_tokens())});
}

struct ShowArguments {
  uint64_t run = 0;
  double wait_s = 0;
};

absl::Status Show(Context& context, const ShowArguments& arguments) {
  v1::GetEvalRequest request;
  request.set_eval_run(arguments.run);
  double left_ms = arguments.wait_s * 1000;
  while (true) {
    const double wait_ms = std::min<double>(left_ms, kWaitMsMax);
    request.set_wait_ms(static_cast<uint32_t>(wait_ms));
    auto result = context.Ask<v1::EvalResult>("GetEval", request, absl::Milliseconds(wait_ms));
    if (!result.ok()) return result.status();
    left_ms -= wait_ms;
    if (!result->done() && left_ms > 0) continue;
    Table table = ResultTable();
    AddRow(*result, &table);
    context.Show(*result, table, "");
    return absl::OkStatus();
  }
}

absl::Status List(Context& context) {
  auto response = context.Ask<v1::ListEvalsResponse>("ListEvals", v1::ListEvalsRequest());
  if (!response.ok()) return response.status();
  Table table = ResultTable();
  for (const auto& result : response->evals()) AddRow(result, &table);
  context.Show(*response, table, "no evaluations");
  return absl::OkStatus();
}

}  // namespace

void AddEvals(Commands* commands) {
  auto* eval =
      commands->root()->add_subcommand("eval", "Evaluations of a version on an eval source");
  eval->require_subcommand(1);

  auto start_arguments = std::make_shared<StartArguments>();
  auto* start = eval->add_subcommand("start", "Evaluates a version: each task so many times");
  start->add_option("SOURCE", start_arguments->source, "A source of purpose eval")->required();
  AddNumber(start, "--id", &start_arguments->run,
            "Own id of the run: the same again starts nothing");
  start_arguments->has_version = start->add_option("--policy-version", start_arguments->version,
                                                   "A published version; else the newest");
  start->add_option("--branch", start_arguments->branch, "Branch of the version")
      ->needs(start_arguments->has_version);
  start->add_option("--attempts", start_arguments->attempts, "Attempts a task")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str();
  start->add_option("--share", start_arguments->share, "Share of slots reserved for it, in (0, 1]")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  commands->On(start, [start_arguments](Context& c) { return Start(c, *start_arguments); });

  auto show_arguments = std::make_shared<ShowArguments>();
  auto* show = eval->add_subcommand("show", "What an evaluation has found so far");
  AddNumber(show, "EVAL", &show_arguments->run, "Its id, from eval start")->required();
  show->add_option("--wait", show_arguments->wait_s, "Seconds to wait for its end")
      ->check(CLI::NonNegativeNumber);
  commands->On(show, [show_arguments](Context& c) { return Show(c, *show_arguments); });

  auto* list = eval->add_subcommand("list", "All evaluations");
  commands->On(list, List);
}

}  // namespace forebay::ctl
