// What the files of a replica's log hold: each record is an operation on the log of entries, since
// a backup may have to take entries back. docs/formats/replica-log.md has the bytes.
//
// Values and pure functions; not thread-safe. Entries are counted by their positions in the
// machine's history, records by theirs in the files.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "replication/output.h"

namespace forebay::node {

// Where in the files the entries are that a snapshot does not hold.
class EntryPlaces {
 public:
  explicit EntryPlaces(LogPosition base = {}) : base_(base) {}
  void Append(LogPosition entry, LogPosition record);
  void TruncateFrom(LogPosition entry);
  // A snapshot holds everything up to this entry.
  void Forget(LogPosition entry);
  // The last record that a snapshot of everything up to `entry` stands for, if the files end with
  // `last`: what follows `entry` comes after it.
  LogPosition RecordOf(LogPosition entry, LogPosition last) const;
  LogPosition last_entry() const { return LogPosition(base_.value + records_.size()); }

 private:
  LogPosition base_;
  std::deque<LogPosition> records_;  // of the entries after base_
};

// Appends the record of what a replica asks to be written.
void EncodeLogWrite(const replication::LogWrite& write, std::string* record);
// DataLoss, saying what is wrong. The generation is not recorded.
absl::StatusOr<replication::LogWrite> DecodeLogWrite(std::string_view record);

// What snapshot and records of a start come to.
class ReplicaRecovery {
 public:
  // There is a snapshot of everything up to `base`; before any record.
  void Begin(replication::LogPlace base);
  // DataLoss if the record says what cannot be.
  absl::Status Add(LogPosition position, std::string_view record);

  const replication::Recovered& recovered() const { return recovered_; }
  replication::Recovered Take() { return std::move(recovered_); }
  const EntryPlaces& places() const { return places_; }

 private:
  replication::Recovered recovered_;
  EntryPlaces places_;
};

// Before the state in a snapshot.
inline constexpr size_t kSnapshotHeadBytes = 17;
std::string EncodeSnapshotHead(replication::LogPlace base);
// Takes it off the front. DataLoss if it is none.
absl::Status DecodeSnapshotHead(std::string_view* bytes, replication::LogPlace* base);

// The file "replica" beside a log: whose log it is.
struct ReplicaIdentity {
  uint32_t node = 0;
  uint64_t incarnation = 0;
  uint64_t kept_since = 0;
};
inline constexpr char kReplicaFileName[] = "replica";
std::string EncodeReplicaIdentity(const ReplicaIdentity& identity);
absl::Status DecodeReplicaIdentity(std::string_view text, ReplicaIdentity* identity);

}  // namespace forebay::node
