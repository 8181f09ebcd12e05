#include "ctl/app.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "ctl/command.h"
#include "ctl/usage.h"

namespace forebay::ctl {
namespace {

constexpr char kAbout[] =
    "Looks after a Forebay daemon: what runs, what waits and why, and the settings.\n"
    "Exit codes: 0 done, 1 refused, 2 wrong command line, 10 degraded (status, doctor), 20 "
    "unavailable or unreachable.";

struct Globals {
  std::string address = "127.0.0.1:7400";
  std::string output = "table";
  double timeout_s = 10;
  std::string token_file;
  std::string tls_ca, tls_cert, tls_key;
  std::string etcd, cluster = "forebay";
};

void AddGlobals(CLI::App* app, Globals* globals) {
  app->add_option("-a,--address", globals->address,
                  "The daemon: HOST:PORT or unix:/path/of/the/socket; or nodes of a cluster, "
                  "with commas")
      ->check([](const std::string& address) {
        return std::string(
            address.empty() ? "is empty; HOST:PORT or unix:/path, several with commas" : "");
      })
      ->envname("FOREBAY_ADDRESS")
      ->capture_default_str();
  app->add_option("-o,--output", globals->output, "table for people, json for programs")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  app->add_option("--timeout", globals->timeout_s, "Seconds that a call may take")
      ->check(CLI::Range(0.001, 86'400.0))
      ->capture_default_str();
  app->add_option("--token-file", globals->token_file, "File that holds the bearer token")
      ->envname("FOREBAY_TOKEN_FILE");
  app->add_option("--tls-ca", globals->tls_ca,
                  "PEM file that the daemon's certificate is checked with");
  app->add_option("--tls-cert", globals->tls_cert, "PEM file: own certificate, for mutual TLS");
  app->add_option("--tls-key", globals->tls_key, "PEM file: key of --tls-cert");
  app->add_option("--etcd", globals->etcd,
                  "HOST:PORT,...: commands of a cluster ask etcd itself, when no node is up")
      ->envname("FOREBAY_ETCD");
  app->add_option("--cluster", globals->cluster, "With --etcd: the cluster.name of the nodes")
      ->capture_default_str();
}

absl::Status ReadFile(const char* option, const std::string& path, std::string* text) {
  if (path.empty()) return absl::OkStatus();
  std::ifstream file(path);
  std::ostringstream content;
  if (!file || !(content << file.rdbuf())) {
    return absl::NotFoundError(
        absl::StrCat(option, ": cannot read '", path, "': ", std::strerror(errno)));
  }
  *text = content.str();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<client::Client>> Connect(const Globals& globals,
                                                        const std::string& address, bool follow) {
  client::ConnectOptions options{.address = address, .follow = follow};
  if (auto s = ReadFile("--token-file", globals.token_file, &options.token); !s.ok()) return s;
  if (auto s = ReadFile("--tls-ca", globals.tls_ca, &options.tls_root_pem); !s.ok()) return s;
  if (auto s = ReadFile("--tls-cert", globals.tls_cert, &options.tls_cert_pem); !s.ok()) return s;
  if (auto s = ReadFile("--tls-key", globals.tls_key, &options.tls_key_pem); !s.ok()) return s;
  options.token = std::string(absl::StripAsciiWhitespace(options.token));
  return client::Client::Connect(options);
}

bool Unreachable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// What is wrong, and what to do.
std::string Explain(const absl::Status& status, const Globals& globals) {
  const std::string what(status.message());
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return absl::StrCat(
          "cannot reach the ", what,
          "\n  Is bufferd running there? Name another with --address or FOREBAY_ADDRESS.");
    case absl::StatusCode::kDeadlineExceeded:
      return absl::StrCat("no answer from ", globals.address, " within ", globals.timeout_s,
                          " s\n  Give it more time with --timeout, or look at the daemon's log.");
    case absl::StatusCode::kUnauthenticated:
      return absl::StrCat(what,
                          "\n  Name the file that holds an operator's token with --token-file.");
    case absl::StatusCode::kUnimplemented:
      return absl::StrCat(what, "\n  The daemon at ", globals.address,
                          " does not know this call: it may be older, or not Forebay.");
    default:
      return what;
  }
}

int Execute(const Action& action, const Globals& globals, std::ostream& out, std::ostream& err) {
  auto client = Connect(globals, globals.address, true);
  absl::Status status = client.status();
  Context context{
      .connect = [&globals](const std::string& to) { return Connect(globals, to, false); },
      .addresses = globals.address,
      .etcd = globals.etcd,
      .cluster = globals.cluster,
      .timeout = absl::Seconds(globals.timeout_s),
      .json = globals.output == "json",
      .out = &out,
      .progress = &err};
  if (status.ok()) {
    context.client = client->get();
    status = action(context);
  }
  if (status.ok()) {
    out.flush();
    if (out.good()) return context.exit_code;
    status = absl::DataLossError("the output cannot be written");
  }
  err << "buffer-ctl: " << Explain(status, globals) << "\n";
  if (IsUsageError(status)) return kExitUsage;
  return Unreachable(status) ? kExitUnavailable : kExitFailed;
}

// CLI11 says only that a command is required, whatever stands in its place.
std::string UnknownCommand(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining(true);
  if (left.empty()) return "";
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  std::string known;
  for (const CLI::App* command : at->get_subcommands(nullptr)) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", command->get_name());
  }
  return absl::StrCat("'", left.front(), "' is no command; there are: ", known);
}

}  // namespace

uint64_t RandomId() {
  std::random_device random;
  uint64_t id = 0;
  while (id == 0) id = uint64_t{random()} << 32 | random();
  return id;
}

CLI::Option* AddNumber(CLI::App* command, const std::string& name, uint64_t* value,
                       const std::string& help) {
  return command->add_option(name, *value, help)->check([](const std::string& text) {
    uint64_t number = 0;
    const bool whole = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos &&
                       absl::SimpleAtoi(text, &number);
    return whole ? std::string()
                 : absl::StrCat("is '", text, "', must be a whole number, at most ", UINT64_MAX);
  });
}

int Run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  CLI::App app(kAbout, "buffer-ctl");
  app.set_version_flag("--version", "buffer-ctl " FOREBAY_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.get_formatter()->column_width(34);
  Globals globals;
  AddGlobals(&app, &globals);
  Commands commands(&app);
  AddStatus(&commands);
  AddSources(&commands);
  AddTasks(&commands);
  AddRollouts(&commands);
  AddDrops(&commands);
  AddProcesses(&commands);
  AddSteps(&commands);
  AddRewind(&commands);
  AddConfig(&commands);
  AddEvals(&commands);
  AddKl(&commands);
  AddStorage(&commands);
  AddVerify(&commands);
  AddInspect(&commands);
  AddExport(&commands);
  AddCluster(&commands);
  AddFailover(&commands);
  AddDoctor(&commands);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
    app.parse(reversed);
  } catch (const CLI::RequiredError& error) {
    const std::string unknown = UnknownCommand(app);
    if (unknown.empty()) return app.exit(error, out, err) == 0 ? kExitOk : kExitUsage;
    err << "buffer-ctl: " << unknown << "\n";
    return kExitUsage;
  } catch (const CLI::ParseError& error) {
    return app.exit(error, out, err) == 0 ? kExitOk : kExitUsage;
  }
  return Execute(commands.chosen(), globals, out, err);
}

}  // namespace forebay::ctl
