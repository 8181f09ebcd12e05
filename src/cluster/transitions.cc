#include "cluster/transitions.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::cluster {
namespace {

absl::Status Refused(NodeId node, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("node ", node.value, " ", why));
}

void Leave(Configuration* c, NodeId node) { std::erase(c->in_sync, node); }

void Join(std::vector<NodeId>* nodes, NodeId node) {
  const auto at = std::lower_bound(nodes->begin(), nodes->end(), node);
  if (at == nodes->end() || *at != node) nodes->insert(at, node);
}

// `by` is in sync in `next`.
Configuration Reign(Configuration next, NodeId by, bool keep_primary) {
  const NodeId old = next.primary;
  ++next.epoch.value;
  next.primary = by;
  if (old != by && !keep_primary && next.in_sync.size() > next.min_in_sync) Leave(&next, old);
  return next;
}

absl::StatusOr<Configuration> After(Configuration now, const Promote& event) {
  if (!now.InSync(event.by)) return Refused(event.by, "is not in sync");
  if (now.incarnation(event.by) != event.incarnation)
    return Refused(event.by, "is in sync under another incarnation of its log");
  return Reign(std::move(now), event.by, event.keep_primary);
}

absl::StatusOr<Configuration> After(Configuration now, const PromoteCut& event) {
  if (!now.InSync(event.by)) return Refused(event.by, "is not in sync");
  if (now.incarnation(event.by) >= event.incarnation)
    return Refused(event.by, "is in sync under this incarnation, or a later one");
  now.incarnations[event.by] = event.incarnation;
  return Reign(std::move(now), event.by, /*keep_primary=*/true);
}

absl::StatusOr<Configuration> After(Configuration now, const ChangeInSync& event) {
  if (now.primary != event.by || event.by == NodeId())
    return Refused(event.by, "is not the primary");
  if (event.join.empty() && event.leave.empty()) return Refused(event.by, "asks for no change");
  for (const NodeId node : event.leave) {
    if (node == event.by) return Refused(node, "is the primary and stays in sync");
    if (!now.InSync(node)) return Refused(node, "is not in sync");
    Leave(&now, node);
  }
  for (const auto& [node, incarnation] : event.join) {
    if (!now.placed(node)) return Refused(node, "has no replica");
    if (now.Leaving(node)) return Refused(node, "is leaving");
    if (now.InSync(node, incarnation)) return Refused(node, "is in sync");
    if (incarnation < now.incarnation(node)) return Refused(node, "has a later incarnation");
    now.incarnations[node] = incarnation;
    Join(&now.in_sync, node);
  }
  if (now.in_sync.size() < now.min_in_sync)
    return Refused(event.by, absl::StrCat("would leave fewer than ", now.min_in_sync, " in sync"));
  return now;
}

absl::StatusOr<Configuration> After(Configuration now, const Place& event) {
  if (event.node == NodeId() || now.placed(event.node))
    return Refused(event.node, "has a replica, or is none");
  if (now.incarnations.size() >= kReplicasMax) return Refused(event.node, "would be one too many");
  now.incarnations[event.node] = Incarnation();
  return now;
}

absl::StatusOr<Configuration> After(Configuration now, const Displace& event) {
  if (!now.placed(event.node)) return Refused(event.node, "has no replica");
  if (now.InSync(event.node)) return Refused(event.node, "is in sync: retire it first");
  if (now.incarnations.size() <= now.min_in_sync)
    return Refused(event.node, absl::StrCat("is one of ", now.min_in_sync, " that are needed"));
  now.incarnations.erase(event.node);
  std::erase(now.leaving, event.node);
  return now;
}

absl::StatusOr<Configuration> After(Configuration now, const Retire& event) {
  if (!now.placed(event.node)) return Refused(event.node, "has no replica");
  if (now.Leaving(event.node)) return Refused(event.node, "is leaving");
  if (now.incarnations.size() - now.leaving.size() <= now.min_in_sync)
    return Refused(event.node, absl::StrCat("is one of ", now.min_in_sync, " that are needed"));
  Join(&now.leaving, event.node);
  return now;
}

absl::StatusOr<Configuration> After(Configuration now, const Stay& event) {
  if (!now.Leaving(event.node)) return Refused(event.node, "is not leaving");
  std::erase(now.leaving, event.node);
  return now;
}

absl::StatusOr<Configuration> After(Configuration now, const UnsafeFailover& event) {
  if (!now.placed(event.to)) return Refused(event.to, "has no replica");
  if (event.incarnation < now.incarnation(event.to))
    return Refused(event.to, "has a later incarnation");
  now.incarnations[event.to] = event.incarnation;
  now.in_sync = {event.to};
  now.primary = event.to;
  ++now.epoch.value;
  return now;
}

}  // namespace

absl::StatusOr<Configuration> Next(const Configuration& now, const Event& event) {
  FOREBAY_RETURN_IF_ERROR(Validate(now));
  absl::StatusOr<Configuration> next =
      std::visit([&now](const auto& what) { return After(now, what); }, event);
  if (next.ok()) FOREBAY_CHECK(Validate(*next).ok());
  return next;
}

}  // namespace forebay::cluster
