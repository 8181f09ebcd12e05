// Collects metrics by family, for the serializer of prometheus-cpp.
//
// Not thread-safe. A family is begun by its first metric; names, help and type come with each call.
#pragma once

#include <prometheus/metric_family.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace forebay::server {

class MetricFamilies {
 public:
  using Labels = std::initializer_list<std::pair<const char*, std::string>>;

  void Counter(const char* name, const char* help, double value, Labels labels = {}) {
    Add(name, help, prometheus::MetricType::Counter, labels).counter.value = value;
  }
  void Gauge(const char* name, const char* help, double value, Labels labels = {}) {
    Add(name, help, prometheus::MetricType::Gauge, labels).gauge.value = value;
  }
  prometheus::ClientMetric::Histogram& Histogram(const char* name, const char* help,
                                                 Labels labels = {}) {
    return Add(name, help, prometheus::MetricType::Histogram, labels).histogram;
  }
  const std::vector<prometheus::MetricFamily>& families() const { return families_; }

 private:
  // Families are few; a call for the one at hand finds it last.
  prometheus::ClientMetric& Add(const char* name, const char* help, prometheus::MetricType type,
                                Labels labels) {
    auto at = families_.rbegin();
    while (at != families_.rend() && at->name != name) ++at;
    auto& family = at != families_.rend() ? *at : families_.emplace_back();
    if (family.name.empty()) family = {name, help, type, {}};
    auto& metric = family.metric.emplace_back();
    for (const auto& [key, value] : labels) metric.label.push_back({key, value});
    return metric;
  }

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace forebay::server
