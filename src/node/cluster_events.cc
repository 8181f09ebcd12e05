#include "node/cluster_events.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace forebay::node {
namespace {

std::string Line(std::string_view text) {
  std::string line(text.substr(0, kEventTextBytesMax));
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

std::vector<std::string> Lines(std::string_view value, size_t count) {
  std::vector<std::string> lines =
      absl::StrSplit(absl::string_view(value.data(), value.size()), '\n');
  lines.resize(count);
  return lines;
}

template <class T>
T Number(const std::string& text) {
  T value = 0;
  return absl::SimpleAtoi(text, &value) ? value : 0;
}

void Name(const char* what, const std::vector<cluster::NodeId>& nodes, std::string* text) {
  if (nodes.empty()) return;
  absl::StrAppend(text, text->empty() ? "" : ", ", what);
  for (const cluster::NodeId node : nodes) absl::StrAppend(text, " ", node.value);
}

std::vector<cluster::NodeId> Without(const std::vector<cluster::NodeId>& all,
                                     const std::vector<cluster::NodeId>& others) {
  std::vector<cluster::NodeId> left;
  std::ranges::set_difference(all, others, std::back_inserter(left));
  return left;
}

std::vector<cluster::NodeId> Placed(const cluster::Configuration& of) {
  std::vector<cluster::NodeId> nodes;
  for (const auto& [node, incarnation] : of.incarnations) nodes.push_back(node);
  return nodes;
}

}  // namespace

std::string EncodeEvent(const ClusterEvent& event) {
  return absl::StrCat(event.time_ms, "\n", Line(event.who), "\n", Line(event.what), "\n",
                      Line(event.why));
}

ClusterEvent DecodeEvent(std::string_view value) {
  std::vector<std::string> lines = Lines(value, 4);
  return {Number<uint64_t>(lines[0]), std::move(lines[1]), std::move(lines[2]),
          std::move(lines[3])};
}

KeyChange NewEvent(std::string_view prefix, std::string_view who, std::string_view what,
                   std::string_view why) {
  // What one process tells within a millisecond stays in its order; two processes are kept apart.
  static std::atomic<uint32_t> told{0};
  const uint64_t id = uint64_t{told.fetch_add(1)} << 32 | std::random_device()();
  const auto now_ms = static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()));
  return {absl::StrCat(std::string(prefix), std::string(kEventsPrefix),
                       absl::Dec(now_ms, absl::kZeroPad13), "-", absl::Hex(id, absl::kZeroPad16)),
          EncodeEvent({now_ms, std::string(who), std::string(what), std::string(why)})};
}

std::vector<std::string> Superfluous(const std::map<std::string, ClusterEvent>& events,
                                     size_t most) {
  size_t bytes = 0, count = events.size();
  const auto weight = [](const auto& entry) {
    const ClusterEvent& event = entry.second;
    return entry.first.size() + event.who.size() + event.what.size() + event.why.size();
  };
  for (const auto& entry : events) bytes += weight(entry);
  std::vector<std::string> names;
  for (const auto& entry : events) {
    if ((count <= kEventsMax && bytes <= kEventsBytesMax) || names.size() >= most) break;
    names.push_back(entry.first);
    bytes -= weight(entry);
    --count;
  }
  return names;
}

std::string DescribeChange(std::string_view machine, const cluster::Configuration& before,
                           const cluster::Configuration& after) {
  std::string what;
  if (after.epoch != before.epoch) {
    absl::StrAppend(&what, "node ", after.primary.value, " leads, epoch ", after.epoch.value);
    if (before.primary != cluster::NodeId() && before.primary != after.primary) {
      absl::StrAppend(&what, " (before: node ", before.primary.value, ")");
    }
  }
  Name("joined the set:", Without(after.in_sync, before.in_sync), &what);
  Name("left the set:", Without(before.in_sync, after.in_sync), &what);
  Name("placed on", Without(Placed(after), Placed(before)), &what);
  Name("no longer on", Without(Placed(before), Placed(after)), &what);
  Name("to leave:", Without(after.leaving, before.leaving), &what);
  if (what.empty()) return "";
  Name("now in sync:", after.in_sync, &what);
  return absl::StrCat(std::string(machine), ": ", what);
}

std::string EncodeWish(const SwitchoverWish& wish) {
  return absl::StrCat(wish.from.value, "\n", wish.to.value, "\n", Line(wish.who), "\n",
                      Line(wish.why));
}

SwitchoverWish DecodeWish(std::string_view value) {
  std::vector<std::string> lines = Lines(value, 4);
  return {cluster::NodeId(Number<uint32_t>(lines[0])), cluster::NodeId(Number<uint32_t>(lines[1])),
          std::move(lines[2]), std::move(lines[3])};
}

}  // namespace forebay::node
