#include "server/grpc/fetch_parts.h"

#include <algorithm>
#include <string>

#include "batch/layout.h"
#include "codec/rollout_header.h"
#include "server/grpc/fetch_slices.h"

namespace forebay::server {
namespace {

using codec::HeaderColumn;
using codec::RolloutHeader;

// Which slots have rows in what is asked for; all, if that is not known.
std::vector<bool> SlotsTaken(const v1::FetchRequest& request, const FetchView& view) {
  std::vector<bool> taken(view.slots.size(), true);
  const auto context = WantedRows(request);
  if (!context.ok() || !context->has_value()) return taken;  // what is wrong the plan will say
  std::vector<uint32_t> tokens;
  for (const ledger::Slot& slot : view.slots) tokens.push_back(slot.tokens);
  const auto slice = batch::SliceTokens(tokens, view.padded_tokens, **context);
  if (!slice.ok()) return taken;
  for (size_t i = 0; i < taken.size(); ++i) {
    taken[i] = slice->cu_seqlens[i] < slice->cu_seqlens[i + 1];
  }
  return taken;
}

// Whether a share of the tokens cuts the column; others come whole.
bool IsCut(const HeaderColumn& column) {
  using enum codec::Domain;
  const codec::Domain domain = column.domain_or_token();
  return domain == kToken || domain == kTokenButLast || domain == kResponseToken;
}

// Whether a column that is wanted, and not written since, lies in the payload's cold part.
bool WantsCold(const v1::FetchRequest& request, const FetchView& view, bool has_rows,
               const storage::PayloadView& payload, RolloutHeader* header) {
  codec::FieldError error;
  // What is wrong the plan will say.
  if (!codec::DecodeRolloutHeader(payload.header(), header, &error)) return false;
  uint64_t end = payload.header_bytes();
  for (const HeaderColumn& column : header->columns) {
    end += column.bytes;
    if (column.bytes == 0 || end <= payload.bytes(storage::Part::kHot)) continue;
    const bool written =
        std::ranges::any_of(view.written, [&](const auto& w) { return w.name == column.name; });
    if (!written && (has_rows || !IsCut(column)) && Wants(request, column.name)) return true;
  }
  return false;
}

}  // namespace

std::vector<PayloadId> PayloadsOf(const v1::FetchRequest& request, const FetchView& view) {
  std::vector<PayloadId> ids;
  for (const ledger::Slot& slot : view.slots) ids.push_back(slot.payload);
  for (const ledger::WrittenColumn& written : view.written) {
    if (written.bytes > 0 && Wants(request, written.name)) ids.push_back(written.payload);
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
  const bool sane = ids.size() == held.size() && WantedColumns(request).ok();
  if (!sane) return wanted;  // the plan will say so
  const std::vector<bool> slots = SlotsTaken(request, view);
  std::vector<PayloadId> with_rows;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i]) with_rows.push_back(view.slots[i].payload);
  }
  RolloutHeader header;
  bool any = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool has_rows = std::ranges::find(with_rows, ids[i]) != with_rows.end();
    const bool cold = has_cold(held[i]) && WantsCold(request, view, has_rows, held[i], &header);
    wanted.push_back({ids[i], cold ? storage::Parts::kAll : storage::Parts::kHot});
    any = any || cold;
  }
  if (!any) wanted.clear();
  return wanted;
}

}  // namespace forebay::server
