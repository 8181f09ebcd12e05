// How replies are added to effects, and checks that both halves of a shard make.
//
// Pure functions.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "shard/limits.h"
#include "shard/messages.h"

namespace forebay::shard {

// Nobody waits for tag 0: no reply is kept for it.
template <class T>
void AddReply(T reply, Tag tag, Effects* effects) {
  if (tag != 0) effects->replies.push_back(TaggedReply{tag, Reply(std::move(reply))});
}

inline absl::Status UnknownSession(SessionId session) {
  return absl::NotFoundError(absl::StrCat("session: ", session.value, " is not open here"));
}

inline absl::Status CheckSession(const OpenSession& open) {
  if (open.session == SessionId())
    return absl::InvalidArgumentError("session: 0; choose another id");
  const std::pair<const char*, const std::string*> texts[] = {{"actor", &open.actor},
                                                              {"engine", &open.engine},
                                                              {"site", &open.site},
                                                              {"client", &open.client}};
  for (const auto& [field, text] : texts) {
    if (text->size() <= kSessionTextMax) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", text->size(), " bytes; at most ", kSessionTextMax));
  }
  return absl::OkStatus();
}

}  // namespace forebay::shard
