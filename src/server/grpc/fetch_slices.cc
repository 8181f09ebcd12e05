#include "server/grpc/fetch_slices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "codec/limits.h"

namespace forebay::server {
namespace {

template <class... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// A name that people can read, whatever it is.
std::string Piece(const std::string& name) { return name.substr(0, codec::kNameBytesMax); }

std::string At(int slice) { return absl::StrCat("slices[", slice, "]."); }

absl::Status TakeSlice(const v1::ColumnSlice& slice, int index, WantedColumn* column) {
  if (!slice.source().empty()) column->stored = slice.source();
  if (static_cast<size_t>(slice.dimensions_size()) > codec::kInnerDimensionsMax) {
    return Refuse(At(index), "dimensions: ", slice.dimensions_size(), ", at most ",
                  codec::kInnerDimensionsMax);
  }
  for (int d = 0; d < slice.dimensions_size(); ++d) {
    const auto& ranges = slice.dimensions(d).ranges();
    if (static_cast<size_t>(ranges.size()) > codec::kSliceRangesMax) {
      return Refuse(At(index), "dimensions[", d, "].ranges: ", ranges.size(), ", at most ",
                    codec::kSliceRangesMax);
    }
    auto& taken = column->dimensions.emplace_back();
    for (const v1::IndexRange& range : ranges) taken.push_back({range.begin(), range.end()});
  }
  if (slice.dtype() != v1::DTYPE_UNSPECIFIED &&
      codec::DTypeBytes(static_cast<uint32_t>(slice.dtype())) == 0) {
    return Refuse(At(index), "dtype: ", static_cast<int>(slice.dtype()), ", from 1 to ",
                  codec::kDTypeMax);
  }
  column->dtype = static_cast<codec::DType>(slice.dtype());
  switch (slice.alignment()) {
    case v1::MASK_ALIGNMENT_UNSPECIFIED:
      break;
    case v1::MASK_ALIGNMENT_TOKEN:
      column->alignment = batch::Alignment::kToken;
      break;
    case v1::MASK_ALIGNMENT_PREDICTING:
      column->alignment = batch::Alignment::kPredicting;
      break;
    default:
      return Refuse(At(index), "alignment: ", static_cast<int>(slice.alignment()), ", at most 2");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<WantedColumn>> WantedColumns(const v1::FetchRequest& request) {
  const auto& names = request.columns();
  if (names.empty()) return Refuse("columns: none is named");
  if (static_cast<size_t>(names.size()) > codec::kFetchColumnsMax) {
    return Refuse("columns: ", names.size(), " named, at most ", codec::kFetchColumnsMax);
  }
  if (request.slices_size() > names.size()) {
    return Refuse("slices: ", request.slices_size(), ", at most one a column, ", names.size());
  }
  std::vector<WantedColumn> columns;
  for (const std::string& name : names) {
    const bool shifted =
        name == "loss_mask" && request.mask_alignment() == v1::MASK_ALIGNMENT_PREDICTING;
    columns.push_back(
        {.name = name,
         .stored = name,
         .alignment = shifted ? batch::Alignment::kPredicting : batch::Alignment::kToken});
  }
  std::vector<bool> sliced(columns.size());
  for (int i = 0; i < request.slices_size(); ++i) {
    const v1::ColumnSlice& slice = request.slices(i);
    const auto at = std::ranges::find(columns, slice.column(), &WantedColumn::name);
    if (at == columns.end()) {
      return Refuse(At(i), "column: '", Piece(slice.column()), "' is none of columns");
    }
    const auto index = static_cast<size_t>(at - columns.begin());
    if (sliced[index]) {
      return Refuse(At(i), "column: '", Piece(slice.column()), "' has a slice already, at most 1");
    }
    sliced[index] = true;
    FOREBAY_RETURN_IF_ERROR(TakeSlice(slice, i, &*at));
  }
  return columns;
}

absl::StatusOr<std::optional<batch::ContextSlice>> WantedRows(const v1::FetchRequest& request) {
  if (!request.has_context()) return std::nullopt;
  const v1::ContextSlice& context = request.context();
  batch::ContextSlice slice{.size = context.size(),
                            .rank = context.rank(),
                            .pad_multiple = std::max(context.pad_multiple(), 1u)};
  switch (context.order()) {
    case v1::CONTEXT_ORDER_CONTIGUOUS:
      slice.order = batch::ContextOrder::kContiguous;
      return slice;
    case v1::CONTEXT_ORDER_ZIGZAG:
      slice.order = batch::ContextOrder::kZigzag;
      return slice;
    case v1::CONTEXT_ORDER_ZIGZAG_SEQUENCES:
      slice.order = batch::ContextOrder::kZigzagSequences;
      return slice;
    default:
      return Refuse("context.order: ", static_cast<int>(context.order()), ", from 1 to 3");
  }
}

bool Wants(const v1::FetchRequest& request, std::string_view stored) {
  return std::ranges::any_of(request.columns(), [&](const std::string& name) {
    for (const v1::ColumnSlice& slice : request.slices()) {
      if (slice.column() == name && !slice.source().empty()) return slice.source() == stored;
    }
    return name == stored;
  });
}

absl::StatusOr<SentRows> SendRows(const WantedColumn& wanted, uint32_t dtype,
                                  absl::Span<const uint32_t> inner) {
  auto row = batch::SliceRow(inner, codec::DTypeBytes(dtype), wanted.dimensions);
  if (!row.ok()) {
    return Refuse("slices, column '", wanted.name, "': ", row.status().message());
  }
  SentRows sent{.row = *std::move(row), .dtype = dtype};
  sent.row_bytes = sent.row.bytes;
  if (wanted.dtype == codec::DType::kUnspecified || static_cast<uint32_t>(wanted.dtype) == dtype) {
    return sent;
  }
  sent.conversion = codec::FindConversion(static_cast<codec::DType>(dtype), wanted.dtype);
  if (sent.conversion == nullptr) {
    return Refuse("slices, column '", wanted.name, "': dtype: there is no conversion from ",
                  v1::DType_Name(static_cast<v1::DType>(dtype)), " to ",
                  v1::DType_Name(static_cast<v1::DType>(wanted.dtype)));
  }
  sent.dtype = static_cast<uint32_t>(wanted.dtype);
  sent.row_bytes = sent.row.bytes / sent.conversion->from_bytes * sent.conversion->to_bytes;
  return sent;
}

}  // namespace forebay::server
