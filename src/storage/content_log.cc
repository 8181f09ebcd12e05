#include "storage/content_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/content_record.h"

namespace forebay::storage {
namespace {

LogOptions Named(LogOptions options) {
  options.name = kContentsMachine;
  return options;
}

}  // namespace

absl::StatusOr<RecoveredLog> RecoverContents(Blocking disk, const std::string& directory,
                                             ContentStore* store) {
  const auto broken = [&directory](absl::string_view what) {
    return absl::DataLossError(absl::StrCat("the task contents in ", directory, ": ", what));
  };
  LogSink sink;
  sink.begin_snapshot = [&](LogPosition) { return broken("a snapshot does not belong there"); };
  sink.chunk = [](std::string_view) { return absl::OkStatus(); };
  sink.end_snapshot = [] { return absl::OkStatus(); };
  sink.record = [&](LogPosition position, std::string_view record) {
    PayloadId id;
    std::string_view item;
    if (!DecodeContentRecord(record, &id, &item)) {
      return broken(absl::StrCat("record ", position.value, " is whole, and has no id"));
    }
    return store->Restore(id, item);
  };
  return RecoverLog(std::move(disk), directory, kContentsMachine, sink);
}

ContentLog::ContentLog(io::Disk* disk, LogOptions options, const RecoveredLog& recovered,
                       ContentStore* store, LogPost post,
                       std::function<void(absl::Status)> on_failed)
    : store_(store),
      on_failed_(std::move(on_failed)),
      appended_(recovered.next.value - 1),
      writer_(disk, Named(std::move(options)), recovered.next, recovered.file_number,
              std::move(post),
              LogEvents{[this] { OnDurable(); },
                        [this](absl::Status status) { OnFailed(std::move(status)); }}) {}

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
