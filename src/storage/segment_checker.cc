#include "storage/segment_checker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"

namespace forebay::storage {

SegmentChecker::SegmentChecker(io::Disk* disk, const SegmentStoreOptions& options,
                               std::shared_ptr<SegmentTable> table)
    : disk_(disk), direct_(options.direct), table_(std::move(table)) {}

void SegmentChecker::Check(const LiveRecord& record, io::Disk::Done done) {
  head_ = record.head;
  payload_ = record.payload;
  done_ = std::move(done);
  again_ = false;
  Begin();
}

void SegmentChecker::Begin() {
  read_ = 0;
  crc_ = 0;
  const uint32_t number = PlaceOf(head_.id).segment;
  const auto file = table_->FileOf(number);
  if (!file.ok()) return Answer(file.status());
  path_ = file->path;
  if (file_ != nullptr && file_number_ == number && !again_) return ReadNext();
  disk_->Open(path_, {.mode = io::OpenMode::kRead, .direct = direct_},
              [self = shared_from_this(), number](absl::StatusOr<io::FileRef> opened) {
                if (!opened.ok()) return self->Wrong(std::string(opened.status().message()));
                self->file_ = *std::move(opened);
                self->file_number_ = number;
                self->ReadNext();
              });
}

void SegmentChecker::ReadNext() {
  // Whole pages, so that direct access takes it.
  const uint64_t at = PlaceOf(head_.id).offset + read_;
  const uint64_t begin = at / kSegmentPage * kSegmentPage;
  const uint64_t end =
      RoundUp(PlaceOf(head_.id).offset + kRecordHeadBytes + head_.bytes, kSegmentPage);
  const auto size = static_cast<size_t>(std::min(end - begin, kBufferBytes));
  disk_->Read(file_, begin, {buffer_.data(), size},
              [self = shared_from_this(), skip = at - begin](absl::StatusOr<size_t> bytes) {
                if (!bytes.ok()) return self->Wrong(std::string(bytes.status().message()));
                if (*bytes <= skip) return self->Wrong("the file ends within the record");
                self->Take({self->buffer_.data() + skip, *bytes - skip});
              });
}

void SegmentChecker::Take(std::string_view bytes) {
  if (read_ == 0) {
    const auto head = DecodeRecordHead(bytes);
    if (!head.ok()) return Wrong(std::string(head.status().message()));
    if (!(*head == head_)) return Wrong("record head: of another payload");
    bytes.remove_prefix(kRecordHeadBytes);
    read_ = kRecordHeadBytes;
  }
  bytes = bytes.substr(0, kRecordHeadBytes + head_.bytes - read_);
  crc_ = Crc32c(bytes, crc_);
  read_ += bytes.size();
  if (read_ < kRecordHeadBytes + head_.bytes) return ReadNext();
  if (crc_ == head_.crc) return Answer(absl::OkStatus());
  Wrong(absl::StrCat("crc ", absl::Hex(crc_, absl::kZeroPad8), " of the bytes, ",
                     absl::Hex(head_.crc, absl::kZeroPad8), " expected"));
}

void SegmentChecker::Wrong(std::string why) {
  if (!std::exchange(again_, true)) return Begin();
  if (!table_->Holds(head_.id)) {
    return Answer(absl::NotFoundError(
        absl::StrCat("payload ", absl::Hex(payload_.value), " was freed while it was read")));
  }
  Answer(absl::DataLossError(DamageText(path_, head_.id, payload_, why)));
}

void SegmentChecker::Answer(absl::Status status) {
  std::exchange(done_, nullptr)(std::move(status));
}

}  // namespace forebay::storage
