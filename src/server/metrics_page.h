// The page of metrics, in Prometheus' text format. docs/metrics.md lists them.
//
// Pure: everything is passed in.
#pragma once

#include <string>

#include "server/grpc/method_table.h"
#include "server/observation.h"
#include "server/run_metrics.h"

namespace forebay::server {

// `cluster`: of a node of one.
std::string MetricsPage(const Observation& seen, const RunMetrics& run, const MethodTable& methods,
                        const ClusterPage& cluster = {});
// Of a node that follows: it has no clients.
std::string FollowerMetricsPage(const ClusterPage& cluster, const MethodTable& methods,
                                uint64_t uptime_ms);

}  // namespace forebay::server
