// buffer-ctl verify: of files, without a daemon.
#include "node/verify.h"

#include "absl/strings/str_join.h"
#include "base/units.h"
#include "ctl/command.h"

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

absl::Status Verify(Context& context, const node::VerifyOptions& options) {
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

}  // namespace

void AddVerify(Commands* commands) {
  auto options = std::make_shared<node::VerifyOptions>();
  auto* verify =
      commands->root()->add_subcommand("verify",
                                       "Reads all of a stopped daemon's storage.directory and says "
                                       "what is damaged; changes nothing");
  verify->add_option("DIRECTORY", options->directory, "storage.directory of the daemon")
      ->required();
  verify->add_option("--segments", options->segment_directory,
                     "storage.segment_directory, if the daemon has one");
  commands->On(verify, [options](Context& c) { return Verify(c, *options); });
}

}  // namespace forebay::ctl
