// buffer-ctl inspect segment, log: of files, without a daemon.
#include "node/inspect.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/units.h"
#include "ctl/command.h"
#include "ctl/inspect_rollout.h"
#include "ctl/text.h"
#include "forebay/v1/types.pb.h"

namespace forebay::ctl {
namespace {

// Of a command's fields, in a table and with --text.
constexpr size_t kFieldsShort = 60;
constexpr size_t kFieldsLong = size_t{64} << 10;

struct FileArguments {
  std::string path;
  uint64_t limit = 1'000;
  bool damaged = false;
  bool text = false;
};

// The first records, and of the damaged ones behind them as many again.
class Shown {
 public:
  explicit Shown(const FileArguments& arguments) : arguments_(arguments) {}
  bool Take(bool damaged) {
    if (arguments_.damaged && !damaged) return false;
    if (taken_ < arguments_.limit) return ++taken_ > 0;
    ++left_out_;
    return damaged && damaged_++ < arguments_.limit;
  }
  uint64_t left_out() const { return left_out_ - std::min(damaged_, arguments_.limit); }

 private:
  const FileArguments& arguments_;
  uint64_t taken_ = 0, damaged_ = 0, left_out_ = 0;
};

// What the header of a rollout says in a few words.
std::string About(const node::SegmentRecord& record) {
  const std::string_view header = record.header;
  v1::RolloutHeader rollout;
  if (record.part == storage::Part::kCold) return "cold columns of a rollout";
  if (header.empty()) return "a column of a step";
  if (!rollout.ParseFromArray(header.data(), static_cast<int>(header.size()))) {
    return "no header of a rollout";
  }
  uint64_t tokens = 0;
  for (const auto& sequence : rollout.sequences()) tokens += sequence.tokens();
  return absl::StrCat("attempt ", Hex(rollout.attempt_id()), ", ", EnumName(rollout.status()), ", ",
                      rollout.sequences_size(), " x ", tokens, " tokens, ", rollout.columns_size(),
                      " columns",
                      record.head.cold == PayloadId()
                          ? ""
                          : absl::StrCat(", the cold ones at ", Hex(record.head.cold.value)));
}

std::string KindOf(const node::SegmentRecord& record) {
  if (record.part == storage::Part::kCold) return "cold";
  return record.head.header_bytes > 0 ? "rollout" : "column";
}

std::string Json(const node::SegmentRecord& record) {
  return absl::StrCat("    {\"offset\": ", record.offset, ", \"id\": \"", Hex(record.head.id.value),
                      "\", \"bytes\": ", record.head.bytes,
                      ", \"header_bytes\": ", record.head.header_bytes, ", \"kind\": \"",
                      KindOf(record), "\", \"cold\": \"", Hex(record.head.cold.value),
                      "\", \"listed\": ", record.listed ? "true" : "false",
                      ", \"wrong\": ", JsonText(record.wrong), "}");
}

std::string JsonEnd(const node::SegmentReport& r) {
  return absl::StrCat(
      "  \"node\": ", JsonText(r.header.name.node), ",\n  \"number\": ", r.header.name.number,
      ",\n  \"incarnation\": ", r.header.name.incarnation,
      ",\n  \"header_wrong\": ", JsonText(r.header_wrong), ",\n  \"file_bytes\": ", r.file_bytes,
      ",\n  \"sealed\": ", r.sealed ? "true" : "false",
      ",\n  \"footer_wrong\": ", JsonText(r.footer_wrong), ",\n  \"records\": ", r.records,
      ",\n  \"listed\": ", r.listed, ",\n  \"damaged\": ", r.damaged,
      ",\n  \"payload_bytes\": ", r.payload_bytes);
}

std::string TextEnd(const node::SegmentReport& r) {
  std::string out;
  if (r.header_wrong.empty()) {
    absl::StrAppend(&out, "segment ", r.header.name.number, " of node ", r.header.name.node,
                    ", start ", r.header.name.incarnation, ", run ", r.header.cluster, "\n");
  } else {
    absl::StrAppend(&out, "damaged: ", r.header_wrong, "\n");
  }
  absl::StrAppend(&out, BytesText(r.file_bytes), ", ",
                  r.sealed ? absl::StrCat("sealed with ", r.listed, " records")
                           : "not sealed: it is open, or was cut off",
                  "; ", r.records, " records found, ", r.damaged, " of them damaged; ",
                  BytesText(r.payload_bytes), " of payloads are whole\n");
  if (!r.footer_wrong.empty()) absl::StrAppend(&out, "damaged: ", r.footer_wrong, "\n");
  return out;
}

// Prints the rows of a file as they come, and what was left out.
class RowPrinter {
 public:
  RowPrinter(Context* context, const FileArguments& arguments)
      : context_(context), shown_(arguments) {
    if (context->json) *context->out << "{\n  \"rows\": [";
  }
  bool Take(bool damaged) { return shown_.Take(damaged); }
  void PrintJson(const std::string& row) {
    *context_->out << (first_ ? "\n" : ",\n") << row;
    first_ = false;
  }
  void End(const std::string& json, const std::string& text) {
    if (context_->json) {
      *context_->out << (first_ ? "],\n" : "\n  ],\n") << json
                     << ",\n  \"left_out\": " << shown_.left_out() << "\n}\n";
      return;
    }
    if (shown_.left_out() > 0) {
      *context_->out << "... and " << shown_.left_out() << " more: see --limit\n";
    }
    *context_->out << text;
  }

 private:
  Context* const context_;
  Shown shown_;
  bool first_ = true;
};

std::string Padded(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

absl::Status InspectSegment(Context& context, const FileArguments& arguments) {
  std::string why;
  const auto disk = io::NewDisk({}, &why);
  RowPrinter printer(&context, arguments);
  const auto report =
      node::InspectSegment(disk.get(), arguments.path, [&](const node::SegmentRecord& record) {
        if (!printer.Take(!record.wrong.empty())) return;
        if (context.json) return printer.PrintJson(Json(record));
        *context.out << Padded(absl::StrCat(record.offset), 11) << "  " << Hex(record.head.id.value)
                     << Padded(absl::StrCat(record.head.bytes), 11) << "  "
                     << (record.listed ? "listed  " : "        ")
                     << (record.wrong.empty() ? "crc ok   " : "DAMAGED  ") << About(record)
                     << (record.wrong.empty() ? "" : ": " + record.wrong) << "\n";
      });
  if (!report.ok()) return absl::FailedPreconditionError(report.status().message());
  printer.End(JsonEnd(*report), TextEnd(*report));
  const bool damaged =
      report->damaged > 0 || !report->header_wrong.empty() || !report->footer_wrong.empty();
  if (damaged) context.exit_code = kExitDegraded;
  return absl::OkStatus();
}

std::string Json(const node::LogRecord& record, bool text) {
  return absl::StrCat("    {\"position\": ", record.position.value, ", \"offset\": ", record.offset,
                      ", \"batch\": ", record.batch, ", \"bytes\": ", record.bytes,
                      ", \"command\": ", JsonText(record.command),
                      text ? absl::StrCat(", \"fields\": ", JsonText(record.fields)) : "",
                      ", \"wrong\": ", JsonText(record.wrong), "}");
}

std::string JsonEnd(const node::LogReport& r) {
  return absl::StrCat(
      "  \"machine\": ", JsonText(r.header.machine), ",\n  \"number\": ", r.header.number,
      ",\n  \"first\": ", r.header.first.value, ",\n  \"header_wrong\": ", JsonText(r.header_wrong),
      ",\n  \"file_bytes\": ", r.file_bytes, ",\n  \"batches\": ", r.batches,
      ",\n  \"records\": ", r.records, ",\n  \"damaged\": ", r.damaged,
      ",\n  \"synced\": ", r.synced.value, ",\n  \"end\": ", JsonText(r.end),
      ",\n  \"end_offset\": ", r.end_offset, ",\n  \"end_why\": ", JsonText(r.end_why));
}

std::string TextEnd(const node::LogReport& r) {
  std::string out;
  if (r.header_wrong.empty()) {
    absl::StrAppend(&out, "log of ", r.header.machine, ", file ", r.header.number, ", from record ",
                    r.header.first.value, ", start ", r.header.incarnation, "\n");
  } else {
    absl::StrAppend(&out, "damaged: ", r.header_wrong, "\n");
  }
  absl::StrAppend(&out, BytesText(r.file_bytes), ", ", r.batches, " batches, ", r.records,
                  " records; durable up to record ", r.synced.value, " at least, by itself\n");
  if (r.end == "whole") return out + "whole to its end\n";
  absl::StrAppend(&out, r.end, " at offset ", r.end_offset, ": ", r.end_why, "\n");
  if (r.end == "torn") absl::StrAppend(&out, "nothing behind it was acknowledged\n");
  return out;
}

absl::Status InspectLog(Context& context, const FileArguments& arguments) {
  std::string why;
  const auto disk = io::NewDisk({}, &why);
  RowPrinter printer(&context, arguments);
  const auto report = node::InspectLog(
      disk.get(), arguments.path, arguments.text ? kFieldsLong : kFieldsShort,
      [&](const node::LogRecord& record) {
        if (!printer.Take(!record.wrong.empty())) return;
        if (context.json) return printer.PrintJson(Json(record, arguments.text));
        *context.out << Padded(absl::StrCat(record.position.value), 10)
                     << Padded(absl::StrCat(record.offset), 11)
                     << Padded(absl::StrCat(record.bytes), 10)
                     << (record.wrong.empty() ? "  crc ok   " : "  DAMAGED  ")
                     << (record.command.empty() && record.wrong.empty() ? "(of another version)"
                                                                        : record.command)
                     << (arguments.text ? record.fields : "") << record.wrong << "\n";
      });
  if (!report.ok()) return absl::FailedPreconditionError(report.status().message());
  printer.End(JsonEnd(*report), TextEnd(*report));
  if (report->end == "corrupt") context.exit_code = kExitDegraded;
  return absl::OkStatus();
}

CLI::App* AddFile(CLI::App* inspect, const char* name, const char* what,
                  const std::shared_ptr<FileArguments>& arguments) {
  auto* command = inspect->add_subcommand(name, what);
  command->add_option("FILE", arguments->path, "The file; it is only read")->required();
  command
      ->add_option("-n,--limit", arguments->limit,
                   "The first so many records, and as many damaged ones behind them")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000'000}))
      ->capture_default_str();
  command->add_flag("--damaged", arguments->damaged, "Only what is damaged");
  return command;
}

}  // namespace

void AddInspect(Commands* commands) {
  auto* inspect = commands->root()->add_subcommand(
      "inspect",
      "What a file of the run holds, record by record; or one rollout, with its columns");
  inspect->require_subcommand(1);
  auto of_segment = std::make_shared<FileArguments>();
  auto* segment = AddFile(inspect, "segment", "A file of payloads, offline", of_segment);
  commands->On(segment, [of_segment](Context& c) { return InspectSegment(c, *of_segment); });
  auto of_log = std::make_shared<FileArguments>();
  auto* log = AddFile(inspect, "log", "A file of a machine's log, offline", of_log);
  log->add_flag("--text", of_log->text, "The commands' fields too, in the order of the code");
  commands->On(log, [of_log](Context& c) { return InspectLog(c, *of_log); });
  AddInspectRollout(commands, inspect);
}

}  // namespace forebay::ctl
