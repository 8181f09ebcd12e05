#include "storage/segment_recovery.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sync.h"
#include "storage/segment_batch.h"

namespace forebay::storage {
namespace {

constexpr size_t kSegmentsAtOnce = 16;
// Record heads that lie close together are read at once.
constexpr uint64_t kHeadsBytesMax = uint64_t{1} << 20;
constexpr uint64_t kHeadsGapMax = uint64_t{64} << 10;

// Reads one segment: header, trailer, index, and what heads are still missing.
class SegmentLook : public std::enable_shared_from_this<SegmentLook> {
 public:
  SegmentLook(io::Disk* disk, const SegmentStoreOptions& options, Part part, SegmentName name,
              std::string path, uint64_t file_bytes, std::vector<PayloadId> ids)
      : path(std::move(path)),
        file_bytes(file_bytes / kSegmentPage * kSegmentPage),
        name(std::move(name)),
        part(part),
        disk_(disk),
        direct_(options.direct),
        cluster_(options.cluster),
        ids_(std::move(ids)) {}

  // Calls `done` with an error that says nothing of the payloads, or when found and lost are known.
  void Run(io::Disk::Done done) {
    done_ = std::move(done);
    disk_->Open(path, {.mode = io::OpenMode::kRead, .direct = direct_},
                [self = shared_from_this()](absl::StatusOr<io::FileRef> file) {
                  if (!file.ok()) return self->Failed(file.status());
                  self->file_ = *std::move(file);
                  self->ReadHeader();
                });
  }

  const std::string path;
  const uint64_t file_bytes;
  const SegmentName name;
  const Part part;
  std::vector<RecordHead> found;
  std::vector<LostPayload> lost;
  bool sealed = false;

 private:
  using Then = void (SegmentLook::*)(std::string_view bytes);
  static constexpr int kHeaderReads = 3;

  // Whole pages around [offset, offset + bytes); `then` gets exactly those, or fewer at the end.
  void Read(uint64_t offset, uint64_t bytes, Then then) {
    const uint64_t begin = offset / kSegmentPage * kSegmentPage;
    const uint64_t end = RoundUp(offset + bytes, kSegmentPage);
    auto buffer = std::make_shared<WriteBuffer>(end - begin);
    disk_->Read(file_, begin, {buffer->data(), buffer->size()},
                [self = shared_from_this(), buffer, skip = offset - begin, bytes,
                 then](absl::StatusOr<size_t> read) {
                  if (!read.ok()) return self->Failed(read.status());
                  std::string_view all(buffer->data(), *read);
                  all.remove_prefix(std::min<size_t>(skip, all.size()));
                  (self.get()->*then)(all.substr(0, bytes));
                });
  }

  // Whoever is called may hold this.
  void Answer(const absl::Status& status) { std::exchange(done_, nullptr)(status); }

  void Failed(const absl::Status& status) {
    if (io::ErrorOf(status) != ENOENT) return Answer(status);
    LoseAll(status.message());
  }

  void LoseAll(absl::string_view why) {
    for (const PayloadId id : ids_) lost.push_back({id, std::string(why)});
    Answer(absl::OkStatus());
  }

  void ReadHeader() { Read(0, kSegmentPage, &SegmentLook::TakeHeader); }

  void TakeHeader(std::string_view bytes) {
    const auto header = DecodeSegmentHeader(bytes);
    // Of a later version: who wrote it can read it.
    if (absl::IsUnimplemented(header.status())) {
      return Answer(absl::UnimplementedError(absl::StrCat(path, ": ", header.status().message())));
    }
    // All its payloads hang on this page: a bit that flipped on the way is not there the next time.
    if (!header.ok() && ++header_reads_ < kHeaderReads) return ReadHeader();
    if (!header.ok()) return LoseAll(absl::StrCat(path, ": ", header.status().message()));
    if (!(header->name == name) || header->cluster != cluster_) {
      return LoseAll(absl::StrCat(path, ": the header is of cluster '", header->cluster, "', file ",
                                  FileNameOf(header->name)));
    }
    if (header->part != part) {
      return LoseAll(absl::StrCat(path, ": holds ", part == Part::kHot ? "cold" : "hot",
                                  " parts of payloads, must hold the other ones"));
    }
    nonce_ = header->nonce;
    Read(file_bytes - kSegmentTrailerBytes, kSegmentTrailerBytes, &SegmentLook::TakeTrailer);
  }

  void TakeTrailer(std::string_view bytes) {
    const auto trailer = DecodeSegmentTrailer(bytes, file_bytes);
    if (!trailer.ok() || trailer->nonce != nonce_) return NextHead();
    trailer_ = *trailer;
    Read(trailer_.index_offset, trailer_.index_bytes(), &SegmentLook::TakeIndex);
  }

  void TakeIndex(std::string_view bytes) {
    auto index = DecodeSegmentIndex(bytes, trailer_, name.number);
    if (index.ok()) {
      sealed = true;
      index_ = std::move(index->records);
    }
    NextHead();
  }

  const RecordHead* InIndex(PayloadId id) const {
    const auto known =
        std::lower_bound(index_.begin(), index_.end(), id,
                         [](const RecordHead& head, PayloadId wanted) { return head.id < wanted; });
    return known == index_.end() || known->id != id ? nullptr : &*known;
  }

  // Both are in order of offset.
  void NextHead() {
    while (next_ < ids_.size()) {
      const RecordHead* const known = InIndex(ids_[next_]);
      if (known == nullptr) return ReadHeads();
      Found(*known);
      ++next_;
    }
    Answer(absl::OkStatus());
  }

  // That of the next payload, and of those after it that are not far.
  void ReadHeads() {
    const uint64_t begin = PlaceOf(ids_[next_]).offset;
    uint64_t end = begin + kRecordHeadBytes;
    heads_end_ = next_ + 1;
    for (; heads_end_ < ids_.size(); ++heads_end_) {
      const uint64_t offset = PlaceOf(ids_[heads_end_]).offset;
      const bool near =
          offset < end + kHeadsGapMax && offset + kRecordHeadBytes <= begin + kHeadsBytesMax;
      if (!near || InIndex(ids_[heads_end_]) != nullptr) break;
      end = std::max(end, offset + kRecordHeadBytes);
    }
    Read(begin, end - begin, &SegmentLook::TakeHeads);
  }

  void TakeHeads(std::string_view bytes) {
    const uint64_t begin = PlaceOf(ids_[next_]).offset;
    for (; next_ < heads_end_; ++next_) {
      const uint64_t at = PlaceOf(ids_[next_]).offset - begin;
      TakeHead(ids_[next_], at < bytes.size() ? bytes.substr(at, kRecordHeadBytes) : "");
    }
    NextHead();
  }

  void TakeHead(PayloadId id, std::string_view bytes) {
    const auto head = DecodeRecordHead(bytes);
    if (!head.ok()) {
      Lose(id, head.status().message());
    } else if (head->id != id) {
      Lose(id, "record head: of another payload");
    } else if (PlaceOf(id).offset + kRecordHeadBytes + head->bytes > file_bytes) {
      Lose(id, "the file ends before the record");
    } else {
      Found(*head);
    }
  }

  void Found(const RecordHead& head) {
    if (part == Part::kCold && head.cold != PayloadId()) {
      return Lose(head.id, "record head: a cold part that names another one");
    }
    found.push_back(head);
  }

  void Lose(PayloadId id, absl::string_view why) {
    lost.push_back({id, absl::StrCat(path, " at offset ", PlaceOf(id).offset, ": ", why)});
  }

  io::Disk* const disk_;
  const bool direct_;
  const std::string cluster_;
  const std::vector<PayloadId> ids_;
  io::Disk::Done done_;
  io::FileRef file_;
  uint64_t nonce_ = 0;
  int header_reads_ = 0;
  SegmentTrailer trailer_;
  std::vector<RecordHead> index_;
  size_t next_ = 0;       // of ids_
  size_t heads_end_ = 0;  // one past the last whose head is being read
};

class Recovery : public std::enable_shared_from_this<Recovery> {
 public:
  Recovery(io::Disk* disk, const SegmentStoreOptions& options, std::string folder,
           std::shared_ptr<SegmentTable> table, std::vector<PayloadId> live,
           io::Disk::DoneWith<StoreRecovery> done)
      : disk_(disk),
        options_(options),
        folder_(std::move(folder)),
        table_(std::move(table)),
        done_(std::move(done)) {
    std::sort(live.begin(), live.end());
    live.erase(std::unique(live.begin(), live.end()), live.end());
    for (const PayloadId id : live) {
      if (id.value != 0) live_[PlaceOf(id).segment].push_back(id);
    }
  }

  void Run() {
    if (live_.empty()) return MakeFolder();
    disk_->List(folder_, [self = shared_from_this()](auto files) {
      if (files.ok()) return self->MakeFolder();
      if (io::ErrorOf(files.status()) != ENOENT) return self->done_(files.status());
      uint64_t payloads = 0;
      for (const auto& [number, ids] : self->live_) payloads += ids.size();
      self->done_(absl::DataLossError(absl::StrCat(
          self->folder_, " is not there, and ", payloads, " payloads of the run lie in it: is its ",
          "file system mounted? Bring it back; or make an empty folder of that name, and the run ",
          "goes on without them. Nothing was changed")));
    });
  }

 private:
  void MakeFolder() {
    disk_->MakeDirectory(folder_, [self = shared_from_this()](const absl::Status& status) {
      if (!status.ok()) return self->done_(status);
      self->SyncDirectory();
    });
  }

  // What is listed shall be what a power loss leaves.
  void SyncDirectory() {
    disk_->SyncDirectory(folder_, [self = shared_from_this()](const absl::Status& status) {
      if (!status.ok()) return self->done_(status);
      self->disk_->List(self->folder_, [self](auto files) {
        if (!files.ok()) return self->done_(files.status());
        self->Sort(*files);
        self->Begin();
      });
    });
  }

  void Sort(const std::vector<io::Entry>& files) {
    for (const io::Entry& file : files) {
      const auto name = ParseSegmentFileName(file.name);
      if (!name.has_value() || name->node != options_.node) continue;
      result_.last_number = std::max(result_.last_number, name->number);
      File found{*name, absl::StrCat(folder_, "/", file.name), file.bytes};
      const auto [other, fresh] = others_.emplace(name->number, found);
      if (fresh || other->second.name.epoch == name->epoch) continue;
      // A writer whose reign was over wrote on, and could acknowledge nothing of it: of two files
      // with one number that of the later reign counts.
      if (other->second.name.epoch < name->epoch) std::swap(other->second, found);
      disk_->Unlink(found.path, [](const absl::Status&) {});  // else the next recovery does it
    }
    for (auto& [number, ids] : live_) {
      if (LookAt(Part::kHot, number, &ids)) continue;
      for (const PayloadId id : ids) {
        result_.lost.push_back({id, absl::StrCat("segment ", number, " is not in ", folder_)});
      }
    }
  }

  // False if the file is not there.
  bool LookAt(Part part, uint32_t number, std::vector<PayloadId>* ids) {
    result_.last_number = std::max(result_.last_number, number);
    const auto file = others_.find(number);
    if (file == others_.end()) return false;
    ++result_.segments;
    planned_.push_back(std::make_shared<SegmentLook>(disk_, options_, part, file->second.name,
                                                     file->second.path, file->second.bytes,
                                                     std::move(*ids)));
    others_.erase(file);
    return true;
  }

  void Begin() {
    {
      MutexLock lock(&mutex_);
      looks_ = std::exchange(planned_, {});
      ended_ = false;
    }
    Next();
  }

  // Starts what may be started; the last one to end goes on.
  void Next() {
    std::vector<std::shared_ptr<SegmentLook>> start;
    bool ended = false;
    {
      MutexLock lock(&mutex_);
      while (!looks_.empty() && running_ < kSegmentsAtOnce && status_.ok()) {
        start.push_back(std::move(looks_.front()));
        looks_.pop_front();
        ++running_;
      }
      ended = running_ == 0 && !std::exchange(ended_, true);
    }
    if (ended) return PartEnded();
    for (const auto& look : start) {
      look->Run([self = shared_from_this(), look](const absl::Status& status) {
        self->Ended(*look, status);
      });
    }
  }

  void Ended(SegmentLook& look, const absl::Status& status) {
    {
      MutexLock lock(&mutex_);
      --running_;
      if (!status.ok()) {
        status_ = status;
      } else {
        result_.unsealed += look.sealed ? 0 : 1;
        for (const LostPayload& lost : look.lost) {
          look.part == Part::kHot ? result_.lost.push_back(lost)
                                  : LosePayload(owners_.at(lost.id), lost.why);
        }
        // Of a file that lost all its payloads nothing is touched: somebody may want to look.
        if (!look.found.empty()) {
          restored_.push_back(
              {look.name.number, look.part, look.path, look.file_bytes, std::move(look.found)});
        }
      }
    }
    Next();
  }

  void LosePayload(PayloadId hot, const std::string& why) {
    result_.lost.push_back({hot, absl::StrCat("its cold columns: ", why)});
    broken_.insert(hot);
  }

  // The hot parts are known, then the cold ones.
  void PartEnded() {
    if (!status_.ok()) return done_(status_);
    if (std::exchange(cold_, true)) return Finish();
    std::map<uint32_t, std::vector<PayloadId>> named;
    for (const Restored& segment : restored_) {
      for (const RecordHead& head : segment.live) {
        if (head.cold == PayloadId()) continue;
        if (!owners_.emplace(head.cold, head.id).second) {
          LosePayload(head.id, "another payload names them");
        }
      }
    }
    for (const auto& [cold, hot] : owners_) named[PlaceOf(cold).segment].push_back(cold);
    for (auto& [number, ids] : named) {
      if (LookAt(Part::kCold, number, &ids)) continue;
      for (const PayloadId cold : ids) {
        LosePayload(owners_.at(cold), absl::StrCat("segment ", number, " is not in ", folder_));
      }
    }
    Begin();
  }

  // The table changes only when all is known, so that a recovery that failed may be repeated.
  void Finish() {
    for (Restored& segment : restored_) {
      std::erase_if(segment.live,
                    [this](const RecordHead& head) { return broken_.contains(head.id); });
      for (const RecordHead& head : segment.live) {
        result_.payloads += segment.part == Part::kHot ? 1 : 0;
        result_.payload_bytes += head.bytes;
      }
    }
    std::erase_if(restored_, [](const Restored& segment) { return segment.live.empty(); });
    result_.dead_segments = others_.size();
    for (const auto& [number, file] : others_) {
      restored_.push_back({number, Part::kHot, file.path, file.bytes, {}});
    }
    for (const Part part : {Part::kCold, Part::kHot}) {
      for (Restored& segment : restored_) {
        if (segment.part != part) continue;
        table_->Restore(segment.number, part, std::move(segment.path), segment.file_bytes,
                        segment.live, options_.now_ms());
      }
    }
    done_(std::move(result_));
  }

  struct File {
    SegmentName name;
    std::string path;
    uint64_t bytes = 0;
  };
  struct Restored {
    uint32_t number;
    Part part;
    std::string path;
    uint64_t file_bytes;
    std::vector<RecordHead> live;
  };

  io::Disk* const disk_;
  const SegmentStoreOptions options_;
  const std::string folder_;
  const std::shared_ptr<SegmentTable> table_;
  io::Disk::DoneWith<StoreRecovery> done_;
  std::map<uint32_t, std::vector<PayloadId>> live_;
  // Who goes on has these to himself.
  std::map<uint32_t, File> others_;        // files in which nothing live is known to lie
  std::map<PayloadId, PayloadId> owners_;  // of cold parts
  bool cold_ = false;                      // the hot parts are known
  std::deque<std::shared_ptr<SegmentLook>> planned_;

  Mutex mutex_;
  std::deque<std::shared_ptr<SegmentLook>> looks_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Status status_;  // the last one to end reads them without the lock
  StoreRecovery result_;
  std::vector<Restored> restored_;
  std::set<PayloadId> broken_;  // whose cold part is lost
};

}  // namespace

void RecoverSegments(io::Disk* disk, const SegmentStoreOptions& options, std::string folder,
                     std::shared_ptr<SegmentTable> table, std::vector<PayloadId> live,
                     io::Disk::DoneWith<StoreRecovery> done) {
  std::make_shared<Recovery>(disk, options, std::move(folder), std::move(table), std::move(live),
                             std::move(done))
      ->Run();
}

}  // namespace forebay::storage
