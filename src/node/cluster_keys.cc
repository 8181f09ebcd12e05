#include "node/cluster_keys.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"

namespace forebay::node {
namespace {

bool TakePrefix(std::string_view* name, std::string_view prefix) {
  if (!name->starts_with(prefix)) return false;
  name->remove_prefix(prefix.size());
  return true;
}

// Of "nodes/3" with the kind "nodes/"; else 0.
cluster::NodeId IdOf(std::string_view name, std::string_view kind) {
  uint32_t id = 0;
  if (!TakePrefix(&name, kind)) return cluster::NodeId();
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data(), end, id);
  return cluster::NodeId(parsed.ec == std::errc() && parsed.ptr == end ? id : 0);
}

}  // namespace

std::string ClusterPrefix(std::string_view cluster) {
  return absl::StrCat("/forebay/", std::string(cluster), "/");
}

std::string EncodeNodeAddress(const NodeAddress& address) {
  return absl::StrCat(address.grpc, " ", address.http, address.empty ? " empty" : "");
}

NodeAddress DecodeNodeAddress(std::string_view value) {
  const auto word = [&value] {
    const size_t end = std::min(value.find(' '), value.size());
    std::string found(value.substr(0, end));
    value.remove_prefix(std::min(end + 1, value.size()));
    return found;
  };
  NodeAddress address{.grpc = word(), .http = word()};
  address.empty = word() == "empty";
  return address;
}

cluster::NodeId ClusterState::leader() const {
  const auto ledger = machines.find("ledger");
  return ledger == machines.end() ? cluster::NodeId() : ledger->second.configuration.primary;
}

cluster::Epoch ClusterState::epoch() const {
  const auto ledger = machines.find("ledger");
  return ledger == machines.end() ? cluster::Epoch() : ledger->second.configuration.epoch;
}

std::vector<std::string> ClusterReader::Read(const WatchEvent& event) {
  std::vector<std::string> wrong;
  if (event.kind == WatchEvent::Kind::kState) return Read(KeyState{event.entries, event.revision});
  for (const WatchedChange& change : event.changes) {
    Put(change.key, change.value, change.revision, &wrong);
  }
  if (event.kind == WatchEvent::Kind::kChanges) {
    state_.revision = std::max(state_.revision, event.revision);
  }
  return wrong;
}

std::vector<std::string> ClusterReader::Read(const KeyState& state) {
  std::vector<std::string> wrong;
  // What was known of machines is not undone by what is read late.
  ClusterState fresh;
  fresh.machines = std::move(state_.machines);
  fresh.revision = std::max(state_.revision, state.revision);
  state_ = std::move(fresh);
  for (const KeyValue& entry : state.entries) Put(entry.key, entry.value, entry.revision, &wrong);
  known_ = true;
  return wrong;
}

void ClusterReader::Put(const std::string& key, const std::optional<std::string>& value,
                        uint64_t revision, std::vector<std::string>* wrong) {
  std::string_view name = key;
  if (!TakePrefix(&name, prefix_)) return;
  if (TakePrefix(&name, "machines/")) {
    ClusterState::Machine& machine = state_.machines[std::string(name)];
    if (!value || revision <= machine.revision.value) return;
    auto configuration = cluster::DecodeConfiguration(*value);
    if (!configuration.ok()) {
      wrong->push_back(absl::StrCat(key, ": ", configuration.status().message()));
      return;
    }
    machine = {cluster::ConfigurationRevision(revision), *std::move(configuration)};
    return;
  }
  if (name == "paused") {
    state_.paused = value;
    state_.paused_revision = value ? revision : 0;
    return;
  }
  if (name == "wish") {
    state_.wish.reset();
    if (value) state_.wish = DecodeWish(*value);
    state_.wish_revision = value ? revision : 0;
    return;
  }
  if (name.starts_with(kEventsPrefix)) {
    state_.events.erase(std::string(name));
    if (value) state_.events[std::string(name)] = DecodeEvent(*value);
    return;
  }
  if (const auto id = IdOf(name, "nodes/"); id != cluster::NodeId()) {
    if (value) state_.nodes[id] = DecodeNodeAddress(*value);
  } else if (const auto here = IdOf(name, "present/"); here != cluster::NodeId()) {
    state_.present.erase(here);
    if (value) state_.present[here] = DecodeNodeAddress(*value);
  } else if (const auto drained = IdOf(name, "drained/"); drained != cluster::NodeId()) {
    state_.drained.erase(drained);
    if (value) state_.drained[drained] = revision;
  }
}

}  // namespace forebay::node
