// What the ledger does by itself about drift; all of it is off unless it is set.
//
// Plain value.
#pragma once

namespace forebay::drift {

struct Rules {
  // No more steps are sealed once the mean k3 of a committed step's tokens is above this; 0: never.
  double hold_k3 = 0;
  bool operator==(const Rules&) const = default;
  template <class A>
  void Fields(A& a) {
    a(hold_k3);
  }
};

}  // namespace forebay::drift
