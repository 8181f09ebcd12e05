// buffer-bench replay: a workload of the flags, under one policy, as one line of JSON. In virtual
// time, without a daemon.
#pragma once

#include "absl/status/status.h"

namespace forebay::bench {

absl::Status RunReplay();

}  // namespace forebay::bench
