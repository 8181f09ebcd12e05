#include "peers/grpc_peer_transport.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
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
  void Begin(grpc::CompletionQueue* queue) {
    alarm.Set(queue, gpr_now(GPR_CLOCK_MONOTONIC), Tag());
  }
  void Complete(bool /*ok*/) override {
    std::move(task)();
    delete this;
  }

  InFlight* const in_flight;
  absl::AnyInvocable<void()> task;
  grpc::Alarm alarm;
};

}  // namespace

// Rings each kTick until it ends.
class GrpcPeerTransport::Ticks final : public Event {
 public:
  explicit Ticks(GrpcPeerTransport* owner) : owner_(owner) {
    owner_->in_flight_.Add();
    MutexLock lock(&mutex_);
    Set();
  }
  void End() {
    MutexLock lock(&mutex_);
    ended_ = true;
    alarm_.Cancel();
  }
  void Complete(bool /*ok*/) override {
    owner_->Tick();
    {
      MutexLock lock(&mutex_);
      if (!ended_) return Set();
    }
    owner_->in_flight_.Remove();
  }

 private:
  void Set() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    alarm_.Set(owner_->queue_, std::chrono::system_clock::now() + kTick, Tag());
  }

  GrpcPeerTransport* const owner_;
  Mutex mutex_;
  grpc::Alarm alarm_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::StatusOr<std::unique_ptr<GrpcPeerTransport>> GrpcPeerTransport::Create(
    const PeerTransportOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  return std::unique_ptr<GrpcPeerTransport>(new GrpcPeerTransport(options));
}

GrpcPeerTransport::GrpcPeerTransport(const PeerTransportOptions& options)
    : options_(options),
      own_queue_(options.own_thread ? std::make_unique<grpc::CompletionQueue>() : nullptr),
      queue_(own_queue_.get()) {
  if (queue_ == nullptr) return;
  poller_ = std::thread([this] { Poll(); });
  ticks_ = std::make_unique<Ticks>(this);
}

void GrpcPeerTransport::Share(grpc::CompletionQueue* queue) {
  FOREBAY_CHECK(queue_ == nullptr && queue != nullptr);
  queue_ = queue;
  ticks_ = std::make_unique<Ticks>(this);
}

void GrpcPeerTransport::Stop() {
  std::list<std::unique_ptr<SnapshotSend>> snapshots;
  {
    MutexLock lock(&mutex_);
    if (std::exchange(stopped_, true)) return;
    SetLinks({});
    snapshots.swap(snapshots_);
  }
  for (const auto& snapshot : snapshots) snapshot->Cancel();
  snapshots.clear();
  if (ticks_ != nullptr) ticks_->End();
  in_flight_.AwaitNone();
}

GrpcPeerTransport::~GrpcPeerTransport() {
  Stop();
  std::vector<absl::AnyInvocable<void()>> refused;
  {
    MutexLock lock(&mutex_);
    refused.swap(refused_);
  }
  for (auto& task : refused) std::move(task)();
  if (own_queue_ == nullptr) return;
  own_queue_->Shutdown();
  poller_.join();
}

void GrpcPeerTransport::Poll() {
  void* tag = nullptr;
  bool ok = false;
  while (own_queue_->Next(&tag, &ok)) static_cast<server::Event*>(tag)->Handle(ok);
}

void GrpcPeerTransport::Tick() {
  const Deadline now = std::chrono::steady_clock::now();
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
  if (!stopped_) SetLinks(addresses);
}

void GrpcPeerTransport::SetLinks(const std::map<cluster::NodeId, std::string>& addresses) {
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
      link = std::make_shared<MessageLink>(&options_, queue_, &in_flight_, peer, address);
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
  MutexLock lock(&mutex_);
  if (stopped_) {
    refused_.push_back(std::move(task));
  } else {
    (new Posted(&in_flight_, std::move(task)))->Begin(queue_);
  }
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
  bool room = false;
  {
    MutexLock lock(&mutex_);
    ended = TakeEnded();
    room = !stopped_ && snapshots_.size() < options_.snapshots_max;
    if (room) {
      snapshots_.push_back(
          std::make_unique<SnapshotSend>(&options_, link,
                                         OutgoingSnapshot{.to = to,
                                                          .address = link->address(),
                                                          .machine = std::string(machine),
                                                          .head = std::move(head),
                                                          .next = std::move(next),
                                                          .done = std::move(done)}));
    }
  }
  if (room) return;
  refuse(absl::ResourceExhaustedError(
      absl::StrCat("more than ", options_.snapshots_max, " snapshots at once")));
}

void GrpcPeerTransport::GetStats(PeerStatsMap* stats) {
  MutexLock lock(&mutex_);
  for (const auto& [peer, link] : links_) link->GetStats(&(*stats)[peer]);
}

}  // namespace forebay::peers
