// What a fetch request asks for of each column, and of the rows, checked as far as that can be
// without the columns.
//
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "batch/layout.h"
#include "codec/conversion.h"
#include "codec/rollout_header.h"
#include "forebay/v1/trainer.pb.h"

namespace forebay::server {

struct WantedColumn {
  std::string name;    // as it is sent
  std::string stored;  // what it is made of
  std::vector<std::vector<batch::IndexRange>> dimensions;
  codec::DType dtype = codec::DType::kUnspecified;  // as stored
  batch::Alignment alignment = batch::Alignment::kToken;
};

// In the request's order. InvalidArgument names the field, the value and the limit.
absl::StatusOr<std::vector<WantedColumn>> WantedColumns(const v1::FetchRequest& request);
absl::StatusOr<std::optional<batch::ContextSlice>> WantedRows(const v1::FetchRequest& request);

// Whether it is made of that stored column.
bool Wants(const v1::FetchRequest& request, std::string_view stored);

// How a column is sent: which part of each row, and as what.
struct SentRows {
  batch::RowSlice row;
  const codec::Conversion* conversion = nullptr;
  uint32_t dtype = 0;  // that is sent
  uint64_t row_bytes = 0;
  bool as_stored() const { return row.whole() && conversion == nullptr; }
};

// Of a column of that dtype and shape. InvalidArgument, as above, also of a conversion that there
// is not.
absl::StatusOr<SentRows> SendRows(const WantedColumn& wanted, uint32_t dtype,
                                  absl::Span<const uint32_t> inner);

}  // namespace forebay::server
