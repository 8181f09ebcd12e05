#include "drift/outliers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace forebay::drift {
namespace {

struct Judged {
  const std::string* engine;
  double value;
  double tokens;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double MedianOf(const std::vector<Judged>& judged) {
  std::vector<double> values;
  for (const Judged& one : judged) values.push_back(one.value);
  return Median(std::move(values));
}

double Deviation(const std::vector<Judged>& judged, double median) {
  std::vector<double> values;
  for (const Judged& one : judged) values.push_back(std::abs(one.value - median));
  constexpr double kNormal = 1.4826;  // makes it a standard deviation, if they are normal
  return kNormal * Median(std::move(values));
}

void Keep(const Outlier& found, std::map<std::string, Outlier>* worst) {
  const auto excess = [](const Outlier& o) { return o.value / o.limit; };
  const auto [at, added] = worst->try_emplace(found.engine, found);
  if (!added && excess(found) > excess(at->second)) at->second = found;
}

void Judge(const Table& table, size_t lag_class, std::map<std::string, Outlier>* worst) {
  std::vector<Judged> far, unusable;
  for (const auto& [name, row] : table.engines) {
    const Sums& sums = row.by_lag[lag_class];
    const double all = sums.tokens + sums.non_finite;
    if (sums.tokens >= kTokensJudged) far.push_back({&name, sums.Mean(sums.k3), sums.tokens});
    if (all < kTokensJudged) continue;
    unusable.push_back({&name, (sums.non_finite + sums.clamped) / all, all});
  }
  const auto judge = [&](const std::vector<Judged>& judged, bool is_share, auto limit_of) {
    if (judged.size() < kEnginesJudged) return;
    const double median = MedianOf(judged);
    const double limit = limit_of(median);
    for (const Judged& one : judged) {
      if (one.value <= limit) continue;
      Keep({*one.engine, lag_class, is_share, one.value, median, limit, one.tokens}, worst);
    }
  };
  judge(far, false, [&far](double median) {
    return median + std::max({kDeviations * Deviation(far, median), median, kLeast});
  });
  judge(unusable, true, [](double median) { return std::max(kBadShare, 2 * median); });
}

}  // namespace

std::vector<Outlier> FindOutliers(const Table& table) {
  std::map<std::string, Outlier> worst;
  for (size_t lag_class = 0; lag_class < kLagClasses; ++lag_class) {
    Judge(table, lag_class, &worst);
  }
  std::vector<Outlier> outliers;
  for (auto& [name, outlier] : worst) outliers.push_back(std::move(outlier));
  std::stable_sort(outliers.begin(), outliers.end(), [](const Outlier& a, const Outlier& b) {
    return a.value / a.limit > b.value / b.limit;
  });
  return outliers;
}

}  // namespace forebay::drift
