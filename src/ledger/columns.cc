// Columns that trainers write back, for the life of a plan.
#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "ledger/limits.h"
#include "ledger/state.h"

namespace forebay::ledger {
namespace {

// Bytes of one value, by forebay.v1.DType; 0 for what is no dtype.
uint64_t WidthOf(uint8_t dtype) {
  constexpr std::array<uint8_t, 14> kWidths = {0, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1};
  return dtype < kWidths.size() ? kWidths[dtype] : 0;
}

// What the engine said of the rollout is not to be replaced.
bool BelongsToRollout(absl::string_view name) {
  for (absl::string_view own : {"tokens", "loss_mask", "logprobs", "routed_experts", "text"}) {
    if (name == own) return true;
  }
  return absl::StartsWith(name, "multimodal.");
}

absl::Status CheckColumn(const WrittenColumn& column, uint64_t tokens) {
  const std::string& name = column.name;
  if (name.empty() || name.size() > kColumnNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("columns: a name of ", name.size(),
                                                   " bytes, from 1 to ", kColumnNameBytesMax));
  }
  if (BelongsToRollout(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("columns: ", name, " belongs to the rollout and is not written back"));
  }
  if (WidthOf(column.dtype) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("columns.", name, ".dtype: ", column.dtype, ", from 1 to 13"));
  }
  if (column.inner.size() > kColumnDimensionsMax) {
    return absl::InvalidArgumentError(absl::StrCat("columns.", name,
                                                   ".inner: ", column.inner.size(),
                                                   " dimensions, at most ", kColumnDimensionsMax));
  }
  unsigned __int128 bytes = static_cast<unsigned __int128>(tokens) * WidthOf(column.dtype);
  for (uint32_t dimension : column.inner) {
    if (dimension == 0 || bytes > UINT64_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat("columns.", name, ".inner: ", dimension, " is no dimension"));
    }
    bytes *= dimension;
  }
  if (bytes != column.bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "columns.", name, ".bytes: ", column.bytes, ", but dtype and shape of ", tokens,
        " tokens take ", bytes > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(bytes)));
  }
  if (column.payload == PayloadId() && bytes > 0) {
    return absl::InvalidArgumentError(absl::StrCat("columns.", name, ": its bytes are nowhere"));
  }
  return absl::OkStatus();
}

bool ByName(const WrittenColumn& a, const WrittenColumn& b) { return a.name < b.name; }

}  // namespace

absl::Status State::CheckOne(const PutColumns& c) const {
  FOREBAY_RETURN_IF_ERROR(CheckGeneration(c.generation));
  FOREBAY_RETURN_IF_ERROR(CheckSealed(c.step, c.revision));
  const Step& held = *step(c.step);
  FOREBAY_RETURN_IF_ERROR(CheckMicroBatch(held, c.micro_batch));
  const PlannedMiniBatch& mini_batch = held.mini_batches[c.micro_batch.mini_batch];
  const uint64_t tokens =
      mini_batch.micro_batch(c.micro_batch.dp_rank, c.micro_batch.micro_batch).tokens;
  std::vector<absl::string_view> names;
  if (const auto it = held.written.find(c.micro_batch); it != held.written.end()) {
    for (const WrittenColumn& column : it->second) names.push_back(column.name);
  }
  const size_t before = names.size();
  for (const WrittenColumn& column : c.columns) {
    FOREBAY_RETURN_IF_ERROR(CheckColumn(column, tokens));
    const auto added = names.begin() + static_cast<ptrdiff_t>(before);
    if (std::find(added, names.end(), column.name) != names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("columns: ", column.name, " twice, once at most"));
    }
    names.push_back(column.name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (c.columns.empty() || names.size() > kWrittenColumnsMax) {
    return absl::InvalidArgumentError(absl::StrCat("columns: ", c.columns.size(), ", and ", before,
                                                   " before; from 1 to ", kWrittenColumnsMax,
                                                   " in a micro-batch"));
  }
  return absl::OkStatus();
}

absl::Status State::Run(const PutColumns& c, Tag tag, Effects* effects) {
  std::vector<WrittenColumn>& written = FindStep(c.step)->written[c.micro_batch];
  for (const WrittenColumn& column : c.columns) {
    const auto at = std::lower_bound(written.begin(), written.end(), column, ByName);
    if (at == written.end() || at->name != column.name) {
      written.insert(at, column);
    } else {
      if (at->payload != column.payload && at->payload != PayloadId()) {
        effects->dead_payloads.push_back(at->payload);
      }
      *at = column;
    }
    ++counters_.columns_written;
  }
  Answer(tag, StatusReply{}, effects);
  return absl::OkStatus();
}

void State::DropWritten(Step& step, Effects* effects) {
  for (const auto& [ref, columns] : step.written) {
    for (const WrittenColumn& column : columns) {
      if (column.payload != PayloadId()) effects->dead_payloads.push_back(column.payload);
    }
  }
  step.written.clear();
}

void State::ForEachPayload(absl::FunctionRef<void(PayloadId)> written,
                           absl::FunctionRef<void(PayloadId)> held) const {
  for (const Step* step : StepsNewestFirst()) {
    for (const auto& [ref, columns] : step->written) {
      for (const WrittenColumn& column : columns) written(column.payload);
    }
    if (!step->live()) continue;
    for (const HeldRollout& rollout : step->rollouts) held(rollout.payload);
  }
}

}  // namespace forebay::ledger
