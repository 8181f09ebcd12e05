#include "server/page.h"

#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"

namespace forebay::server {

absl::StatusOr<uint32_t> PageSize(uint32_t asked) {
  if (asked == 0) return kPageSizeDefault;
  if (asked <= kPageSizeMax) return asked;
  return absl::InvalidArgumentError(
      absl::StrCat("page_size: is ", asked, "; the limit is ", kPageSizeMax));
}

absl::StatusOr<PagePlace> ParsePageToken(const std::string& token, uint32_t shards) {
  PagePlace place;
  if (token.empty()) return place;
  const char* end = token.data() + token.size();
  const auto shard = std::from_chars(token.data(), end, place.shard);
  bool good = shard.ec == std::errc() && shard.ptr != end && *shard.ptr == '.';
  if (good) {
    const auto rest = std::from_chars(shard.ptr + 1, end, place.place);
    good = rest.ec == std::errc() && rest.ptr == end && place.shard < shards;
  }
  if (good) return place;
  return absl::InvalidArgumentError(
      absl::StrCat("page_token: '", token.substr(0, 64), "' is not of an answer of this list"));
}

std::string PageToken(const PagePlace& place) {
  return absl::StrCat(place.shard, ".", place.place);
}

void WalkPages(node::Engine* engine, PagePlace place, PageVisit visit,
               std::function<void(std::string)> done) {
  if (place.shard == engine->shards()) return done("");
  engine->OnShard(ShardId(static_cast<uint8_t>(place.shard)),
                  [engine, place, visit = std::move(visit), done = std::move(done)](
                      node::ShardLoop& loop, uint64_t now_ms) mutable {
                    const bool more = visit(loop, now_ms, &place.place);
                    if (place.place == UINT64_MAX) place = {place.shard + 1, 0};
                    if (!more) {
                      return done(place.shard == engine->shards() ? "" : PageToken(place));
                    }
                    WalkPages(engine, place, std::move(visit), std::move(done));
                  });
}

}  // namespace forebay::server
