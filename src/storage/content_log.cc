#include "storage/content_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "storage/content_record.h"

namespace forebay::storage {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

LogOptions Named(LogOptions options) {
  options.name = kContentsMachine;
  return options;
}

absl::Status Broken(const std::string& directory, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the task contents in ", directory, ": ", what));
}

// Which items are live: those of a sorted list. Items come nearly in the order of their ids.
class Live {
 public:
  explicit Live(std::vector<PayloadId> named) : ids_(std::move(named)) {
    std::sort(ids_.begin(), ids_.end());
    ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  }
  bool Contains(PayloadId id) {
    if (next_ == ids_.size() || ids_[next_] != id) {
      next_ = static_cast<size_t>(std::lower_bound(ids_.begin(), ids_.end(), id) - ids_.begin());
      if (next_ == ids_.size() || ids_[next_] != id) return false;
    }
    ++next_;
    return true;
  }
  size_t size() const { return ids_.size(); }
  std::vector<PayloadId> Take() { return std::move(ids_); }

 private:
  std::vector<PayloadId> ids_;
  size_t next_ = 0;
};

// Where the log's bytes go at a start.
class Restoration {
 public:
  Restoration(std::string directory, std::vector<PayloadId> named, ContentStore* store)
      : directory_(std::move(directory)), live_(std::move(named)), store_(store) {}

  absl::StatusOr<RecoveredContents> Run(Blocking disk) {
    LogSink sink;
    sink.begin_snapshot = [](LogPosition, uint64_t) { return absl::OkStatus(); };
    sink.chunk = [this](std::string_view chunk) { return TakeChunk(chunk); };
    sink.end_snapshot = [this] {
      return unread_.empty() ? absl::OkStatus() : Broken(directory_, "a snapshot ends in an item");
    };
    sink.record = [this](LogPosition position, std::string_view record) {
      return TakeRecord(position, record);
    };
    // What is named was synced, so where it ends too early, that is no torn tail.
    sink.before_cut = [this](std::string_view torn) {
      return Whole(absl::StrCat(" (", std::string(torn), ")"));
    };
    auto log = RecoverLog(std::move(disk), directory_, kContentsMachine, sink);
    if (!log.ok()) return log.status();
    result_.log = *std::move(log);
    FOREBAY_RETURN_IF_ERROR(Whole(""));
    result_.live = live_.Take();
    return std::move(result_);
  }

 private:
  absl::Status Whole(absl::string_view torn) const {
    if (found_ == live_.size()) return absl::OkStatus();
    return Broken(directory_,
                  absl::StrCat(live_.size() - found_, " of the ", live_.size(),
                               " that the run has are missing", torn,
                               ". Nothing was changed. Check the disk, and bring the files "
                               "back from a copy"));
  }

  absl::Status TakeRecord(LogPosition position, std::string_view record) {
    PayloadId id;
    std::string_view item;
    if (!DecodeContentRecord(record, &id, &item)) {
      return Broken(directory_,
                    absl::StrCat("record ", position.value, " is whole, and has no id"));
    }
    return store_->Restore(id, item, IsLive(id, item));
  }

  // A chunk may end within an item.
  absl::Status TakeChunk(std::string_view chunk) {
    unread_.append(chunk);
    std::string_view left = unread_;
    if (!end_read_) {
      ContentStore::End end;
      if (!TakeContentEnd(&left, &end)) return absl::OkStatus();
      FOREBAY_RETURN_IF_ERROR(store_->RestoreEnd(end));
      end_read_ = true;
    }
    PayloadId id;
    for (std::string_view item; TakeContentItem(&left, &id, &item);) {
      if (IsLive(id, item)) FOREBAY_RETURN_IF_ERROR(store_->RestoreAt(id, item));
    }
    unread_.erase(0, unread_.size() - left.size());
    return absl::OkStatus();
  }

  bool IsLive(PayloadId id, std::string_view item) {
    const bool live = live_.Contains(id);
    (live ? result_.live_bytes : result_.dead_bytes) += item.size();
    found_ += live ? 1 : 0;
    return live;
  }

  const std::string directory_;
  Live live_;
  ContentStore* const store_;
  RecoveredContents result_;
  size_t found_ = 0;
  bool end_read_ = false;
  std::string unread_;  // of the snapshot
};

// The end first, then the items, a piece of about kPieceBytes at a time.
class ContentPieces {
 public:
  ContentPieces(const ContentStore* store, std::vector<PayloadId> live)
      : store_(store), live_(std::move(live)) {
    AppendContentEnd(store->end(), &begun_);
  }
  bool ended() const { return begun_.empty() && next_ == live_.size(); }
  void Append(std::string* to) {
    to->append(std::exchange(begun_, {}));
    while (to->size() < kPieceBytes && next_ < live_.size()) {
      const auto item = store_->Read(live_[next_]);
      FOREBAY_CHECK(item.ok());
      AppendContentItem(live_[next_++], *item, to);
    }
  }

 private:
  const ContentStore* const store_;
  const std::vector<PayloadId> live_;
  size_t next_ = 0;
  std::string begun_;
};

SnapshotPieces SnapshotOf(const ContentStore* store, std::vector<PayloadId> live) {
  return [pieces = std::make_shared<ContentPieces>(store, std::move(live))]() -> codec::Piece {
    if (pieces->ended()) return nullptr;
    return [pieces](std::string* to) { pieces->Append(to); };
  };
}

}  // namespace

absl::StatusOr<RecoveredContents> RecoverContents(Blocking disk, const std::string& directory,
                                                  std::vector<PayloadId> named,
                                                  ContentStore* store) {
  return Restoration(directory, std::move(named), store).Run(std::move(disk));
}

ContentLog::ContentLog(io::Disk* disk, LogOptions options, const RecoveredLog& recovered,
                       ContentStore* store, LogPost post, LogPost encode,
                       std::function<void(absl::Status)> on_failed)
    : store_(store),
      on_failed_(std::move(on_failed)),
      appended_(recovered.next.value - 1),
      writer_(disk, Named(options), recovered.next, recovered.file_number, post,
              LogEvents{[this] { OnDurable(); },
                        [this](absl::Status status) { OnFailed(std::move(status)); }}),
      snapshots_(disk, Named(options), post, std::move(encode)),
      marker_(disk, Named(options), post) {}

void ContentLog::Compact(std::vector<PayloadId> live) {
  if (appended_.value == 0) return;
  FOREBAY_CHECK(appended_ == writer_.durable());
  snapshots_.Write(appended_, SnapshotOf(store_, std::move(live)),
                   [this](const absl::StatusOr<LogPosition>& keep_from) {
                     if (keep_from.ok()) writer_.TruncateBefore(*keep_from);
                   });
}

void ContentLog::Add(absl::Span<const std::string_view> items, Done done) {
  Waiting waiting{.ids = std::vector<PayloadId>(items.size()), .done = std::move(done)};
  if (!writer_.status().ok()) return Refuse(std::move(waiting));
  if (auto status = store_->Add(items, absl::MakeSpan(waiting.ids)); !status.ok()) {
    return waiting.done(std::move(status));
  }
  if (items.empty()) return waiting.done(std::move(waiting.ids));
  for (size_t i = 0; i < items.size(); ++i) {
    EncodeContentRecord(waiting.ids[i], items[i], &record_);
    ++appended_.value;
    writer_.Append(appended_, record_);
  }
  waiting.last = appended_;
  waiting_.push_back(std::move(waiting));
}

void ContentLog::OnDurable() {
  while (!waiting_.empty() && waiting_.front().last <= writer_.durable()) {
    Waiting waiting = std::move(waiting_.front());
    waiting_.pop_front();
    waiting.done(std::move(waiting.ids));
  }
}

void ContentLog::OnFailed(absl::Status status) {
  while (!waiting_.empty()) {
    Waiting waiting = std::move(waiting_.front());
    waiting_.pop_front();
    store_->Kill(waiting.ids);
    Refuse(std::move(waiting));
  }
  if (on_failed_) on_failed_(std::move(status));
}

void ContentLog::Refuse(Waiting waiting) {
  waiting.done(absl::UnavailableError(
      absl::StrCat("task contents cannot be stored: ", writer_.status().message())));
}

}  // namespace forebay::storage
