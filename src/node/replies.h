// What a machine answers, as what was asked for.
//
// Plain functions.
#pragma once

#include <type_traits>
#include <utility>
#include <variant>

#include "ledger/messages.h"

namespace forebay::node {

// A refusal is a StatusReply whatever was asked.
template <class R>
R ReplyAs(ledger::Reply&& reply) {
  if constexpr (!std::is_same_v<R, ledger::StatusReply>) {
    if (auto* refusal = std::get_if<ledger::StatusReply>(&reply)) {
      R answer;
      answer.status = std::move(refusal->status);
      return answer;
    }
  }
  return std::get<R>(std::move(reply));
}

template <class R>
R Refused(absl::Status why) {
  R refused;
  refused.status = std::move(why);
  return refused;
}

}  // namespace forebay::node
