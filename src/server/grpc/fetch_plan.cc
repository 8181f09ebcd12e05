#include "server/grpc/fetch_plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "batch/layout.h"
#include "codec/rollout_header.h"
#include "server/grpc/fetch_slices.h"
#include "server/grpc/fetch_spans.h"
#include "server/grpc/missing_fill.h"
#include "server/wire_ids.h"

namespace forebay::server {
namespace {

using codec::Domain;
using codec::HeaderColumn;
using codec::RolloutHeader;

constexpr size_t kFillBytes = 64 * 1024;    // a multiple of every dtype's size
constexpr size_t kHeadersKept = 256;        // for the next answer
constexpr uint64_t kMadeAtOnce = 2 * 1024;  // and sent together; more is made while it is sent

// What all sequences' columns of one name agree on.
struct ColumnPlan {
  WantedColumn wanted;
  const HeaderColumn* shape = nullptr;     // of the first sequence that has it; null: nobody has
  HeaderColumn written_shape;              // of one that takes the place of stored ones
  std::vector<batch::ColumnPlace> places;  // by slot
  batch::ColumnSpec spec;
  SentRows sent;
  const RowFormat* format = nullptr;  // unless it is sent as it is stored
  const std::string* fill = nullptr;  // missing values as they are sent, once they are needed

  // Bytes that are sent for so many stored ones.
  uint64_t Sent(uint64_t stored) const {
    return format == nullptr ? stored : stored / sent.row.row_bytes * sent.row_bytes;
  }
};

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
  void PlaceWritten(const ledger::WrittenColumn& written, ColumnPlan* column);
  absl::Status PlanRows(ColumnPlan* column);
  absl::Status MakeLayout();
  absl::Status EmitColumn(ColumnPlan& column, const batch::ColumnLayout& layout);
  absl::Status EmitReward(const std::string& key);
  absl::Status EmitSlices(const storage::PayloadView& payload, uint64_t offset, uint64_t size);
  absl::Status EmitRows(const ColumnPlan& column, const storage::PayloadView& payload,
                        uint64_t offset, uint64_t size);
  void EmitZeros(uint64_t size);
  void MakeFill(ColumnPlan* column);
  void EmitMissing(ColumnPlan* column, uint64_t size);
  void EmitOwn(std::string_view bytes);
  void DescribeRows();
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
  std::optional<batch::ContextSlice> context_;
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
  auto wanted = WantedColumns(request_);
  if (!wanted.ok()) return wanted.status();
  auto context = WantedRows(request_);
  if (!context.ok()) return context.status();
  context_ = *context;
  columns_.resize(wanted->size());
  for (size_t c = 0; c < columns_.size(); ++c) {
    ColumnPlan& column = columns_[c];
    column.wanted = std::move((*wanted)[c]);
    column.places.resize(view_.slots.size());
    const ledger::WrittenColumn* written = nullptr;
    for (const ledger::WrittenColumn& w : view_.written) {
      if (w.name == column.wanted.stored) written = &w;
    }
    if (written != nullptr) {
      PlaceWritten(*written, &column);
    } else {
      FOREBAY_RETURN_IF_ERROR(PlanStored(&column));
    }
    if (column.shape != nullptr) FOREBAY_RETURN_IF_ERROR(PlanRows(&column));
  }
  return absl::OkStatus();
}

absl::Status Planner::PlanStored(ColumnPlan* column) {
  for (size_t i = 0; i < view_.slots.size(); ++i) {
    FOREBAY_RETURN_IF_ERROR(PlaceStored(column, i));
  }
  if (column->shape != nullptr || view_.slots.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("column ", column->wanted.stored, ": no rollout of the micro-batch has it"));
}

// One payload holds the rows of all sequences.
void Planner::PlaceWritten(const ledger::WrittenColumn& written, ColumnPlan* column) {
  HeaderColumn& shape = column->written_shape;
  shape = {.name = column->wanted.stored,
           .dtype = written.dtype,
           .domain = static_cast<uint32_t>(Domain::kToken),
           .inner_count = static_cast<uint32_t>(written.inner.size())};
  std::copy(written.inner.begin(), written.inner.end(), shape.inner);
  column->shape = &shape;
  if (written.bytes == 0) return;
  const size_t payload = IndexOf(written.payload);
  const uint64_t row = codec::RowBytes(shape);
  uint64_t offset = payloads_[payload].header_bytes();
  for (size_t i = 0; i < view_.slots.size(); ++i) {
    const uint64_t bytes = view_.slots[i].tokens * row;
    column->places[i] = {.present = true,
                         .offset = offset,
                         .bytes = bytes,
                         .payload = static_cast<uint32_t>(payload)};
    offset += bytes;
  }
}

absl::Status Planner::PlanRows(ColumnPlan* column) {
  const HeaderColumn& shape = *column->shape;
  const WantedColumn& wanted = column->wanted;
  const Domain domain = shape.domain_or_token();
  const bool per_token = domain == Domain::kToken || domain == Domain::kTokenButLast;
  const bool has_rows = domain != Domain::kRagged && domain != Domain::kBlob;
  const uint64_t row = codec::RowBytes(shape);
  if ((per_token || domain == Domain::kResponseToken) &&
      row > std::numeric_limits<uint32_t>::max()) {
    return absl::FailedPreconditionError(
        absl::StrCat("column ", wanted.stored, ": a row has ", row, " bytes"));
  }
  if (per_token) {
    column->spec = {.bytes_per_token = static_cast<uint32_t>(row),
                    .loss_mask = wanted.stored == "loss_mask",
                    .alignment = wanted.alignment};
  } else if (wanted.alignment != batch::Alignment::kToken) {
    return absl::InvalidArgumentError(absl::StrCat(
        "slices, column '", wanted.name, "': alignment: its rows are not those of tokens"));
  } else if (context_.has_value() && domain == Domain::kRagged) {
    return absl::InvalidArgumentError(absl::StrCat(
        "context: column '", wanted.name, "' is ragged, which has no share of the tokens"));
  } else if (context_.has_value() && domain == Domain::kResponseToken) {
    column->spec.bytes_per_response_token = static_cast<uint32_t>(row);
  }
  FOREBAY_RETURN_IF_ERROR(CheckMissing(wanted.stored, shape.dtype, shape.missing));
  if (!has_rows && (!wanted.dimensions.empty() || wanted.dtype != codec::DType::kUnspecified)) {
    return absl::InvalidArgumentError(
        absl::StrCat("slices, column '", wanted.name, "': it is ",
                     domain == Domain::kRagged ? "ragged" : "a blob",
                     ", of which there is neither a part nor another dtype"));
  }
  column->sent = {.dtype = shape.dtype};
  column->sent.row.inner = {shape.inner, shape.inner + shape.inner_count};
  if (wanted.dimensions.empty() && wanted.dtype == codec::DType::kUnspecified) {
    return absl::OkStatus();
  }
  auto sent = SendRows(wanted, shape.dtype, column->sent.row.inner);
  if (!sent.ok()) return sent.status();
  column->sent = *std::move(sent);
  if (column->sent.as_stored()) return absl::OkStatus();
  plan_.formats.push_back(std::make_unique<RowFormat>(column->sent.row, column->sent.conversion));
  column->format = plan_.formats.back().get();
  return absl::OkStatus();
}

bool SameShape(const HeaderColumn& a, const HeaderColumn& b) {
  return a.dtype == b.dtype && a.domain_or_token() == b.domain_or_token() &&
         a.inner_count == b.inner_count && std::equal(a.inner, a.inner + a.inner_count, b.inner);
}

absl::Status Planner::PlaceStored(ColumnPlan* column, size_t slot) {
  const RolloutHeader& from = header(slot);
  const size_t at = from.FindColumn(column->wanted.stored);
  if (at >= codec::kColumnsMax) {
    if (request_.fill_missing()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "column ", column->wanted.stored, ": rollout ", absl::Hex(view_.slots[slot].rollout.value),
        " lacks it; leave the column out, fetch "
        "it with fill_missing, or drop the rollout "
        "(buffer-ctl drop). A source's "
        "required_columns refuses such pushes"));
  }
  const HeaderColumn& found = from.columns[at];
  if (column->shape == nullptr) column->shape = &found;
  if (!SameShape(*column->shape, found)) {
    return absl::FailedPreconditionError(
        absl::StrCat("column ", column->wanted.stored,
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
  for (const ColumnPlan& column : columns_) specs.push_back(column.spec);
  const size_t slots = view_.slots.size();
  std::vector<std::vector<batch::ColumnPlace>> places(slots);
  std::vector<std::vector<batch::TokenRange>> masked(slots);
  std::vector<batch::SequencePlace> sequences(slots);
  for (size_t i = 0; i < slots; ++i) {
    for (const ColumnPlan& column : columns_) places[i].push_back(column.places[i]);
    masked[i] = Masked(view_.slots[i], i);
    sequences[i] = {.tokens = view_.slots[i].tokens,
                    .payload = payload_of_[i],
                    .columns = places[i],
                    .masked = masked[i],
                    .prompt_tokens = header(i).sequences[view_.slots[i].sequence].prompt_tokens};
  }
  // The plan has padded already; rounding up to its own result gives the same.
  const auto multiple = static_cast<uint32_t>(std::max<uint64_t>(view_.padded_tokens, 1));
  auto layout = batch::MakeLayout(
      sequences, {.columns = specs, .pad_multiple = multiple, .context = context_});
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
  if (!plan_.pieces.empty() && plan_.pieces.back().is_own()) {
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

// Missing values, many times over, as they are sent.
void Planner::MakeFill(ColumnPlan* column) {
  std::string fill = MissingFill(column->shape->dtype, column->shape->missing, kFillBytes);
  if (const codec::Conversion* const conversion = column->sent.conversion; conversion != nullptr) {
    const size_t values = fill.size() / conversion->from_bytes;
    std::string converted(values * conversion->to_bytes, '\0');
    conversion->convert(fill.data(), converted.data(), values);
    fill = std::move(converted);
  }
  plan_.fills.push_back(std::make_unique<std::string>(std::move(fill)));
  column->fill = plan_.fills.back().get();
}

void Planner::EmitMissing(ColumnPlan* column, uint64_t size) {
  if (column->shape->missing == 0) return EmitZeros(size);
  if (column->fill == nullptr) MakeFill(column);
  if (size <= kMadeAtOnce) return EmitOwn(std::string_view(*column->fill).substr(0, size));
  AddPiece({.size = size, .fill = column->fill});
}

// Parts of rows from where they lie, if they are worth a slice each, else gathered while they are
// sent.
absl::Status Planner::EmitRows(const ColumnPlan& column, const storage::PayloadView& payload,
                               uint64_t offset, uint64_t size) {
  constexpr uint64_t kWorthLending = 8 * 1024;
  const batch::RowSlice& row = column.sent.row;
  const bool large = std::ranges::all_of(
      row.runs, [](const batch::ByteRun& run) { return run.bytes >= kWorthLending; });
  if (large && column.sent.conversion == nullptr) {
    for (uint64_t at = offset; at < offset + size; at += row.row_bytes) {
      for (const batch::ByteRun& run : row.runs) {
        FOREBAY_RETURN_IF_ERROR(EmitSlices(payload, at + run.offset, run.bytes));
      }
    }
    return absl::OkStatus();
  }
  std::vector<storage::BlockSlice> stored;
  FOREBAY_RETURN_IF_ERROR(payload.Slices(offset, size, &stored));
  auto rows = std::make_unique<RowGather>(column.format, std::move(stored));
  const uint64_t bytes = rows->bytes();
  if (bytes > kMadeAtOnce) {
    AddPiece({.size = bytes, .rows = std::move(rows)});
  } else {
    char gathered[kMadeAtOnce];
    rows->Read(0, bytes, gathered);
    EmitOwn({gathered, bytes});
  }
  return absl::OkStatus();
}

absl::Status Planner::EmitColumn(ColumnPlan& column, const batch::ColumnLayout& layout) {
  v1::FetchedColumn* out = message_.add_columns();
  out->set_name(column.wanted.name);
  out->set_bytes(column.Sent(layout.bytes));
  if (column.shape == nullptr) return absl::OkStatus();  // a filler: no rows
  out->set_dtype(static_cast<v1::DType>(column.sent.dtype));
  for (const uint32_t inner : column.sent.row.inner) out->add_inner(inner);
  const bool per_token = column.spec.bytes_per_token > 0;
  out->set_domain(per_token ? v1::DOMAIN_TOKEN : static_cast<v1::Domain>(column.shape->domain));
  for (const uint64_t bytes : layout.sequence_bytes) out->add_sequence_bytes(column.Sent(bytes));
  if (per_token) {
    out->set_padding_bytes(
        column.Sent((layout_.padded_tokens - layout_.tokens) * column.spec.bytes_per_token));
  }
  for (const batch::Segment& segment : layout.segments) {
    switch (segment.kind) {
      case batch::SegmentKind::kPayload: {
        const storage::PayloadView& payload = payloads_[segment.payload];
        FOREBAY_RETURN_IF_ERROR(column.format == nullptr
                                    ? EmitSlices(payload, segment.offset, segment.bytes)
                                    : EmitRows(column, payload, segment.offset, segment.bytes));
        break;
      }
      case batch::SegmentKind::kZero:
        EmitZeros(column.Sent(segment.bytes));
        break;
      case batch::SegmentKind::kMissing:
        EmitMissing(&column, column.Sent(segment.bytes));
        break;
    }
  }
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
  SpanWriter spans(&message_);
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
    const auto index = static_cast<size_t>(message_.sampled_counts_size());
    spans.Add(header(index), slot.sequence, slot.version);
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

// Which rows the columns of tokens have.
void Planner::DescribeRows() {
  for (const int32_t offset : layout_.cu_seqlens) message_.add_cu_seqlens(offset);
  message_.set_padded_tokens(layout_.padded_tokens);
  message_.set_max_seqlen(layout_.max_seqlen);
  if (!context_.has_value()) return;
  *message_.mutable_context() = request_.context();
  for (const batch::TokenSpan& span : layout_.spans) {
    v1::TokenSpan* const out = message_.add_spans();
    out->set_sequence(span.sequence);
    out->set_begin(span.begin);
    out->set_end(span.end);
  }
  for (const int32_t offset : layout_.whole_cu_seqlens) message_.add_whole_cu_seqlens(offset);
  message_.set_whole_padded_tokens(layout_.whole_padded_tokens);
}

absl::StatusOr<FetchPlan> Planner::Run() {
  FOREBAY_RETURN_IF_ERROR(Hold());
  FOREBAY_RETURN_IF_ERROR(PlanColumns());
  FOREBAY_RETURN_IF_ERROR(MakeLayout());
  plan_.pieces.reserve(columns_.size() * (view_.slots.size() + 1) + 1);
  message_.Clear();
  message_.set_revision(request_.revision());
  DescribeRows();
  for (size_t c = 0; c < columns_.size(); ++c) {
    FOREBAY_RETURN_IF_ERROR(EmitColumn(columns_[c], layout_.columns[c]));
  }
  for (const std::string& key : request_.reward_keys()) FOREBAY_RETURN_IF_ERROR(EmitReward(key));
  AddSlots();
  plan_.layout = message_.SerializeAsString();
  return std::move(plan_);
}

}  // namespace

void FetchPiece::Read(uint64_t from, size_t count, char* out) const {
  if (rows != nullptr) return rows->Read(from, count, out);
  if (fill == nullptr) {
    std::memcpy(out, (data == nullptr ? own.data() : data) + from, count);
    return;
  }
  while (count > 0) {
    const size_t at = from % fill->size();
    const size_t now = std::min(count, fill->size() - at);
    std::memcpy(out, fill->data() + at, now);
    from += now;
    out += now;
    count -= now;
  }
}

absl::StatusOr<FetchPlan> FetchPlanner::Plan(const v1::FetchRequest& request, const FetchView& view,
                                             absl::Span<const storage::PayloadView> held) {
  auto plan = Planner(request, view, held, &headers_, &message_).Run();
  if (headers_.size() > kHeadersKept) headers_.resize(kHeadersKept);
  return plan;
}

}  // namespace forebay::server
