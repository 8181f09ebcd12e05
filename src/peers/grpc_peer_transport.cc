#include "peers/grpc_peer_transport.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/tsan.h"
#include "peers/channel.h"
#include "peers/frames.h"

namespace forebay::peers {
namespace {

constexpr std::chrono::milliseconds kTick(200);

struct Posted final : Event {
  Posted(InFlight* in_flight, absl::AnyInvocable<void()> to_do)
      : in_flight(in_flight), task(std::move(to_do)) {
    in_flight->Add();
  }
  ~Posted() override { in_flight->Remove(); }
  void Handle(bool /*ok*/) override {
    std::move(task)();
    delete this;
  }

  InFlight* const in_flight;
  absl::AnyInvocable<void()> task;
  grpc::Alarm alarm;
};

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
  std::list<std::unique_ptr<SnapshotSend>> snapshots;
  {
    MutexLock lock(&mutex_);
    snapshots.swap(snapshots_);
  }
  for (const auto& snapshot : snapshots) snapshot->Cancel();
  snapshots.clear();
  in_flight_.AwaitNone();
  queue_.Shutdown();
  poller_.join();
}

void GrpcPeerTransport::Poll() {
  auto tick_at = std::chrono::steady_clock::now() + kTick;
  while (true) {
    void* tag = nullptr;
    bool ok = false;
    const auto event = queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kTick);
    if (event == grpc::CompletionQueue::SHUTDOWN) return;
    if (event == grpc::CompletionQueue::GOT_EVENT) {
      TsanAcquire(tag);
      static_cast<Event*>(tag)->Handle(ok);
    }
    const auto now = std::chrono::steady_clock::now();
    if (now < tick_at) continue;
    tick_at = now + kTick;
    Tick(now);
  }
}

void GrpcPeerTransport::Tick(Deadline now) {
  std::list<std::unique_ptr<SnapshotSend>> ended;
  MutexLock lock(&mutex_);
  for (const auto& [peer, link] : links_) link->Tick(now);
  for (const auto& snapshot : snapshots_) snapshot->Tick(now);
  ended = TakeEnded();
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

void GrpcPeerTransport::Post(absl::AnyInvocable<void()> task) {
  auto* posted = new Posted(&in_flight_, std::move(task));
  Event* const tag = posted;
  TsanRelease(tag);
  posted->alarm.Set(&queue_, gpr_now(GPR_CLOCK_MONOTONIC), tag);
}

std::list<std::unique_ptr<SnapshotSend>> GrpcPeerTransport::TakeEnded() {
  std::list<std::unique_ptr<SnapshotSend>> ended;
  for (auto at = snapshots_.begin(); at != snapshots_.end();) {
    const auto next = std::next(at);
    if ((*at)->ended()) ended.splice(ended.end(), snapshots_, at);
    at = next;
  }
  return ended;
}

void GrpcPeerTransport::SendSnapshot(cluster::NodeId to, std::string_view machine, std::string head,
                                     std::function<std::string()> next,
                                     absl::AnyInvocable<void(absl::Status)> done) {
  FOREBAY_CHECK(!machine.empty() && machine.size() <= kMachineBytesMax &&
                head.size() <= kSnapshotHeadBytesMax);
  const auto refuse = [&](absl::Status why) {
    Post([done = std::move(done), why = std::move(why)]() mutable { std::move(done)(why); });
  };
  const std::shared_ptr<MessageLink> link = Find(to);
  if (link == nullptr) {
    return refuse(absl::NotFoundError(absl::StrCat("node ", to.value, " is not known here")));
  }
  std::list<std::unique_ptr<SnapshotSend>> ended;
  MutexLock lock(&mutex_);
  ended = TakeEnded();
  if (snapshots_.size() >= options_.snapshots_max) {
    return refuse(absl::ResourceExhaustedError(
        absl::StrCat("more than ", options_.snapshots_max, " snapshots at once")));
  }
  snapshots_.push_back(
      std::make_unique<SnapshotSend>(&options_, link,
                                     OutgoingSnapshot{.to = to,
                                                      .address = link->address(),
                                                      .machine = std::string(machine),
                                                      .head = std::move(head),
                                                      .next = std::move(next),
                                                      .done = std::move(done)}));
}

void GrpcPeerTransport::GetStats(PeerStatsMap* stats) {
  MutexLock lock(&mutex_);
  for (const auto& [peer, link] : links_) link->GetStats(&(*stats)[peer]);
}

}  // namespace forebay::peers
