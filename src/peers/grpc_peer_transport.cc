#include "peers/grpc_peer_transport.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "peers/channel.h"

namespace forebay::peers {
namespace {

constexpr std::chrono::milliseconds kTick(200);

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcPeerTransport>> GrpcPeerTransport::Create(
    const PeerTransportOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  return std::unique_ptr<GrpcPeerTransport>(new GrpcPeerTransport(options));
}

GrpcPeerTransport::GrpcPeerTransport(const PeerTransportOptions& options) : options_(options) {
  poller_ = std::thread([this] { Poll(); });
}

GrpcPeerTransport::~GrpcPeerTransport() {
  SetPeers({});
  in_flight_.AwaitNone();
  queue_.Shutdown();
  poller_.join();
}

void GrpcPeerTransport::Poll() {
  std::vector<std::shared_ptr<MessageLink>> links;
  auto tick_at = std::chrono::steady_clock::now() + kTick;
  while (true) {
    void* tag = nullptr;
    bool ok = false;
    const auto event = queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kTick);
    if (event == grpc::CompletionQueue::SHUTDOWN) return;
    if (event == grpc::CompletionQueue::GOT_EVENT) static_cast<Event*>(tag)->Handle(ok);
    const auto now = std::chrono::steady_clock::now();
    if (now < tick_at) continue;
    tick_at = now + kTick;
    {
      MutexLock lock(&mutex_);
      for (const auto& [peer, link] : links_) links.push_back(link);
    }
    for (const auto& link : links) link->Tick(now);
    links.clear();
  }
}

std::shared_ptr<MessageLink> GrpcPeerTransport::Find(cluster::NodeId peer) {
  MutexLock lock(&mutex_);
  const auto found = links_.find(peer);
  return found == links_.end() ? nullptr : found->second;
}

void GrpcPeerTransport::SetPeers(const std::map<cluster::NodeId, std::string>& addresses) {
  MutexLock lock(&mutex_);
  for (auto at = links_.begin(); at != links_.end();) {
    if (addresses.contains(at->first)) {
      ++at;
      continue;
    }
    at->second->Close();
    at = links_.erase(at);
  }
  for (const auto& [peer, address] : addresses) {
    std::shared_ptr<MessageLink>& link = links_[peer];
    if (link == nullptr) {
      link = std::make_shared<MessageLink>(&options_, &queue_, &in_flight_, peer, address);
    } else {
      link->SetAddress(address);
    }
  }
}

void GrpcPeerTransport::Send(cluster::NodeId to, std::string_view machine, std::string bytes) {
  const std::shared_ptr<MessageLink> link = Find(to);
  if (link != nullptr) link->Send(machine, std::move(bytes));
}

void GrpcPeerTransport::SendSnapshot(cluster::NodeId /*to*/, std::string_view /*machine*/,
                                     std::string /*head*/, std::function<std::string()> /*next*/,
                                     absl::AnyInvocable<void(absl::Status)> done) {
  std::move(done)(absl::UnimplementedError("snapshots are not sent yet"));
}

void GrpcPeerTransport::GetStats(PeerStatsMap* stats) {
  MutexLock lock(&mutex_);
  for (const auto& [peer, link] : links_) link->GetStats(&(*stats)[peer]);
}

}  // namespace forebay::peers
