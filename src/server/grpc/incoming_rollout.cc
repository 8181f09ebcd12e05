#include "server/grpc/incoming_rollout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::server {
namespace {

shard::RolloutStatus StatusOf(uint32_t wire) {
  switch (static_cast<codec::WireRolloutStatus>(wire)) {
    case codec::WireRolloutStatus::kTruncated:
      return shard::RolloutStatus::kTruncated;
    case codec::WireRolloutStatus::kAborted:
      return shard::RolloutStatus::kAborted;
    default:
      return shard::RolloutStatus::kFinished;
  }
}

void FillSequence(const codec::RolloutHeader& header, const codec::HeaderSequence& from,
                  shard::SequenceMeta* to) {
  to->tokens = from.tokens;
  to->prompt_tokens = from.prompt_tokens;
  to->loss_tokens = from.loss_tokens;
  to->advantage = from.advantage;
  const auto runs = header.versions(from);
  to->versions.reserve(runs.size());
  for (const codec::HeaderVersionRun& run : runs) {
    to->versions.push_back({run.offset, {run.branch, run.number}, run.loss_tokens});
  }
}

}  // namespace

void IncomingRollouts::Begin(std::shared_ptr<const codec::NameTable> names) {
  Clear();
  names_ = std::move(names);
}

void IncomingRollouts::Clear() {
  entries_.clear();
  columns_.clear();
  rewards_.clear();
  unreserved_ = 0;
  first_attempt_ = 0;
  left_ = 0;
  next_ = 0;
  rollout_left_ = 0;
}

codec::FieldError IncomingRollouts::Add(std::string_view header, const codec::HeaderRules& rules,
                                        const storage::PayloadBudget& budget) {
  codec::FieldError error;
  if (!codec::DecodeRolloutHeader(header, &header_, &error)) return error;
  const uint64_t payload = header_.payload_bytes();
  if (payload == UINT64_MAX || __builtin_add_overflow(left_, payload, &left_)) {
    return {"columns", "add up to more than 2^64 bytes"};
  }
  Entry& entry = entries_.emplace_back();
  entry.pushed.meta.lease = {AttemptId(header_.attempt_id), header_.token};
  entry.payload_bytes = payload;
  entry.error = codec::CheckRolloutHeader(header_, header.size(), rules);
  if (!entry.error.ok()) return {};
  const uint64_t footprint = storage::PayloadBuilder::Footprint(header.size() + payload);
  if (!budget.CanEverFit(unreserved_ + footprint)) {
    Refuse(entry, {"bytes", absl::StrCat("takes ", footprint, " bytes of memory beside the ",
                                         unreserved_, " of its frame, more than there ever are")});
    return {};
  }
  if (unreserved_ == 0) first_attempt_ = header_.attempt_id;
  unreserved_ += footprint;
  Plan(payload, header, &entry);
  return {};
}

void IncomingRollouts::Plan(uint64_t payload_bytes, std::string_view header, Entry* entry) {
  entry->header = header;
  shard::RolloutMeta& meta = entry->pushed.meta;
  meta.status = StatusOf(header_.status);
  meta.partial = header_.partial;
  meta.payload_bytes = header.size() + payload_bytes;
  meta.duration_ms = header_.duration_ms;
  FillSequence(header_, header_.sequences[0], &meta.first);
  meta.more.resize(header_.sequences.size() - 1);
  for (size_t i = 1; i < header_.sequences.size(); ++i) {
    FillSequence(header_, header_.sequences[i], &meta.more[i - 1]);
  }
  entry->pushed.column_bits = names_->ColumnBits(header_);
  entry->pushed.rewards.begin = static_cast<uint32_t>(rewards_.size());
  names_->Rewards(header_, &rewards_);
  entry->pushed.rewards.count =
      static_cast<uint32_t>(rewards_.size()) - entry->pushed.rewards.begin;
  entry->columns = {static_cast<uint32_t>(columns_.size()),
                    static_cast<uint32_t>(header_.columns.size())};
  for (const codec::HeaderColumn& column : header_.columns) {
    columns_.push_back({column.bytes, column.crc32c});
  }
}

void IncomingRollouts::Refuse(Entry& entry, codec::FieldError error) {
  entry.error = std::move(error);
  entry.builder = {};  // gives its memory back
}

void IncomingRollouts::Start(Entry& entry, storage::PayloadBudget* budget) {
  if (std::exchange(entry.started, true) || !entry.error.ok()) return;
  entry.builder = storage::PayloadBuilder(budget, entry.header.size() + entry.payload_bytes);
  entry.builder.AppendHeader(entry.header);
}

void IncomingRollouts::EndColumns(Entry& entry) {
  while (column_left_ == 0 && column_ < entry.columns.count) {
    const Column& column = columns_[entry.columns.begin + column_];
    if (column.crc32c.has_value() && *column.crc32c != crc_) {
      Refuse(entry, {absl::StrCat("columns[", column_, "].crc32c"),
                     absl::StrCat("is ", absl::Hex(*column.crc32c), ", the bytes have ",
                                  absl::Hex(crc_))});
      return;
    }
    crc_ = 0;
    if (++column_ < entry.columns.count) {
      column_left_ = columns_[entry.columns.begin + column_].bytes;
    }
  }
}

uint64_t IncomingRollouts::FillOne(Entry& entry, std::string_view piece) {
  if (!entry.error.ok()) return piece.size();
  const uint64_t size = std::min<uint64_t>(piece.size(), column_left_);
  crc_ = entry.builder.Append(piece.substr(0, size), crc_);
  column_left_ -= size;
  EndColumns(entry);
  return size;
}

void IncomingRollouts::Fill(absl::Span<const std::string_view> payload,
                            storage::PayloadBudget* budget) {
  size_t slice = 0;
  std::string_view piece = payload.empty() ? std::string_view() : payload[0];
  while (next_ < entries_.size()) {
    Entry& entry = entries_[next_];
    if (rollout_left_ == 0) {  // its first bytes
      Start(entry, budget);
      rollout_left_ = entry.payload_bytes;
      column_ = 0;
      crc_ = 0;
      column_left_ =
          entry.error.ok() && entry.columns.count > 0 ? columns_[entry.columns.begin].bytes : 0;
      if (entry.error.ok()) EndColumns(entry);
    }
    while (rollout_left_ > 0 && slice < payload.size()) {
      const auto part = static_cast<size_t>(std::min<uint64_t>(piece.size(), rollout_left_));
      const uint64_t taken = FillOne(entry, piece.substr(0, part));
      piece.remove_prefix(taken);
      rollout_left_ -= taken;
      left_ -= taken;
      if (piece.empty() && ++slice < payload.size()) piece = payload[slice];
    }
    if (rollout_left_ > 0) break;  // goes on in the next frame
    ++next_;
  }
  // What goes on later begins now: its header lies in this frame.
  for (uint32_t i = next_; i < entries_.size() && !entries_.back().started; ++i) {
    Start(entries_[i], budget);
  }
}

bool IncomingRollouts::Refused(uint32_t index, RefusedRollout* refused) const {
  const Entry& entry = entries_[index];
  if (entry.error.ok()) return false;
  *refused = {.index = index,
              .attempt_id = entry.pushed.meta.lease.attempt.value,
              .result = shard::PushResult::kInvalid,
              .error = entry.error};
  return true;
}

storage::PayloadBuilder IncomingRollouts::Take(uint32_t index, PushBatch* batch) {
  Entry& entry = entries_[index];
  FOREBAY_CHECK(index < next_ && entry.error.ok());
  const codec::Range from = entry.pushed.rewards;
  entry.pushed.rewards.begin = static_cast<uint32_t>(batch->rewards.size());
  batch->rewards.insert(batch->rewards.end(), rewards_.begin() + from.begin,
                        rewards_.begin() + from.begin + from.count);
  batch->rollouts.push_back(std::move(entry.pushed));
  return std::move(entry.builder);
}

void IncomingRollouts::RefuseAllIfAny() {
  const auto wrong = std::find_if(entries_.begin(), entries_.end(),
                                  [](const Entry& entry) { return !entry.error.ok(); });
  if (wrong == entries_.end()) return;
  const auto at = wrong - entries_.begin();
  for (Entry& entry : entries_) {
    if (!entry.error.ok()) continue;
    Refuse(entry, {"group", absl::StrCat("rollouts[", at, "] is refused")});
  }
  unreserved_ = 0;  // nothing of the group was begun, or all of it is given back
}

}  // namespace forebay::server
