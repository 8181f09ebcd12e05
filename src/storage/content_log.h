// Makes a ContentStore durable: what is added is written to a log of its own and comes back to the
// same ids at the next start. docs/formats/contents.md has the bytes.
//
// Lives in its owner's loop, as LogWriter does (log_writer.h), with the same `post`; not
// thread-safe, while the store is read from any thread. It may go at any moment, but not from
// within a callback of its own. Nobody else adds to the store. What is dead stays in the files
// until a start at which it is more than half of them: then a snapshot holds what is live.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "io/disk.h"
#include "storage/content_store.h"
#include "storage/log_mark.h"
#include "storage/log_recovery.h"
#include "storage/log_writer.h"
#include "storage/snapshot_writer.h"

namespace forebay::storage {

// The name of the log's files, LogOptions::name.
inline constexpr char kContentsMachine[] = "contents";

struct RecoveredContents {
  RecoveredLog log;
  std::vector<PayloadId> live;  // ascending
  uint64_t live_bytes = 0, dead_bytes = 0;
  // Worth a ContentLog::Compact.
  bool half_dead() const { return dead_bytes > live_bytes; }
};

// Fills an empty store from the files, with the items of `named`: what else is there is dead, and
// its ids do not come again. Blocks; errors are those of RecoverLog and of the store, and DataLoss
// if an item that is named is not there.
absl::StatusOr<RecoveredContents> RecoverContents(Blocking disk, const std::string& directory,
                                                  std::vector<PayloadId> named,
                                                  ContentStore* store);

class ContentLog {
 public:
  // `recovered`: what RecoverContents said of the same store's log. `on_failed`: see LogEvents.
  // LogOptions::name is set here. `encode`: see SnapshotWriter.
  ContentLog(io::Disk* disk, LogOptions options, const RecoveredLog& recovered, ContentStore* store,
             LogPost post, LogPost encode, std::function<void(absl::Status)> on_failed);

  // The ids, one an item, once all of them are durable; else what ContentStore::Add said, before
  // this returns, or Unavailable when the log has failed. Answers come in the order of the calls,
  // but for refusals.
  using Done = absl::AnyInvocable<void(absl::StatusOr<std::vector<PayloadId>>)>;
  void Add(absl::Span<const std::string_view> items, Done done);
  // At once after the start: writes a snapshot of these items, which are all that was recovered,
  // and lets go of the log before the one that was there; should the new one be damaged, that one
  // and the log from it on, or the whole log, have everything. One that fails changes nothing.
  void Compact(std::vector<PayloadId> live);
  bool compacting() const { return snapshots_.busy(); }

  // As node::Log's.
  void Look(absl::AnyInvocable<void()> done) {
    writer_.LookForFile();
    marker_.Mark(writer_.durable(), std::move(done));
  }

  // As LogWriter's.
  uint64_t pending_bytes() const { return writer_.pending_bytes(); }
  bool full() const { return writer_.full(); }
  const LogWriter::Use& use() const { return writer_.use(); }

 private:
  struct Waiting {
    LogPosition last;  // of its items
    std::vector<PayloadId> ids;
    Done done;
  };
  void OnDurable();
  void OnFailed(absl::Status status);
  void Refuse(Waiting waiting);

  ContentStore* const store_;
  const std::function<void(absl::Status)> on_failed_;
  LogPosition appended_;
  std::deque<Waiting> waiting_;
  std::string record_;  // keeps its memory
  LogWriter writer_;
  SnapshotWriter snapshots_;
  LogMarker marker_;
};

}  // namespace forebay::storage
