// Lists by pages, through all shards, in visits short enough not to hold up a loop.
//
// Thread-safe; WalkPages is driven from within loops, one visit at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "node/engine.h"

namespace forebay::server {

inline constexpr uint32_t kPageSizeDefault = 100;
inline constexpr uint32_t kPageSizeMax = 10'000;

// Where a list goes on. As text "SHARD.PLACE"; "" is the beginning.
struct PagePlace {
  uint32_t shard = 0;
  uint64_t place = 0;
};

// The size to use; InvalidArgument over the limit.
absl::StatusOr<uint32_t> PageSize(uint32_t asked);
// InvalidArgument for what was no token of a list over `shards` shards.
absl::StatusOr<PagePlace> ParsePageToken(const std::string& token, uint32_t shards);
std::string PageToken(const PagePlace& place);

// Looks at some entries from `place` on and moves it, to UINT64_MAX at the shard's end; false when
// the page is full.
using PageVisit = std::function<bool(node::ShardLoop& loop, uint64_t now_ms, uint64_t* place)>;

// Visits shard after shard until the page is full or all are seen; `done` gets the token of the
// next page, "" at the end.
void WalkPages(node::Engine* engine, PagePlace place, PageVisit visit,
               std::function<void(std::string next)> done);

}  // namespace forebay::server
