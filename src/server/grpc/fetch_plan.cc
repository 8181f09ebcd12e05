#include "server/grpc/fetch_plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "batch/layout.h"
#include "codec/rollout_header.h"
#include "server/wire_ids.h"

namespace forebay::server {
namespace {

using codec::Domain;
using codec::HeaderColumn;
using codec::RolloutHeader;

constexpr size_t kFetchColumnsMax = 256;
constexpr size_t kFillBytes = 64 * 1024;  // a multiple of every dtype's size
constexpr size_t kHeadersKept = 256;      // for the next answer

// What all sequences' columns of one name agree on.
struct ColumnPlan {
  std::string name;
  const HeaderColumn* shape = nullptr;  // of the first sequence that has it; null: nobody has
  const ledger::WrittenColumn* written = nullptr;  // takes the place of stored ones
  std::vector<batch::ColumnPlace> places;          // by slot
  batch::ColumnSpec spec;
};

// The values of a dtype that stand for a missing one, `size` bytes of them.
std::string Fill(uint32_t dtype, double missing, size_t size) {
  std::string out(size, '\0');
  const auto repeat = [&out]<class T>(T value) {
    for (size_t at = 0; at + sizeof(T) <= out.size(); at += sizeof(T)) {
      std::memcpy(out.data() + at, &value, sizeof(T));
    }
  };
  const auto integer = static_cast<int64_t>(missing);
  switch (static_cast<codec::DType>(dtype)) {
    case codec::DType::kF64:
      repeat(missing);
      break;
    case codec::DType::kF32:
      repeat(static_cast<float>(missing));
      break;
    case codec::DType::kBf16: {
      const auto value = static_cast<float>(missing);
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      repeat(static_cast<uint16_t>(bits >> 16));
      break;
    }
    case codec::DType::kF16:
      break;  // only zero: see CheckFill
    default:
      switch (codec::DTypeBytes(dtype)) {
        case 1:
          repeat(static_cast<uint8_t>(integer));
          break;
        case 2:
          repeat(static_cast<uint16_t>(integer));
          break;
        case 4:
          repeat(static_cast<uint32_t>(integer));
          break;
        case 8:
          repeat(static_cast<uint64_t>(integer));
          break;
      }
  }
  return out;
}

// A missing value that the dtype can say; integers of less than 2^53, so that the cast is exact.
absl::Status CheckFill(const ColumnPlan& column) {
  const double missing = column.shape->missing;
  const auto dtype = static_cast<codec::DType>(column.shape->dtype);
  const bool floats =
      dtype == codec::DType::kF64 || dtype == codec::DType::kF32 || dtype == codec::DType::kBf16;
  constexpr double kExact = 9007199254740992.0;
  if (missing == 0 || floats) return absl::OkStatus();
  if (dtype != codec::DType::kF16 && missing > -kExact && missing < kExact) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("column ", column.name, ": missing is ",
                                                    missing, ", which its dtype cannot say"));
}

// Whether a column that is wanted, and not written since, lies in the payload's cold part.
bool WantsCold(const v1::FetchRequest& request, const FetchView& view,
               const storage::PayloadView& payload, RolloutHeader* header) {
  codec::FieldError error;
  // What is wrong the plan will say.
  if (!codec::DecodeRolloutHeader(payload.header(), header, &error)) return false;
  for (const std::string& name : request.columns()) {
    const size_t at = header->FindColumn(name);
    if (at >= codec::kColumnsMax) continue;
    const bool written =
        std::ranges::any_of(view.written, [&name](const auto& w) { return w.name == name; });
    if (written || header->columns[at].bytes == 0) continue;
    uint64_t end = payload.header_bytes();
    for (size_t i = 0; i <= at; ++i) end += header->columns[i].bytes;
    if (end > payload.bytes(storage::Part::kHot)) return true;
  }
  return false;
}

const char* Zeros() {
  static const char zeros[kFillBytes] = {};
  return zeros;
}

class Planner {
 public:
  Planner(const v1::FetchRequest& request, const FetchView& view,
          absl::Span<const storage::PayloadView> held, std::vector<RolloutHeader>* headers,
          v1::MicroBatchLayout* message)
      : request_(request),
        view_(view),
        ids_(PayloadsOf(request, view)),
        payloads_(held),
        headers_(*headers),
        message_(*message) {}

  absl::StatusOr<FetchPlan> Run();

 private:
  absl::Status Hold();
  absl::Status PlanColumns();
  absl::Status PlanStored(ColumnPlan* column);
  absl::Status PlaceStored(ColumnPlan* column, size_t slot);
  absl::Status MakeLayout();
  absl::Status EmitColumn(const ColumnPlan& column, const batch::ColumnLayout& layout);
  absl::Status EmitWritten(const ColumnPlan& column);
  absl::Status EmitReward(const std::string& key);
  absl::Status EmitSlices(const storage::PayloadView& payload, uint64_t offset, uint64_t size);
  void EmitZeros(uint64_t size);
  void EmitFill(const std::string& fill, uint64_t size);
  void EmitOwn(std::string_view bytes);
  void AddSlots();
  void AddPiece(FetchPiece piece);
  std::vector<batch::TokenRange> Masked(const ledger::Slot& slot, size_t index) const;
  const RolloutHeader& header(size_t slot) const { return headers_[payload_of_[slot]]; }
  size_t IndexOf(PayloadId id) const {
    return static_cast<size_t>(std::lower_bound(ids_.begin(), ids_.end(), id) - ids_.begin());
  }

  const v1::FetchRequest& request_;
  const FetchView& view_;
  const std::vector<PayloadId> ids_;  // distinct, ascending
  const absl::Span<const storage::PayloadView> payloads_;
  std::vector<uint32_t> payload_of_;     // by slot, index into ids_
  std::vector<RolloutHeader>& headers_;  // of those that slots name
  std::vector<ColumnPlan> columns_;
  batch::Layout layout_;
  v1::MicroBatchLayout& message_;
  std::vector<storage::BlockSlice> slices_;
  FetchPlan plan_;
};

absl::Status Planner::Hold() {
  if (payloads_.size() != ids_.size()) {
    return absl::InternalError(absl::StrCat(payloads_.size(), " payloads held of ", ids_.size()));
  }
  if (headers_.size() < ids_.size()) headers_.resize(ids_.size());
  payload_of_.reserve(view_.slots.size());
  std::vector<bool> decoded(ids_.size());
  for (const ledger::Slot& slot : view_.slots) {
    const size_t i = IndexOf(slot.payload);
    payload_of_.push_back(static_cast<uint32_t>(i));
    if (decoded[i]) continue;
    decoded[i] = true;
    codec::FieldError error;
    if (!codec::DecodeRolloutHeader(payloads_[i].header(), &headers_[i], &error)) {
      return absl::InternalError(absl::StrCat("stored ", error.field, " ", error.message));
    }
  }
  for (size_t i = 0; i < view_.slots.size(); ++i) {
    if (view_.slots[i].sequence >= header(i).sequences.size()) {
      return absl::InternalError("the plan names a sequence that its rollout does not have");
    }
  }
  return absl::OkStatus();
}

absl::Status Planner::PlanColumns() {
  if (request_.columns().empty()) return absl::InvalidArgumentError("columns: none is named");
  if (request_.columns_size() > static_cast<int>(kFetchColumnsMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("columns: ", request_.columns_size(), " named, at most ", kFetchColumnsMax));
  }
  for (const std::string& name : request_.columns()) {
    ColumnPlan& column = columns_.emplace_back();
    column.name = name;
    for (const ledger::WrittenColumn& written : view_.written) {
      if (written.name == name) column.written = &written;
    }
    if (column.written == nullptr) FOREBAY_RETURN_IF_ERROR(PlanStored(&column));
  }
  return absl::OkStatus();
}

absl::Status Planner::PlanStored(ColumnPlan* column) {
  column->places.resize(view_.slots.size());
  for (size_t i = 0; i < view_.slots.size(); ++i) {
    FOREBAY_RETURN_IF_ERROR(PlaceStored(column, i));
  }
  if (column->shape == nullptr) {
    if (view_.slots.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("column ", column->name, ": no rollout of the micro-batch has it"));
  }
  const Domain domain = column->shape->domain_or_token();
  if (domain == Domain::kToken || domain == Domain::kTokenButLast) {
    const uint64_t row = codec::RowBytes(*column->shape);
    if (row > std::numeric_limits<uint32_t>::max()) {
      return absl::FailedPreconditionError(
          absl::StrCat("column ", column->name, ": a row has ", row, " bytes"));
    }
    column->spec.bytes_per_token = static_cast<uint32_t>(row);
    column->spec.loss_mask = column->name == "loss_mask";
  }
  return CheckFill(*column);
}

bool SameShape(const HeaderColumn& a, const HeaderColumn& b) {
  return a.dtype == b.dtype && a.domain_or_token() == b.domain_or_token() &&
         a.inner_count == b.inner_count && std::equal(a.inner, a.inner + a.inner_count, b.inner);
}

absl::Status Planner::PlaceStored(ColumnPlan* column, size_t slot) {
  const RolloutHeader& from = header(slot);
  const size_t at = from.FindColumn(column->name);
  if (at >= codec::kColumnsMax) {
    if (request_.fill_missing()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("column ", column->name, ": rollout ",
                                                      absl::Hex(view_.slots[slot].rollout.value),
                                                      " lacks it; leave the column out, fetch "
                                                      "it with fill_missing, or drop the rollout "
                                                      "(buffer-ctl drop). A source's "
                                                      "required_columns refuses such pushes"));
  }
  const HeaderColumn& found = from.columns[at];
  if (column->shape == nullptr) column->shape = &found;
  if (!SameShape(*column->shape, found)) {
    return absl::FailedPreconditionError(
        absl::StrCat("column ", column->name,
                     ": rollouts of the micro-batch disagree on dtype, shape or domain"));
  }
  uint64_t offset = payloads_[payload_of_[slot]].header_bytes();
  for (size_t i = 0; i < at; ++i) offset += from.columns[i].bytes;
  const uint32_t sequence = view_.slots[slot].sequence;
  for (uint32_t s = 0; s < sequence; ++s) offset += codec::SequencePartBytes(from, found, s);
  column->places[slot] = {
      .present = true, .offset = offset, .bytes = codec::SequencePartBytes(from, found, sequence)};
  return absl::OkStatus();
}

// The tokens that leave the loss because a version below mask_below sampled them.
std::vector<batch::TokenRange> Planner::Masked(const ledger::Slot& slot, size_t index) const {
  std::vector<batch::TokenRange> masked;
  if (slot.mask_below == 0) return masked;
  const codec::HeaderSequence& sequence = header(index).sequences[slot.sequence];
  const auto runs = header(index).versions(sequence);
  const bool whole =
      slot.mask_below == UINT32_MAX || (runs.empty() && slot.version < slot.mask_below);
  if (whole) {
    masked.push_back({0, slot.tokens});
    return masked;
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].number >= slot.mask_below) continue;
    const uint32_t end = i + 1 < runs.size() ? runs[i + 1].offset : slot.tokens;
    if (!masked.empty() && masked.back().end == runs[i].offset) {
      masked.back().end = end;
    } else {
      masked.push_back({runs[i].offset, end});
    }
  }
  return masked;
}

absl::Status Planner::MakeLayout() {
  std::vector<batch::ColumnSpec> specs;
  for (const ColumnPlan& column : columns_) {
    if (column.written == nullptr) specs.push_back(column.spec);
  }
  const size_t slots = view_.slots.size();
  std::vector<std::vector<batch::ColumnPlace>> places(slots);
  std::vector<std::vector<batch::TokenRange>> masked(slots);
  std::vector<batch::SequencePlace> sequences(slots);
  for (size_t i = 0; i < slots; ++i) {
    for (const ColumnPlan& column : columns_) {
      if (column.written == nullptr) places[i].push_back(column.places[i]);
    }
    masked[i] = Masked(view_.slots[i], i);
    sequences[i] = {.tokens = view_.slots[i].tokens,
                    .payload = payload_of_[i],
                    .columns = places[i],
                    .masked = masked[i]};
  }
  // The plan has padded already; rounding up to its own result gives the same.
  const auto multiple = static_cast<uint32_t>(std::max<uint64_t>(view_.padded_tokens, 1));
  const auto alignment = request_.mask_alignment() == v1::MASK_ALIGNMENT_PREDICTING
                             ? batch::MaskAlignment::kPredicting
                             : batch::MaskAlignment::kToken;
  auto layout = batch::MakeLayout(
      sequences, {.columns = specs, .pad_multiple = multiple, .mask_alignment = alignment});
  if (!layout.ok()) return layout.status();
  layout_ = *std::move(layout);
  return absl::OkStatus();
}

void Planner::AddPiece(FetchPiece piece) {
  plan_.bytes += piece.size;
  plan_.pieces.push_back(std::move(piece));
}

void Planner::EmitOwn(std::string_view bytes) {
  if (bytes.empty()) return;
  if (!plan_.pieces.empty() && plan_.pieces.back().data == nullptr) {
    FetchPiece& last = plan_.pieces.back();
    last.own.append(bytes);
    last.size += bytes.size();
    plan_.bytes += bytes.size();
    return;
  }
  AddPiece({.own = std::string(bytes), .size = bytes.size()});
}

absl::Status Planner::EmitSlices(const storage::PayloadView& payload, uint64_t offset,
                                 uint64_t size) {
  // A slice has its price; below this a copy is cheaper.
  constexpr size_t kWorthASlice = 512;
  slices_.clear();
  FOREBAY_RETURN_IF_ERROR(payload.Slices(offset, size, &slices_));
  for (storage::BlockSlice& slice : slices_) {
    if (slice.size < kWorthASlice) {
      EmitOwn({slice.data, slice.size});
    } else {
      AddPiece({.block = std::move(slice.block), .data = slice.data, .size = slice.size});
    }
  }
  return absl::OkStatus();
}

void Planner::EmitZeros(uint64_t size) {
  while (size > 0) {
    const auto piece = static_cast<size_t>(std::min<uint64_t>(size, kFillBytes));
    AddPiece({.data = Zeros(), .size = piece});
    size -= piece;
  }
}

void Planner::EmitFill(const std::string& fill, uint64_t size) {
  while (size > 0) {
    const auto piece = static_cast<size_t>(std::min<uint64_t>(size, fill.size()));
    EmitOwn(std::string_view(fill).substr(0, piece));
    size -= piece;
  }
}

absl::Status Planner::EmitColumn(const ColumnPlan& column, const batch::ColumnLayout& layout) {
  v1::FetchedColumn* out = message_.add_columns();
  out->set_name(column.name);
  out->set_bytes(layout.bytes);
  if (column.shape == nullptr) return absl::OkStatus();  // a filler: no rows
  out->set_dtype(static_cast<v1::DType>(column.shape->dtype));
  for (uint32_t i = 0; i < column.shape->inner_count; ++i) out->add_inner(column.shape->inner[i]);
  const bool per_token = column.spec.bytes_per_token > 0;
  out->set_domain(per_token ? v1::DOMAIN_TOKEN : static_cast<v1::Domain>(column.shape->domain));
  for (const uint64_t bytes : layout.sequence_bytes) out->add_sequence_bytes(bytes);
  if (per_token) {
    out->set_padding_bytes((layout_.padded_tokens - layout_.tokens) * column.spec.bytes_per_token);
  }
  std::string fill;
  for (const batch::Segment& segment : layout.segments) {
    switch (segment.kind) {
      case batch::SegmentKind::kPayload:
        FOREBAY_RETURN_IF_ERROR(
            EmitSlices(payloads_[payload_of_[segment.sequence]], segment.offset, segment.bytes));
        break;
      case batch::SegmentKind::kZero:
        EmitZeros(segment.bytes);
        break;
      case batch::SegmentKind::kMissing:
        if (column.shape->missing == 0) {
          EmitZeros(segment.bytes);
          break;
        }
        if (fill.empty()) fill = Fill(column.shape->dtype, column.shape->missing, kFillBytes);
        EmitFill(fill, segment.bytes);
        break;
    }
  }
  return absl::OkStatus();
}

absl::Status Planner::EmitWritten(const ColumnPlan& column) {
  const ledger::WrittenColumn& written = *column.written;
  v1::FetchedColumn* out = message_.add_columns();
  out->set_name(column.name);
  out->set_dtype(static_cast<v1::DType>(written.dtype));
  uint64_t row = codec::DTypeBytes(written.dtype);
  for (const uint32_t inner : written.inner) {
    out->add_inner(inner);
    row *= inner;
  }
  out->set_domain(v1::DOMAIN_TOKEN);
  const uint64_t padding = (layout_.padded_tokens - layout_.tokens) * row;
  out->set_bytes(written.bytes + padding);
  out->set_padding_bytes(padding);
  if (written.bytes > 0) {
    const storage::PayloadView& payload = payloads_[IndexOf(written.payload)];
    FOREBAY_RETURN_IF_ERROR(EmitSlices(payload, payload.header_bytes(), written.bytes));
  }
  EmitZeros(padding);
  return absl::OkStatus();
}

absl::Status Planner::EmitReward(const std::string& key) {
  v1::FetchedColumn* out = message_.add_columns();
  out->set_name("reward/" + key);
  out->set_dtype(v1::DTYPE_F64);
  out->set_domain(v1::DOMAIN_SEQUENCE);
  out->set_bytes(view_.slots.size() * sizeof(double));
  for (size_t i = 0; i < view_.slots.size(); ++i) {
    double value = std::numeric_limits<double>::quiet_NaN();
    bool found = false;
    for (const codec::HeaderReward& reward : header(i).rewards) {
      if (reward.name != key) continue;
      value = reward.value;
      found = true;
    }
    if (!found && !request_.fill_missing()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "reward_keys: rollout ", absl::Hex(view_.slots[i].rollout.value), " lacks ", key));
    }
    char bytes[sizeof(double)];
    std::memcpy(bytes, &value, sizeof(value));
    EmitOwn({bytes, sizeof(bytes)});
  }
  return absl::OkStatus();
}

void Planner::AddSlots() {
  for (const ledger::Slot& slot : view_.slots) {
    message_.add_rewards(slot.reward);
    message_.add_advantages(slot.advantage);
    message_.add_versions(slot.version);
    message_.add_lags(slot.lag);
    message_.add_rollout_ids(slot.rollout.value);
    message_.add_group_ids(slot.group.value);
    message_.add_task_ids(WireTaskId(slot.group.shard(), slot.task));
    message_.add_sequence_indexes(slot.sequence);
    message_.add_prompt_tokens(slot.prompt_tokens);
    message_.add_loss_tokens(slot.loss_tokens);
    message_.add_rollout_loss_tokens(slot.rollout_loss_tokens);
    uint32_t source = 0;
    while (source < view_.sources.size() && view_.sources[source].first != slot.task.source()) {
      ++source;
    }
    message_.add_sources(source);
  }
  for (const auto& [id, name] : view_.sources) message_.add_source_names(name);
  v1::Totals* totals = message_.mutable_mini_batch();
  totals->set_loss_tokens(view_.mini_batch.loss_tokens);
  totals->set_tokens(view_.mini_batch.tokens);
  totals->set_sequences(view_.mini_batch.sequences);
  totals->set_rollouts(view_.mini_batch.rollouts);
  totals->set_groups(view_.mini_batch.groups);
  totals->set_dp(view_.mini_batch.dp);
}

absl::StatusOr<FetchPlan> Planner::Run() {
  FOREBAY_RETURN_IF_ERROR(Hold());
  FOREBAY_RETURN_IF_ERROR(PlanColumns());
  FOREBAY_RETURN_IF_ERROR(MakeLayout());
  plan_.pieces.reserve(columns_.size() * (view_.slots.size() + 1) + 1);
  message_.Clear();
  message_.set_revision(request_.revision());
  for (const int32_t offset : layout_.cu_seqlens) message_.add_cu_seqlens(offset);
  message_.set_padded_tokens(layout_.padded_tokens);
  message_.set_max_seqlen(layout_.max_seqlen);
  size_t stored = 0;
  for (const ColumnPlan& column : columns_) {
    FOREBAY_RETURN_IF_ERROR(column.written != nullptr
                                ? EmitWritten(column)
                                : EmitColumn(column, layout_.columns[stored++]));
  }
  for (const std::string& key : request_.reward_keys()) FOREBAY_RETURN_IF_ERROR(EmitReward(key));
  AddSlots();
  plan_.layout = message_.SerializeAsString();
  return std::move(plan_);
}

}  // namespace

std::vector<PayloadId> PayloadsOf(const v1::FetchRequest& request, const FetchView& view) {
  std::vector<PayloadId> ids;
  for (const ledger::Slot& slot : view.slots) ids.push_back(slot.payload);
  for (const ledger::WrittenColumn& written : view.written) {
    const auto& names = request.columns();
    const bool wanted = std::find(names.begin(), names.end(), written.name) != names.end();
    if (wanted && written.bytes > 0) ids.push_back(written.payload);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::vector<storage::PayloadParts> PartsOf(const v1::FetchRequest& request, const FetchView& view,
                                           absl::Span<const storage::PayloadView> held) {
  std::vector<storage::PayloadParts> wanted;
  const auto has_cold = [](const auto& payload) { return payload.bytes(storage::Part::kCold) > 0; };
  if (std::ranges::none_of(held, has_cold)) return wanted;
  const std::vector<PayloadId> ids = PayloadsOf(request, view);
  const bool sane =
      ids.size() == held.size() && request.columns_size() <= static_cast<int>(kFetchColumnsMax);
  if (!sane) return wanted;  // the plan will say so
  RolloutHeader header;
  bool any = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool cold = has_cold(held[i]) && WantsCold(request, view, held[i], &header);
    wanted.push_back({ids[i], cold ? storage::Parts::kAll : storage::Parts::kHot});
    any = any || cold;
  }
  if (!any) wanted.clear();
  return wanted;
}

absl::StatusOr<FetchPlan> FetchPlanner::Plan(const v1::FetchRequest& request, const FetchView& view,
                                             absl::Span<const storage::PayloadView> held) {
  auto plan = Planner(request, view, held, &headers_, &message_).Run();
  if (headers_.size() > kHeadersKept) headers_.resize(kHeadersKept);
  return plan;
}

}  // namespace forebay::server
