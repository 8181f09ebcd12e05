#include "tests/integration/cluster.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "client/connection.h"
#include "forebay/admin.h"

namespace forebay::integration {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(20);
constexpr absl::Duration kAsk = absl::Milliseconds(500);

}  // namespace

Cluster::Cluster(size_t nodes, std::vector<std::string> flags, size_t etcd_members)
    : etcd_(etcd_members) {
  for (uint32_t id = 1; id <= nodes; ++id) {
    std::vector<std::string> all = {
        absl::StrCat("--cluster.etcd=", absl::StrJoin(etcd_.endpoints(), ",")),
        absl::StrCat("--cluster.node=", id), absl::StrCat("--storage.directory=", directory(id)),
        absl::StrCat("--storage.segment_directory=", store()),
        absl::StrCat("--cluster.suspect_ms=", static_cast<int>(1'000 * Slowness()))};
    all.insert(all.end(), flags.begin(), flags.end());
    nodes_.push_back(std::make_unique<Daemon>(std::move(all)));
  }
  FOREBAY_CHECK(AwaitLeader() != 0);
  FOREBAY_CHECK(AwaitInSync());
}

std::string Cluster::directory(uint32_t id) const {
  return absl::StrCat(directory_.path(), "/node-", id);
}

std::string Cluster::seeds() const {
  return absl::StrJoin(nodes_, ",", [](std::string* out, const std::unique_ptr<Daemon>& node) {
    out->append(node->address());
  });
}

v1::ClusterView Cluster::View(uint32_t asked) const {
  const auto client = Connect(nodes_[asked - 1]->address());
  auto view = client::CallTyped<v1::ClusterView>(
      client->connection(), "/forebay.v1.ClusterService/Get", v1::GetClusterRequest(),
      {.timeout = kAsk * Slowness(), .retry = false});
  return view.ok() ? *view : v1::ClusterView();
}

bool Cluster::AwaitView(const std::function<bool(const v1::ClusterView&)>& good,
                        absl::Duration timeout) {
  const absl::Time until = absl::Now() + timeout * Slowness();
  while (absl::Now() < until) {
    for (uint32_t id = 1; id <= size(); ++id) {
      if (good(View(id))) return true;
    }
    absl::SleepFor(kLook);  // poll: the nodes agree
  }
  std::fprintf(stderr, "%s\n", Logs().c_str());
  return false;
}

uint32_t Cluster::AwaitLeader(uint32_t not_this, absl::Duration timeout) {
  uint32_t leader = 0;
  AwaitView(
      [&](const v1::ClusterView& view) {
        if (view.leader() == 0 || view.leader() == not_this) return false;
        const auto client = Connect(node(view.leader()).address());
        const bool serves =
            client::Admin(client.get()).Status({.timeout = kAsk * Slowness(), .retry = false}).ok();
        if (serves) leader = view.leader();
        return serves;
      },
      timeout);
  return leader;
}

bool Cluster::AwaitInSync(const std::vector<uint32_t>& but, absl::Duration timeout) {
  return AwaitView(
      [&](const v1::ClusterView& view) {
        return !view.machines().empty() &&
               std::ranges::all_of(view.machines(), [&](const v1::ClusterMachine& machine) {
                 for (uint32_t id = 1; id <= size(); ++id) {
                   if (std::ranges::find(but, id) == but.end() &&
                       std::ranges::find(machine.in_sync(), id) == machine.in_sync().end()) {
                     return false;
                   }
                 }
                 return true;
               });
      },
      timeout);
}

bool Cluster::AwaitMember(const std::string& machine, uint32_t id, bool in_sync,
                          absl::Duration timeout) {
  return AwaitView(
      [&](const v1::ClusterView& view) {
        return std::ranges::any_of(view.machines(), [&](const v1::ClusterMachine& of) {
          const bool is = std::ranges::find(of.in_sync(), id) != of.in_sync().end();
          return of.name() == machine && is == in_sync;
        });
      },
      timeout);
}

bool Cluster::AwaitOutOfSync(uint32_t id, absl::Duration timeout) {
  return AwaitView(
      [&](const v1::ClusterView& view) {
        return !view.machines().empty() &&
               std::ranges::none_of(view.machines(), [&](const v1::ClusterMachine& machine) {
                 return std::ranges::find(machine.in_sync(), id) != machine.in_sync().end();
               });
      },
      timeout);
}

std::string Cluster::Logs() const {
  std::string out;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    absl::StrAppend(&out, "node ", i + 1, " at ", nodes_[i]->address(), ":\n", nodes_[i]->Log());
  }
  return out;
}

}  // namespace forebay::integration
