// Where a state machine's commands become durable before Apply sees them.
//
// Called from the loop that owns it; not thread-safe.
#pragma once

#include "base/ids.h"

namespace forebay::node {

template <class Command>
class Log {
 public:
  virtual ~Log() = default;
  // Makes the command durable at `position`, the one after the last. It is committed when this
  // returns.
  virtual void Append(LogPosition position, const Command& command) = 0;
};

// Keeps nothing: what is appended is committed at once, and gone with the process.
template <class Command>
class NullLog final : public Log<Command> {
 public:
  void Append(LogPosition, const Command&) override {}
};

}  // namespace forebay::node
