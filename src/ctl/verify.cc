// buffer-ctl verify: of the files that a stopped daemon has left, or of the payloads of one that
// runs.
#include "node/verify.h"

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/units.h"
#include "ctl/command.h"
#include "ctl/usage.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

std::string JsonList(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const std::string& text : texts) {
    absl::StrAppend(&out, out.size() == 1 ? "" : ", ", JsonText(text));
  }
  return out + "]";
}

std::string Json(const node::VerifyReport& report) {
  const auto machine = [](std::string* out, const node::RecoveredMachine& m) {
    absl::StrAppend(out, "{\"name\": ", JsonText(m.name), ", \"records\": ", m.log.records,
                    ", \"snapshot\": ", m.log.snapshot.value, ", \"last\": ", m.log.next.value - 1,
                    ", \"bytes\": ", m.log.bytes, "}");
  };
  return absl::StrCat(
      "{\n  \"run\": \"", Hex(report.run.run), "\",\n  \"starts\": ", report.run.incarnation,
      ",\n  \"may_start\": ", report.may_start ? "true" : "false", ",\n  \"machines\": [",
      absl::StrJoin(report.machines, ", ", machine), "],\n  \"contents\": ", report.contents,
      ",\n  \"content_bytes\": ", report.content_bytes, ",\n  \"segments\": ", report.segments,
      ",\n  \"payloads\": ", report.payloads, ",\n  \"payload_bytes\": ", report.payload_bytes,
      ",\n  \"remarks\": ", JsonList(report.remarks), ",\n  \"damage\": ", JsonList(report.damage),
      "\n}\n");
}

std::string Text(const node::VerifyReport& report) {
  std::string out;
  if (report.damage.empty()) {
    absl::StrAppend(&out, "OK: a start finds everything\n");
  } else {
    absl::StrAppend(&out, "DAMAGED: ", report.damage.size(), " findings; a start ",
                    report.may_start ? "goes on without what is lost" : "is refused", "\n");
  }
  Table table({"MACHINE", ">RECORDS", ">SNAPSHOT", ">LAST", ">BYTES"});
  for (const node::RecoveredMachine& m : report.machines) {
    table.Add({m.name, absl::StrCat(m.log.records), absl::StrCat(m.log.snapshot.value),
               absl::StrCat(m.log.next.value - 1), BytesText(m.log.bytes)});
  }
  absl::StrAppend(&out, table.Text(), "contents  ", report.contents, " of ",
                  BytesText(report.content_bytes), "\npayloads  ", report.payloads, " of ",
                  BytesText(report.payload_bytes), " in ", report.segments, " segments\n");
  for (const std::string& text : report.remarks) absl::StrAppend(&out, "remark: ", text, "\n");
  for (const std::string& text : report.damage) absl::StrAppend(&out, "damage: ", text, "\n");
  return out;
}

absl::Status VerifyFiles(Context& context, const node::VerifyOptions& options) {
  std::string why;
  const auto disk = io::NewDisk({}, &why);
  const auto report = node::VerifyDirectory(disk.get(), options);
  if (!report.ok()) {
    // Nothing to do with a daemon's address.
    return absl::FailedPreconditionError(report.status().message());
  }
  *context.out << (context.json ? Json(*report) : Text(*report));
  if (!report->damage.empty()) context.exit_code = kExitDegraded;
  if (!report->may_start) context.exit_code = kExitUnavailable;
  return absl::OkStatus();
}

// How long one call waits for the end, and how often it is said how far that is.
constexpr uint32_t kWaitMs = 500;
constexpr auto kTellEvery = absl::Seconds(5);

struct Arguments {
  node::VerifyOptions files;
  double rate_mib = 64;
  bool show = false;
};

std::string Text(const v1::VerifyPayloadsResponse& r) {
  if (r.took_ms() == 0 && r.began_ms_ago() == 0) return "no verification was started\n";
  std::string out = r.running()        ? "RUNNING: "
                    : r.damaged() == 0 ? "OK: every payload is what was stored; "
                                       : absl::StrCat("DAMAGED: ", r.damaged(), " payloads; ");
  absl::StrAppend(&out, r.read_payloads(), " payloads of ", BytesText(r.read_bytes()), " read in ",
                  Duration(r.took_ms()));
  if (r.running()) {
    absl::StrAppend(&out, ", of ", r.payloads(), " with ", BytesText(r.payload_bytes()), "; ",
                    r.damaged(), " damaged");
  }
  if (r.freed() > 0) absl::StrAppend(&out, "; ", r.freed(), " were freed meanwhile");
  out += "\n";
  for (const std::string& text : r.damage()) absl::StrAppend(&out, "damage: ", text, "\n");
  if (r.damaged() > static_cast<uint64_t>(r.damage_size())) {
    absl::StrAppend(&out, "... and ", r.damaged() - static_cast<uint64_t>(r.damage_size()),
                    " more: see the daemon's log\n");
  }
  return out;
}

absl::Status VerifyDaemon(Context& context, const Arguments& arguments) {
  v1::VerifyPayloadsRequest request;
  request.set_start(!arguments.show);
  request.set_bytes_per_second(static_cast<uint64_t>(arguments.rate_mib * (1 << 20)));
  absl::Time told = absl::Now();
  while (true) {
    request.set_wait_ms(arguments.show ? 0 : kWaitMs);
    const auto response = context.Ask<v1::VerifyPayloadsResponse>("VerifyPayloads", request,
                                                                  absl::Milliseconds(kWaitMs));
    if (!response.ok()) return response.status();
    if (!response->running() || arguments.show) {
      *context.out << (context.json ? ToJson(*response) + "\n" : Text(*response));
      if (response->damaged() > 0) context.exit_code = kExitDegraded;
      return absl::OkStatus();
    }
    // What was begun goes on by itself.
    request.set_start(false);
    if (absl::Now() - told < kTellEvery) continue;
    told = absl::Now();
    *context.progress << Text(*response) << std::flush;
  }
}

}  // namespace

void AddVerify(Commands* commands) {
  auto arguments = std::make_shared<Arguments>();
  auto* verify = commands->root()->add_subcommand(
      "verify",
      "Reads all of a stopped daemon's storage.directory and says what is damaged; without a "
      "directory it has a running daemon read every payload. Changes nothing");
  verify->add_option("DIRECTORY", arguments->files.directory,
                     "storage.directory of a daemon that does not run");
  verify->add_option("--segments", arguments->files.segment_directory,
                     "storage.segment_directory, if the daemon has one");
  verify
      ->add_option("--rate", arguments->rate_mib,
                   "MiB a second that a running daemon reads, at most")
      ->check(CLI::Range(0.0625, 1'000'000.0))
      ->capture_default_str();
  verify->add_flag("--show", arguments->show,
                   "Of a running daemon: only say how far it is, or how it ended");
  commands->On(verify, [arguments](Context& c) {
    if (!arguments->files.directory.empty()) return VerifyFiles(c, arguments->files);
    if (!arguments->files.segment_directory.empty()) {
      return UsageError("--segments: goes with a DIRECTORY");
    }
    return VerifyDaemon(c, *arguments);
  });
}

}  // namespace forebay::ctl
