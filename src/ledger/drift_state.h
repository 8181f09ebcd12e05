// What the ledger holds of drift between trainer and engines.
//
// Plain value, replicated state; not thread-safe.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "base/ids.h"
#include "drift/reports.h"

namespace forebay::ledger {

// Why no more steps are sealed.
struct DriftHold {
  StepId step;       // whose commit showed it
  double k3 = 0;     // mean over its tokens
  double limit = 0;  // that it is above
  template <class A>
  void Fields(A& a) {
    a(step, k3, limit);
  }
};

struct Drift {
  drift::Reports reports;
  std::optional<DriftHold> hold;

  absl::Status Holds() const;  // that it is within its limits
  template <class A>
  void Fields(A& a) {
    a(reports, hold);
  }
};

}  // namespace forebay::ledger
