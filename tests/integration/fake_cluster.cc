#include "tests/integration/fake_cluster.h"

#include <atomic>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "server/cluster_map.h"
#include "server/grpc/rpc_server.h"
#include "server/ticker.h"
#include "tests/integration/proxy.h"

namespace forebay::integration {
namespace {

constexpr uint64_t kCluster = 4711;
constexpr std::string_view kWatch = "/forebay.v1.ClusterService/Watch";

}  // namespace

class FakeNode {
 public:
  explicit FakeNode(const std::string& backend) : proxy_(backend) {
    proxy_.AddTo(&methods_);
    server::AddClusterService(&map_, &ticker_, &methods_);
    server::RpcServerOptions options;
    options.addresses = {"127.0.0.1:0"};
    options.message_bytes_max = size_t{64} << 20;
    options.admit = [this](std::string_view method) { return Admit(method); };
    auto server = server::RpcServer::Start(options, &methods_);
    FOREBAY_CHECK(server.ok());
    server_ = *std::move(server);
    wire_ = std::make_unique<Wire>(absl::StrCat("127.0.0.1:", server_->ports()[0]));
    ticker_.Start();
  }
  ~FakeNode() {
    ticker_.Stop();
    wire_.reset();
    proxy_.Stop();
    server_->Shutdown(std::chrono::milliseconds(0));
  }

  void Tell(const v1::ClusterView& view) {
    const bool leads = view.cluster() == 0 || (view.leader() != 0 && view.leader() == view.node());
    map_.Set(view);
    const bool led = leads_.exchange(leads);
    if (led && !leads) {
      server_->EndCalls(server::DoesNotLead(view), server::ServedByAnyNode);
    }
  }
  Wire& wire() { return *wire_; }
  bool away = false;
  std::atomic<uint64_t> served{0}, refused{0};
  uint64_t watches() const { return methods_.Find(kWatch)->stats.running.load(); }

 private:
  absl::Status Admit(std::string_view method) {
    if (server::ServedByAnyNode(method)) return absl::OkStatus();
    ++(leads_ ? served : refused);
    return leads_ ? absl::OkStatus() : server::DoesNotLead(*map_.Get());
  }

  server::ClusterMap map_;
  server::Ticker ticker_;
  std::atomic<bool> leads_{false};
  Proxy proxy_;
  server::MethodTable methods_;
  std::unique_ptr<server::RpcServer> server_;
  std::unique_ptr<Wire> wire_;
};

FakeCluster::FakeCluster(const std::string& backend, size_t nodes) {
  for (size_t i = 0; i < nodes; ++i) nodes_.push_back(std::make_unique<FakeNode>(backend));
  for (size_t node = 1; node <= nodes; ++node) Tell(node, 0, epoch_);
}

FakeCluster::~FakeCluster() = default;

std::string FakeCluster::seeds() const {
  return absl::StrJoin(nodes_, ",", [](std::string* out, const auto& node) {
    absl::StrAppend(out, node->wire().address());
  });
}

const std::string& FakeCluster::address(size_t node) const {
  return nodes_[node - 1]->wire().address();
}

void FakeCluster::Tell(size_t node, size_t leader, uint64_t epoch) {
  v1::ClusterView view;
  view.set_cluster(kCluster);
  view.set_node(static_cast<uint32_t>(node));
  view.set_leader(static_cast<uint32_t>(leader));
  view.set_leader_epoch(epoch);
  for (size_t id = 1; id <= nodes_.size(); ++id) {
    v1::ClusterNode* member = view.add_nodes();
    member->set_id(static_cast<uint32_t>(id));
    member->set_address(address(id));
    member->set_up(!nodes_[id - 1]->away);
    member->set_role(id == leader ? "leads" : "follows");
  }
  nodes_[node - 1]->Tell(view);
}

void FakeCluster::Lead(size_t node) {
  leader_ = node;
  if (node != 0) ++epoch_;
  // The one that leads hears last: nobody is sent to it in vain.
  for (size_t id = 1; id <= nodes_.size(); ++id) {
    if (id != node && !nodes_[id - 1]->away) Tell(id, node, epoch_);
  }
  if (node != 0) Tell(node, node, epoch_);
}

void FakeCluster::Kill(size_t node) {
  nodes_[node - 1]->away = true;
  nodes_[node - 1]->wire().Cut();
}

void FakeCluster::Freeze(size_t node) {
  nodes_[node - 1]->away = true;
  nodes_[node - 1]->wire().LoseRequests();
  nodes_[node - 1]->wire().LoseReplies();
}

void FakeCluster::Revive(size_t node) {
  nodes_[node - 1]->wire().Cut();
  nodes_[node - 1]->wire().Mend();
  nodes_[node - 1]->away = false;
  Tell(node, leader_, epoch_);
}

void FakeCluster::BeAlone(size_t node) { nodes_[node - 1]->Tell(server::AloneView(1)); }

uint64_t FakeCluster::served(size_t node) const { return nodes_[node - 1]->served; }
uint64_t FakeCluster::refused(size_t node) const { return nodes_[node - 1]->refused; }
uint64_t FakeCluster::watches(size_t node) const { return nodes_[node - 1]->watches(); }

}  // namespace forebay::integration
