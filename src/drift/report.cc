#include "drift/report.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "drift/limits.h"

namespace forebay::drift {
namespace {

auto KeyOf(const Cell& cell) { return std::tuple(cell.source, cell.length, cell.engine, cell.lag); }

void CompactCells(std::vector<Cell>* cells) {
  std::stable_sort(cells->begin(), cells->end(),
                   [](const Cell& a, const Cell& b) { return KeyOf(a) < KeyOf(b); });
  size_t kept = 0;
  for (size_t i = 0; i < cells->size(); ++i) {
    if (kept > 0 && KeyOf((*cells)[kept - 1]) == KeyOf((*cells)[i])) {
      (*cells)[kept - 1].sums.Add((*cells)[i].sums);
    } else {
      (*cells)[kept++] = (*cells)[i];
    }
  }
  cells->resize(kept);
}

absl::Status CheckCells(absl::string_view kind, const std::vector<Cell>& cells, size_t engines,
                        size_t sources) {
  if (cells.size() > kPartsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(kind, ": ", cells.size(), " parts, at most ", kPartsMax));
  }
  const auto wrong = [kind](size_t i, absl::string_view field, uint64_t value, uint64_t limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(kind, ".", field, "[", i, "]: ", value, ", less than ", limit));
  };
  for (size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    if (cell.source.value >= sources) return wrong(i, "sources", cell.source.value, sources);
    if (cell.length >= kLengthBuckets) return wrong(i, "lengths", cell.length, kLengthBuckets);
    if (cell.engine >= engines) return wrong(i, "engines", cell.engine, engines);
    if (cell.lag > kLagsKept) return wrong(i, "lags", cell.lag, kLagsKept + 1);
    if (const char* field = WrongField(cell.sums); field != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(kind, ".", field, "[", i, "]: not what ", cell.sums.tokens,
                       " tokens can have, each with |d| of at most ", kClamp));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void Compact(Report* report) {
  CompactCells(&report->engine);
  CompactCells(&report->reference);
}

absl::Status CheckReport(const Report& report, size_t sources) {
  if (report.engines.size() > kPartsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("engine_names: ", report.engines.size(), " entries, at most ", kPartsMax));
  }
  for (size_t i = 0; i < report.engines.size(); ++i) {
    if (report.engines[i].size() > kEngineNameBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("engine_names[", i,
                                                     "]: ", report.engines[i].size(),
                                                     " bytes, at most ", kEngineNameBytesMax));
    }
  }
  FOREBAY_RETURN_IF_ERROR(CheckCells("engine", report.engine, report.engines.size(), sources));
  return CheckCells("reference", report.reference, 1, sources);
}

uint8_t LengthBucket(uint32_t tokens) {
  return static_cast<uint8_t>(tokens <= 1 ? 0 : std::bit_width(tokens - 1));
}

std::string LengthName(uint32_t bucket) {
  if (bucket == 0) return "1";
  const uint64_t high = uint64_t{1} << bucket;
  return high == 2 ? "2" : absl::StrCat(high / 2 + 1, "-", high);
}

}  // namespace forebay::drift
