#include "node/coordinator.h"

#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::node {
namespace {

using Limits = CoordinatorLimits;

absl::Status TooLarge(const char* what, size_t size, size_t limit) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", size, ", at most ", limit));
}

absl::Status CheckNew(const char* what, const std::string& key, std::set<std::string_view>* seen) {
  FOREBAY_RETURN_IF_ERROR(CheckKey(key));
  if (seen->insert(key).second) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": the key stands there twice"));
}

absl::Status CheckValue(const std::string& value) {
  return value.size() <= Limits::kValueBytesMax
             ? absl::OkStatus()
             : TooLarge("value's bytes", value.size(), Limits::kValueBytesMax);
}

}  // namespace

absl::Status CheckKey(const std::string& key) {
  if (key.empty()) return absl::InvalidArgumentError("key: is empty");
  if (key.size() <= Limits::kKeyBytesMax) return absl::OkStatus();
  return TooLarge("key's bytes", key.size(), Limits::kKeyBytesMax);
}

absl::Status CheckPrefix(const std::string& prefix) {
  return prefix.empty() ? absl::OkStatus() : CheckKey(prefix);
}

absl::Status CheckTransaction(const Transaction& transaction) {
  for (const size_t count : {transaction.conditions.size(), transaction.changes.size()}) {
    if (count <= Limits::kTransactionOperationsMax) continue;
    return TooLarge("operations", count, Limits::kTransactionOperationsMax);
  }
  size_t bytes = 0;
  std::set<std::string_view> compared, changed;
  for (const KeyCondition& condition : transaction.conditions) {
    FOREBAY_RETURN_IF_ERROR(CheckNew("conditions", condition.key, &compared));
    bytes += 2 * condition.key.size();  // it is also read
  }
  for (const KeyChange& change : transaction.changes) {
    FOREBAY_RETURN_IF_ERROR(CheckNew("changes", change.key, &changed));
    bytes += change.key.size();
    if (!change.value.has_value()) continue;
    FOREBAY_RETURN_IF_ERROR(CheckValue(*change.value));
    bytes += change.value->size();
  }
  if (bytes <= Limits::kTransactionBytesMax) return absl::OkStatus();
  return TooLarge("transaction's bytes", bytes, Limits::kTransactionBytesMax);
}

absl::Status CheckPresence(const PresenceOptions& options) {
  FOREBAY_RETURN_IF_ERROR(CheckKey(options.key));
  FOREBAY_RETURN_IF_ERROR(CheckValue(options.value));
  if (options.time_to_live >= absl::Seconds(1) && options.time_to_live <= absl::Hours(1)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("time_to_live: is not between a second and an hour");
}

}  // namespace forebay::node
