#include "cluster/configuration.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "codec/archive.h"

namespace forebay::cluster {
namespace {

constexpr uint8_t kFormat = 1;

}  // namespace

bool Configuration::Leaving(NodeId node) const {
  return std::find(leaving.begin(), leaving.end(), node) != leaving.end();
}

bool Configuration::InSync(NodeId node) const {
  return std::find(in_sync.begin(), in_sync.end(), node) != in_sync.end();
}

bool Configuration::InSync(NodeId node, Incarnation wanted) const {
  return InSync(node) && incarnation(node) == wanted;
}

Incarnation Configuration::incarnation(NodeId node) const {
  const auto found = incarnations.find(node);
  return found == incarnations.end() ? Incarnation() : found->second;
}

absl::Status Validate(const Configuration& c) {
  const auto bad = [&c](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("configuration (", Text(c), "): ", what));
  };
  if (c.incarnations.empty() || c.incarnations.size() > kReplicasMax)
    return bad(absl::StrCat("1 to ", kReplicasMax, " replicas"));
  if (c.placed(NodeId())) return bad("node 0 is none");
  if (c.in_sync.empty()) return bad("nobody is in sync");
  if (c.min_in_sync == 0 || c.min_in_sync > c.incarnations.size())
    return bad("at least 1 in sync, and no more than there are replicas");
  for (size_t i = 0; i < c.in_sync.size(); ++i) {
    if (i > 0 && c.in_sync[i] <= c.in_sync[i - 1]) return bad("who is in sync ascends");
    if (!c.placed(c.in_sync[i])) return bad("in sync without a replica");
  }
  for (size_t i = 0; i < c.leaving.size(); ++i) {
    if (i > 0 && c.leaving[i] <= c.leaving[i - 1]) return bad("who leaves ascends");
    if (!c.placed(c.leaving[i])) return bad("leaving without a replica");
  }
  if (c.primary == NodeId()) return c.epoch == Epoch() ? absl::OkStatus() : bad("no primary");
  if (c.epoch == Epoch()) return bad("a primary without an epoch");
  if (!c.InSync(c.primary)) return bad("the primary is not in sync");
  return absl::OkStatus();
}

std::string Text(const Configuration& c) {
  std::string text =
      absl::StrCat("epoch ", c.epoch.value, ", primary ", c.primary.value, ", in sync");
  for (const NodeId node : c.in_sync) absl::StrAppend(&text, " ", node.value);
  text += ", replicas";
  for (const auto& [node, incarnation] : c.incarnations)
    absl::StrAppend(&text, " ", node.value, ":", incarnation.value);
  if (!c.leaving.empty()) text += ", leaving";
  for (const NodeId node : c.leaving) absl::StrAppend(&text, " ", node.value);
  absl::StrAppend(&text, ", at least ", c.min_in_sync);
  return text;
}

std::string EncodeConfiguration(const Configuration& configuration) {
  std::string bytes(1, static_cast<char>(kFormat));
  return bytes + codec::Encode(configuration);
}

absl::StatusOr<Configuration> DecodeConfiguration(std::string_view bytes) {
  Configuration configuration;
  if (bytes.empty() || static_cast<uint8_t>(bytes[0]) != kFormat)
    return absl::InvalidArgumentError("a configuration in a format that is not known");
  if (!codec::Decode(bytes.substr(1), &configuration))
    return absl::InvalidArgumentError("a configuration that cannot be decoded");
  FOREBAY_RETURN_IF_ERROR(Validate(configuration));
  return configuration;
}

}  // namespace forebay::cluster
