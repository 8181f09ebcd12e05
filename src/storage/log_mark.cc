#include "storage/log_mark.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "codec/archive.h"
#include "storage/log_format.h"

namespace forebay::storage {
namespace {

constexpr uint64_t kMagic = 0x4b52414d59424f46;  // "FOBYMARK"
constexpr uint32_t kFormat = 1;
constexpr size_t kCrcAt = 12, kHeadBytes = 16;

}  // namespace

// All that counts stands in the first sector, which a disk writes as a whole.
std::string EncodeLogMark(const std::string& machine, LogPosition synced) {
  std::string bytes;
  codec::Writer writer(&bytes);
  writer(kMagic, kFormat, uint32_t{0}, synced, machine);
  const uint32_t crc = Crc32c(std::string_view(bytes).substr(kHeadBytes));
  std::memcpy(bytes.data() + kCrcAt, &crc, sizeof(crc));
  bytes.resize(kLogBlock);
  return bytes;
}

absl::StatusOr<LogPosition> DecodeLogMark(std::string_view bytes, const std::string& machine) {
  codec::Reader reader(bytes);
  uint64_t magic = 0;
  uint32_t format = 0, crc = 0;
  LogPosition synced;
  std::string of;
  reader(magic, format, crc, synced, of);
  if (!reader.ok() || magic != kMagic) return absl::DataLossError("it is no mark of a log");
  if (format != kFormat) {
    return absl::DataLossError(absl::StrCat("its format is ", format, ", expected ", kFormat));
  }
  const size_t end = bytes.size() - reader.left();
  if (crc != Crc32c(bytes.substr(kHeadBytes, end - kHeadBytes))) {
    return absl::DataLossError("its crc is not that of its bytes");
  }
  if (of != machine) return absl::DataLossError(absl::StrCat("it is of ", of));
  return synced;
}

struct LogMarker::Flight {
  io::Disk* disk;
  std::string path, block;
  LogPosition position;
  io::FileRef file;
  LogPost post;
  std::shared_ptr<LogMarker*> self;
};

LogMarker::LogMarker(io::Disk* disk, const LogOptions& options, LogPost post)
    : disk_(disk),
      path_(absl::StrCat(options.directory, "/", kLogMarkName)),
      machine_(options.name),
      post_(std::move(post)),
      self_(std::make_shared<LogMarker*>(this)) {}

LogMarker::~LogMarker() { *self_ = nullptr; }

void LogMarker::Mark(LogPosition durable, Done done) {
  if (done) waiting_.push_back(std::move(done));
  wanted_ = std::max(wanted_, durable);
  if (!busy_) Begin();
}

void LogMarker::Begin() {
  if (wanted_ <= marked_) {
    for (Done& done : std::exchange(waiting_, {})) done();
    return;
  }
  busy_ = true;
  auto flight = std::make_shared<Flight>();
  flight->disk = disk_;
  flight->path = path_;
  flight->block = EncodeLogMark(machine_, wanted_);
  flight->position = wanted_;
  flight->post = post_;
  flight->self = self_;
  disk_->Open(path_, {.mode = io::OpenMode::kWrite}, [flight](absl::StatusOr<io::FileRef> file) {
    if (!file.ok() && io::ErrorOf(file.status()) != ENOENT) return Answer(flight, file.status());
    if (file.ok()) {
      flight->file = *std::move(file);
      return Write(flight);
    }
    // A power loss may take the name along: then there is no mark, as before.
    flight->disk->Open(flight->path, {.mode = io::OpenMode::kCreate},
                       [flight](absl::StatusOr<io::FileRef> created) {
                         if (!created.ok()) return Answer(flight, created.status());
                         flight->file = *std::move(created);
                         Write(flight);
                       });
  });
}

void LogMarker::Write(const std::shared_ptr<Flight>& flight) {
  flight->disk->WriteSynced(flight->file, 0, {{flight->block.data(), flight->block.size()}},
                            [flight](absl::Status status) { Answer(flight, std::move(status)); });
}

void LogMarker::Answer(const std::shared_ptr<Flight>& flight, absl::Status status) {
  flight->post([flight, status = std::move(status)] {
    if (*flight->self != nullptr) (*flight->self)->Ended(*flight, status);
  });
}

void LogMarker::Ended(const Flight& flight, const absl::Status& status) {
  busy_ = false;
  if (status.ok()) {
    marked_ = flight.position;
  } else {
    wanted_ = marked_;
  }
  Begin();
}

}  // namespace forebay::storage
