// The page of metrics, in Prometheus' text format. docs/metrics.md lists them.
//
// Pure: everything is passed in.
#pragma once

#include <string>

#include "server/grpc/method_table.h"
#include "server/observation.h"
#include "server/run_metrics.h"

namespace forebay::server {

std::string MetricsPage(const Observation& seen, const RunMetrics& run, const MethodTable& methods);

}  // namespace forebay::server
