// The parts that a payload may have: they lie, are cached and are read apart.
//
// Hot is the rollout's header with the columns that most readers want; cold are large columns
// behind those, which few ask for. A payload always has a hot part. Plain values.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace forebay::storage {

enum class Part : uint8_t { kHot, kCold };

// What of a payload is wanted.
enum class Parts : uint8_t { kHot, kAll };

struct PayloadParts {
  PayloadId id;
  Parts parts = Parts::kAll;
};

}  // namespace forebay::storage
