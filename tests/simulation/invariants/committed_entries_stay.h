// 2. No position has two different committed entries; every later primary holds every committed
// entry; epochs only rise.
//
// As far as it concerns one replica and its disk: when a machine starts anew, what was committed is
// in its log or snapshot, and nothing is that was never logged. That these are the entries that
// were committed is seen by the state that they give (7). A function of values.
#pragma once

#include <string>

#include "base/ids.h"

namespace forebay::simulation {

struct CommittedEntriesStay {
  static constexpr const char* kName = "2 committed entries stay";

  LogPosition committed;  // what the machine that ended was told, or a start gave back
  LogPosition logged;     // what it had begun to log
  // "" or what is wrong about a start that finds the log up to `found`.
  std::string Check(const std::string& machine, LogPosition found) const;
};

}  // namespace forebay::simulation
