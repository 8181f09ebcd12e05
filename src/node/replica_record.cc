#include "node/replica_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "codec/archive.h"

namespace forebay::node {
namespace {

using replication::AppendEntry;
using replication::LogPlace;
using replication::RestartLog;
using replication::TruncateLog;

enum class Kind : uint8_t { kAppend = 1, kTruncate = 2, kRestart = 3 };
constexpr uint8_t kHeadVersion = 1;

absl::Status Wrong(LogPosition position, const std::string& what) {
  return absl::DataLossError(
      absl::StrCat("the replica's record at position ", position.value, " ", what));
}

}  // namespace

void EntryPlaces::Append(LogPosition entry, LogPosition record) {
  FOREBAY_CHECK(entry.value == base_.value + records_.size() + 1);
  records_.push_back(record);
}

void EntryPlaces::TruncateFrom(LogPosition entry) {
  while (base_.value + records_.size() >= entry.value && !records_.empty()) records_.pop_back();
}

void EntryPlaces::Forget(LogPosition entry) {
  while (base_ < entry && !records_.empty()) {
    records_.pop_front();
    ++base_.value;
  }
  base_ = std::max(base_, entry);
}

LogPosition EntryPlaces::RecordOf(LogPosition entry, LogPosition last) const {
  FOREBAY_CHECK(entry >= base_);
  const uint64_t index = entry.value - base_.value;
  return index < records_.size() ? LogPosition(records_[index].value - 1) : last;
}

void EncodeLogWrite(const replication::LogWrite& write, std::string* record) {
  codec::Writer writer(record);
  if (const auto* append = std::get_if<AppendEntry>(&write.what)) {
    writer(Kind::kAppend, append->position, append->entry.epoch);
    writer.Bytes(append->entry.command.data(), append->entry.command.size());
  } else if (const auto* truncate = std::get_if<TruncateLog>(&write.what)) {
    writer(Kind::kTruncate, truncate->from);
  } else {
    writer(Kind::kRestart, std::get<RestartLog>(write.what).base);
  }
}

void ReplicaRecovery::Begin(LogPlace base) {
  recovered_.base = base;
  places_ = EntryPlaces(base.position);
}

absl::StatusOr<replication::LogWrite> DecodeLogWrite(std::string_view record) {
  codec::Reader reader(record);
  Kind kind{};
  reader(kind);
  replication::LogWrite write;
  if (kind == Kind::kAppend) {
    AppendEntry append;
    reader(append.position, append.entry.epoch);
    append.entry.command = record.substr(record.size() - reader.left());
    reader.Skip(reader.left());
    write.what = std::move(append);
  } else if (kind == Kind::kTruncate) {
    TruncateLog truncate;
    reader(truncate.from);
    write.what = truncate;
  } else if (kind == Kind::kRestart) {
    RestartLog restart;
    reader(restart.base);
    write.what = restart;
  } else {
    return absl::DataLossError(absl::StrCat("is of kind ", static_cast<int>(kind)));
  }
  if (!reader.Done()) return absl::DataLossError("is cut off");
  return write;
}

absl::Status ReplicaRecovery::Add(LogPosition position, std::string_view record) {
  auto write = DecodeLogWrite(record);
  if (!write.ok()) return Wrong(position, std::string(write.status().message()));
  auto& entries = recovered_.entries;
  const uint64_t base = recovered_.base.position.value;
  if (auto* append = std::get_if<AppendEntry>(&write->what)) {
    const LogPosition at = append->position;
    // A snapshot that came of a peer holds it, though the log went on without.
    if (at.value <= base && entries.empty()) return absl::OkStatus();
    if (at.value != base + entries.size() + 1) {
      return Wrong(position, absl::StrCat("holds entry ", at.value, ", where ",
                                          base + entries.size() + 1, " follows"));
    }
    entries.push_back(std::move(append->entry));
    places_.Append(at, position);
  } else if (const auto* truncate = std::get_if<TruncateLog>(&write->what)) {
    const LogPosition from = truncate->from;
    if (from.value <= base && entries.empty()) return absl::OkStatus();  // likewise
    if (from.value <= base) return Wrong(position, "takes back what a snapshot holds");
    if (from.value - base <= entries.size()) entries.resize(from.value - base - 1);
    places_.TruncateFrom(from);
  } else {
    const LogPlace to = std::get<RestartLog>(write->what).base;
    // Its snapshot was durable before: the one that was read is that one, or a later one.
    if (to.position > recovered_.base.position) {
      return Wrong(position, absl::StrCat("goes on after a snapshot at entry ", to.position.value,
                                          ", which is not there"));
    }
  }
  return absl::OkStatus();
}

std::string EncodeSnapshotHead(LogPlace base) {
  std::string head;
  codec::Writer writer(&head);
  writer(kHeadVersion, base);
  FOREBAY_CHECK(head.size() == kSnapshotHeadBytes);
  return head;
}

absl::Status DecodeSnapshotHead(std::string_view* bytes, LogPlace* base) {
  uint8_t version = 0;
  codec::Reader reader(bytes->substr(0, kSnapshotHeadBytes));
  reader(version, *base);
  if (!reader.Done() || version != kHeadVersion) {
    return absl::DataLossError("a replica's snapshot begins with another version's head");
  }
  bytes->remove_prefix(kSnapshotHeadBytes);
  return absl::OkStatus();
}

std::string EncodeReplicaIdentity(const ReplicaIdentity& identity) {
  return absl::StrCat("node: ", identity.node, "\nincarnation: ", identity.incarnation,
                      "\nkept_since: ", identity.kept_since, "\n");
}

absl::Status DecodeReplicaIdentity(std::string_view text, ReplicaIdentity* identity) {
  *identity = {};
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n', absl::SkipEmpty())) {
    const std::vector<std::string> part = absl::StrSplit(line, ": ");
    bool known = false;
    if (part.size() == 2) {
      if (part[0] == "node") known = absl::SimpleAtoi(part[1], &identity->node);
      if (part[0] == "incarnation") known = absl::SimpleAtoi(part[1], &identity->incarnation);
      if (part[0] == "kept_since") known = absl::SimpleAtoi(part[1], &identity->kept_since);
    }
    if (!known) return absl::DataLossError(absl::StrCat("'", line, "' is no line of it"));
  }
  const bool whole = identity->node > 0 && identity->kept_since > 0 &&
                     identity->kept_since <= identity->incarnation;
  return whole ? absl::OkStatus() : absl::DataLossError("a line is missing, or 0");
}

}  // namespace forebay::node
