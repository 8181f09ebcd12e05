#include "server/grpc/incoming_rollout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"

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

void IncomingRollouts::Begin(std::shared_ptr<const codec::NameTable> names, size_t rollouts) {
  // Streams of one run have headers of the same layouts, so they share what is known of them.
  thread_local codec::HeaderDecoder decoder;
  decoder_ = &decoder;
  Clear();
  names_ = std::move(names);
  entries_.reserve(rollouts);
  payloads_.reserve(rollouts);
  metas_.reserve(rollouts);
  named_.reserve(rollouts);
  rewards_.reserve(rollouts);
}

void IncomingRollouts::Clear() {
  entries_.clear();
  payloads_.clear();
  metas_.clear();
  named_.clear();
  columns_.clear();
  rewards_.clear();
  wrong_ = 0;
  unreserved_ = 0;
  first_attempt_ = 0;
  left_ = 0;
  next_ = 0;
  rollout_left_ = 0;
}

codec::FieldError IncomingRollouts::Add(std::string_view bytes, const codec::HeaderRules& rules,
                                        const storage::PayloadBudget& budget) {
  codec::FieldError error;
  const codec::RolloutHeader* const header = decoder_->Decode(bytes, &error);
  if (header == nullptr) return error;
  const uint64_t payload = header->payload_bytes();
  if (payload == UINT64_MAX || __builtin_add_overflow(left_, payload, &left_)) {
    return {"columns", "add up to more than 2^64 bytes"};
  }
  const auto index = static_cast<uint32_t>(entries_.size());
  Entry& entry = entries_.emplace_back();
  payloads_.emplace_back();
  metas_.emplace_back().lease = {AttemptId(header->attempt_id), header->token};
  named_.emplace_back();
  entry.payload_bytes = payload;
  if (!codec::CheckRolloutHeader(*header, bytes.size(), rules, &error)) {
    Refuse(index, std::move(error));
    return {};
  }
  decoder_->Remember(bytes);
  entry.cold_bytes = ColdBytes(*header);
  const uint64_t footprint = storage::PayloadBuilder::Footprint(
      bytes.size() + payload - entry.cold_bytes, entry.cold_bytes);
  if (!budget.CanEverFit(unreserved_ + footprint)) {
    Refuse(index,
           {"bytes", absl::StrCat("takes ", footprint, " bytes of memory beside the ", unreserved_,
                                  " of its frame, at most ", budget.ordinary_max(),
                                  " (memory.payload_bytes_max but its reserve)")});
    return {};
  }
  if (unreserved_ == 0) first_attempt_ = header->attempt_id;
  unreserved_ += footprint;
  Plan(*header, bytes, &entry);
  return error;
}

uint64_t IncomingRollouts::ColdBytes(const codec::RolloutHeader& header) const {
  uint64_t bytes = 0;
  for (size_t i = header.columns.size(); i > 0; --i) {
    const codec::HeaderColumn& column = header.columns[i - 1];
    if (std::ranges::find(cold_columns_, column.name) == cold_columns_.end()) break;
    bytes += column.bytes;
  }
  return bytes;
}

void IncomingRollouts::FindMeaning(const codec::RolloutHeader& header) {
  const uint64_t layout = decoder_->layout();
  if (layout != 0 && layout == meaning_.layout && names_ == meaning_.names) return;
  meaning_.names = names_;
  meaning_.layout = layout;
  meaning_.column_bits = names_->ColumnBits(header);
  names_->RewardNumbers(header, &meaning_.rewards);
}

void IncomingRollouts::Plan(const codec::RolloutHeader& header, std::string_view bytes,
                            Entry* entry) {
  entry->header = bytes;
  shard::RolloutMeta& meta = metas_.back();
  meta.status = StatusOf(header.status);
  meta.partial = header.partial;
  meta.payload_bytes = bytes.size() + entry->payload_bytes;
  meta.duration_ms = header.duration_ms;
  FillSequence(header, header.sequences[0], &meta.first);
  if (header.sequences.size() > 1) meta.more.resize(header.sequences.size() - 1);
  for (size_t i = 1; i < header.sequences.size(); ++i) {
    FillSequence(header, header.sequences[i], &meta.more[i - 1]);
  }
  FindMeaning(header);
  PushedNames& named = named_.back();
  named.column_bits = meaning_.column_bits;
  named.rewards.begin = static_cast<uint32_t>(rewards_.size());
  for (size_t i = 0; i < header.rewards.size(); ++i) {
    if (meaning_.rewards[i] == codec::NameTable::kNamesMax) continue;
    rewards_.push_back({meaning_.rewards[i], header.rewards[i].value});
  }
  named.rewards.count = static_cast<uint32_t>(rewards_.size()) - named.rewards.begin;
  entry->columns = {static_cast<uint32_t>(columns_.size()),
                    static_cast<uint32_t>(header.columns.size())};
  for (const codec::HeaderColumn& column : header.columns) {
    // Not the optional as a whole: its value has just been written, and a wider read would wait.
    const bool stated = column.crc32c.has_value();
    columns_.push_back({column.bytes, stated ? *column.crc32c : 0, stated});
  }
}

void IncomingRollouts::Refuse(uint32_t index, codec::FieldError error) {
  entries_[index].error = std::make_unique<codec::FieldError>(std::move(error));
  payloads_[index] = {};  // gives its memory back
  ++wrong_;
}

void IncomingRollouts::Start(uint32_t index, storage::PayloadBudget* budget) {
  Entry& entry = entries_[index];
  if (std::exchange(entry.started, true) || entry.error != nullptr) return;
  payloads_[index].Begin(budget, entry.header.size() + entry.payload_bytes - entry.cold_bytes,
                         entry.cold_bytes);
  payloads_[index].AppendHeader(entry.header);
}

void IncomingRollouts::EndColumns() {
  const Entry& entry = entries_[next_];
  while (column_left_ == 0 && column_ < entry.columns.count) {
    const Column& column = columns_[entry.columns.begin + column_];
    if (column.crc32c_stated && column.crc32c != crc_) {
      return RefuseCrc(next_, column_, column.crc32c, crc_);
    }
    if (payloads_[next_].notes_crc()) payloads_[next_].NoteCrc(crc_, column.bytes);
    crc_ = 0;
    if (++column_ < entry.columns.count) {
      column_left_ = columns_[entry.columns.begin + column_].bytes;
    }
  }
}

void IncomingRollouts::FillWhole(std::string_view bytes, storage::PayloadBudget* budget) {
  Entry& entry = entries_[next_];
  entry.started = true;
  char* to = payloads_[next_].BeginWhole(budget, entry.header, bytes.size());
  const char* from = bytes.data();
  const bool notes_crc = payloads_[next_].notes_crc();
  const Column* const columns = columns_.data() + entry.columns.begin;
  for (uint32_t i = 0; i < entry.columns.count; ++i) {
    const uint32_t crc = CopyCrc32c(to, from, columns[i].bytes);
    if (columns[i].crc32c_stated && columns[i].crc32c != crc) {
      return RefuseCrc(next_, i, columns[i].crc32c, crc);
    }
    if (notes_crc) payloads_[next_].NoteCrc(crc, columns[i].bytes);
    to += columns[i].bytes;
    from += columns[i].bytes;
  }
}

void IncomingRollouts::RefuseCrc(uint32_t index, uint32_t column, uint32_t stated, uint32_t found) {
  Refuse(index, {absl::StrCat("columns[", column, "].crc32c"),
                 absl::StrCat("is ", absl::Hex(stated), ", the bytes have ", absl::Hex(found))});
}

uint64_t IncomingRollouts::FillOne(std::string_view piece) {
  if (entries_[next_].error != nullptr) return piece.size();
  const uint64_t size = std::min<uint64_t>(piece.size(), column_left_);
  crc_ = payloads_[next_].Append(piece.substr(0, size), crc_);
  column_left_ -= size;
  EndColumns();
  return size;
}

void IncomingRollouts::Fill(absl::Span<const std::string_view> payload,
                            storage::PayloadBudget* budget) {
  size_t slice = 0;
  std::string_view piece = payload.empty() ? std::string_view() : payload[0];
  while (next_ < entries_.size()) {
    const Entry& entry = entries_[next_];
    const uint64_t bytes = entry.payload_bytes;
    const bool fresh = rollout_left_ == 0 && !entry.started && entry.error == nullptr;
    const bool one_part = entry.cold_bytes == 0;
    if (fresh && one_part && bytes <= piece.size() &&
        storage::PayloadBuilder::IsWhole(entry.header, bytes)) {
      FillWhole(piece.substr(0, bytes), budget);
      piece.remove_prefix(bytes);
      left_ -= bytes;
      if (piece.empty() && slice < payload.size() && ++slice < payload.size()) {
        piece = payload[slice];
      }
      ++next_;
      continue;
    }
    if (rollout_left_ == 0) {  // its first bytes
      Start(next_, budget);
      rollout_left_ = entry.payload_bytes;
      column_ = 0;
      crc_ = 0;
      const bool good = entry.error == nullptr;
      column_left_ = good && entry.columns.count > 0 ? columns_[entry.columns.begin].bytes : 0;
      if (good) EndColumns();
    }
    while (rollout_left_ > 0 && slice < payload.size()) {
      const auto part = static_cast<size_t>(std::min<uint64_t>(piece.size(), rollout_left_));
      const uint64_t taken = FillOne(piece.substr(0, part));
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
    Start(i, budget);
  }
}

absl::Span<storage::PayloadBuilder> IncomingRollouts::Take(uint32_t begin, PushBatch* batch,
                                                           std::vector<uint32_t>* indexes,
                                                           std::vector<RefusedRollout>* refused) {
  indexes->reserve(next_ - begin);
  if (begin == 0 && next_ == entries_.size() && wrong_ == 0) {  // a frame of small rollouts
    batch->rollouts = std::exchange(metas_, {});
    batch->named = std::exchange(named_, {});
    batch->rewards = std::exchange(rewards_, {});
    for (uint32_t i = 0; i < next_; ++i) indexes->push_back(i);
    return absl::MakeSpan(payloads_);
  }
  uint32_t taken = begin;
  for (uint32_t i = begin; i < next_; ++i) {
    if (entries_[i].error != nullptr) {
      refused->push_back({.index = i,
                          .attempt_id = metas_[i].lease.attempt.value,
                          .result = shard::PushResult::kInvalid,
                          .error = *entries_[i].error});
      continue;
    }
    PushedNames& named = named_[i];
    const auto from = rewards_.begin() + named.rewards.begin;
    named.rewards.begin = static_cast<uint32_t>(batch->rewards.size());
    batch->rewards.insert(batch->rewards.end(), from, from + named.rewards.count);
    batch->rollouts.push_back(std::move(metas_[i]));
    batch->named.push_back(named);
    indexes->push_back(i);
    if (taken != i) payloads_[taken] = std::move(payloads_[i]);
    ++taken;
  }
  return absl::MakeSpan(payloads_).subspan(begin, taken - begin);
}

void IncomingRollouts::RefuseAllIfAny() {
  if (wrong_ == 0) return;
  const auto wrong = std::find_if(entries_.begin(), entries_.end(),
                                  [](const Entry& entry) { return entry.error != nullptr; });
  const auto at = wrong - entries_.begin();
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].error != nullptr) continue;
    Refuse(i, {"group", absl::StrCat("rollouts[", at, "] is refused")});
  }
  unreserved_ = 0;  // nothing of the group was begun, or all of it is given back
}

}  // namespace forebay::server
