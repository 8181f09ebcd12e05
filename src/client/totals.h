// Totals of the contract as the client's.
//
// Pure functions.
#pragma once

#include "forebay/micro_batch.h"
#include "forebay/v1/trainer.pb.h"

namespace forebay::client {

inline Totals FromWire(const v1::Totals& totals) {
  return {.loss_tokens = totals.loss_tokens(),
          .tokens = totals.tokens(),
          .sequences = totals.sequences(),
          .rollouts = totals.rollouts(),
          .groups = totals.groups(),
          .dp = totals.dp()};
}

}  // namespace forebay::client
