// buffer-ctl storage
#include "base/units.h"
#include "ctl/command.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

std::string Share(uint64_t part, uint64_t whole) {
  if (whole == 0) return "";
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return absl::StrCat(" (", percent > 0 && percent < 0.1 ? "below 0.1" : Decimal(percent), "%)");
}

void Line(const char* name, const std::string& text, std::ostream& out) {
  out << name << std::string(12 - std::string_view(name).size(), ' ') << text << "\n";
}

void PrintPlaces(const v1::GetStorageResponse& s, std::ostream& out) {
  if (!s.durable()) Line("directory", "none: the run is in memory, and ends with the daemon", out);
  for (const auto& disk : s.disks()) {
    std::string room = ", room unknown";
    if (disk.total_bytes() > 0) {
      room = absl::StrCat(", ", BytesText(disk.free_bytes()), " of ", BytesText(disk.total_bytes()),
                          " free");
    }
    Line(disk.use().c_str(), absl::StrCat(disk.directory(), room, ", by ", disk.io()), out);
  }
}

void PrintPayloads(const v1::GetStorageResponse& s, std::ostream& out) {
  Line("payloads", absl::StrCat(s.payloads(), " of ", BytesText(s.payload_bytes())), out);
  std::string memory =
      absl::StrCat(BytesText(s.memory_bytes()), " of ", BytesText(s.memory_bytes_max()),
                   Share(s.memory_bytes(), s.memory_bytes_max()));
  if (s.durable()) {
    absl::StrAppend(&memory, "; ", BytesText(s.cached_bytes()), " is on the disk too, ",
                    BytesText(s.wanted_bytes()), " of that is kept for steps");
  }
  Line("memory", memory, out);
  Line("contents", absl::StrCat(BytesText(s.content_bytes()), " of tasks"), out);
  if (!s.durable()) return;
  Line("kept",
       absl::StrCat(s.kept_payloads(), " of the payloads are kept for people: ",
                    BytesText(s.kept_bytes()), " of ", BytesText(s.kept_bytes_max())),
       out);
  const auto& g = s.segments();
  Line(
      "files",
      absl::StrCat(g.open(), " segments open, ", g.sealed(), " sealed, ", g.dead(),
                   " dead: ", BytesText(g.file_bytes()), ", live ", BytesText(g.live_bytes()),
                   Share(g.live_bytes(), g.file_bytes()), ", pinned ", BytesText(g.pinned_bytes())),
      out);
  if (g.cold_live_bytes() > 0) {
    Line("cold",
         absl::StrCat(BytesText(g.cold_live_bytes()), " of it in cold columns, ",
                      BytesText(g.cold_cached_bytes()), " of those in memory"),
         out);
  }
  Line("writing",
       absl::StrCat(BytesText(g.waiting_bytes()), " wait to be synced; ", g.failed_writes(),
                    " writes failed, ", g.abandoned_writes(), " were given up"),
       out);
  Line("reading",
       absl::StrCat(BytesText(g.evicted_bytes()), " given up in memory, ",
                    BytesText(g.read_back_bytes()), " read back; ", g.damaged(),
                    " payloads damaged"),
       out);
}

void PrintMachines(const v1::GetStorageResponse& s, std::ostream& out) {
  Table table(
      {"MACHINE", ">LOG FILES", ">LOG BYTES", ">SNAPSHOTS", ">BYTES", ">OTHER FILES", ">WAITING"});
  for (const auto& m : s.machines()) {
    table.Add({m.machine(), absl::StrCat(m.log_files()), BytesText(m.log_bytes()),
               absl::StrCat(m.snapshots()), BytesText(m.snapshot_bytes()),
               absl::StrCat(m.other_files()), BytesText(m.pending_bytes())});
  }
  if (table.rows() > 0) out << "\n" << table.Text();
}

void PrintOperations(const v1::GetStorageResponse& s, std::ostream& out) {
  Table table({"DISK", "OPERATION", ">COUNT", ">BYTES", ">RECENT MS", ">SLOWEST MS"});
  for (const auto& disk : s.disks()) {
    const std::pair<const char*, const v1::OperationTimes*> kinds[] = {
        {"read", &disk.reads()}, {"write", &disk.writes()}, {"sync", &disk.syncs()}};
    for (const auto& [name, times] : kinds) {
      table.Add({disk.use(), name, absl::StrCat(times->count()),
                 times == &disk.syncs() ? "-" : BytesText(times->bytes()),
                 times->count() == 0 ? "-" : Decimal(times->recent_ms()),
                 times->count() == 0 ? "-" : Decimal(times->slowest_ms())});
    }
  }
  if (table.rows() > 0) out << "\n" << table.Text();
  for (const auto& disk : s.disks()) {
    if (disk.in_flight() == 0) continue;
    out << disk.use() << ": " << disk.in_flight() << " operations run now, the oldest for "
        << Duration(disk.oldest_ms()) << "\n";
  }
}

absl::Status Show(Context& context) {
  auto response = context.Ask<v1::GetStorageResponse>("GetStorage", v1::GetStorageRequest());
  if (!response.ok()) return response.status();
  std::ostream& out = *context.out;
  if (context.json) {
    out << ToJson(*response) << "\n";
    return absl::OkStatus();
  }
  PrintPlaces(*response, out);
  PrintPayloads(*response, out);
  PrintMachines(*response, out);
  PrintOperations(*response, out);
  if (!response->unknown().empty()) {
    out << "\nfigures of files are missing: " << response->unknown() << "\n";
  }
  out << "\n";
  for (const std::string& wait : response->waits()) out << "waits: " << wait << "\n";
  if (response->waits().empty()) out << "nothing waits\n";
  return absl::OkStatus();
}

}  // namespace

void AddStorage(Commands* commands) {
  auto* storage = commands->root()->add_subcommand(
      "storage", "What lies on the disks and in memory: files, room, waits, how long disks take");
  commands->On(storage, Show);
}

}  // namespace forebay::ctl
