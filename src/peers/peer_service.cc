#include "peers/peer_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "forebay/v1/peer.pb.h"
#include "peers/channel.h"
#include "peers/frames.h"
#include "peers/message_stream.h"
#include "peers/snapshot_stream.h"

namespace forebay::peers {

PeerService::PeerService(const PeerServiceOptions& options, node::PeerPort* port)
    : options_(options), port_(port) {}

PeerService::~PeerService() {
  std::list<Taker> takers;
  {
    MutexLock lock(&mutex_);
    takers.swap(takers_);
  }
  // The server is gone, and with it the streams that they would wait for.
  for (Taker& taker : takers) taker.thread.join();
}

void PeerService::AddTo(server::MethodTable* methods) {
  methods->AddStream(kMessagesMethod, MakeMessageStream(this));
  methods->AddStream(kSnapshotMethod, MakeSnapshotStream(this));
}

absl::Status PeerService::Check(std::string_view opening, cluster::NodeId* from) {
  v1::PeerOpening theirs;
  if (!theirs.ParseFromArray(opening.data(), static_cast<int>(opening.size()))) {
    return absl::InvalidArgumentError("opening: is no PeerOpening");
  }
  if (theirs.protocol() != kProtocol) {
    return absl::FailedPreconditionError(
        absl::StrCat("opening.protocol: is ", theirs.protocol(), ", version ", kProtocol,
                     " is spoken here: the daemons are of different versions"));
  }
  if (theirs.cluster() != options_.cluster) {
    return absl::FailedPreconditionError(absl::StrCat(
        "opening.cluster: is '", theirs.cluster(), "', this node is of '", options_.cluster, "'"));
  }
  if (theirs.to() != options_.self.value) {
    return absl::FailedPreconditionError(absl::StrCat("opening.to: is ", theirs.to(),
                                                      ", this is node ", options_.self.value,
                                                      ": is one node's address that of another?"));
  }
  if (theirs.from() == 0 || theirs.from() == options_.self.value) {
    return absl::FailedPreconditionError(absl::StrCat("opening.from: is ", theirs.from(),
                                                      ", this is node ", options_.self.value,
                                                      ": do two nodes have the same number?"));
  }
  MutexLock lock(&mutex_);
  const cluster::NodeId peer(theirs.from());
  if (!stats_.contains(peer) && stats_.size() >= kPeersMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("opening.from: more than ", kPeersMax, " different nodes"));
  }
  stats_[peer].last_heard = absl::Now();
  *from = peer;
  return absl::OkStatus();
}

void PeerService::Count(cluster::NodeId from, const std::function<void(PeerStats& stats)>& change) {
  MutexLock lock(&mutex_);
  change(stats_[from]);
}

absl::Status PeerService::StartSnapshot(std::function<void()> take) {
  MutexLock lock(&mutex_);
  for (auto at = takers_.begin(); at != takers_.end();) {
    if (!at->ended) {
      ++at;
      continue;
    }
    at->thread.join();
    at = takers_.erase(at);
  }
  if (takers_.size() >= options_.snapshots_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", options_.snapshots_max, " snapshots at once"));
  }
  Taker& taker = takers_.emplace_back();
  taker.thread = std::thread([&taker, take = std::move(take)] {
    take();
    taker.ended = true;
  });
  return absl::OkStatus();
}

void PeerService::GetStats(PeerStatsMap* stats) {
  MutexLock lock(&mutex_);
  for (const auto& [peer, ours] : stats_) {
    PeerStats& theirs = (*stats)[peer];
    theirs.received_messages = ours.received_messages;
    theirs.received_bytes = ours.received_bytes;
    theirs.corrupt_frames = ours.corrupt_frames;
    theirs.snapshots_received = ours.snapshots_received;
    theirs.snapshots_refused = ours.snapshots_refused;
    theirs.snapshot_bytes_received = ours.snapshot_bytes_received;
    theirs.last_heard = ours.last_heard;
  }
}

}  // namespace forebay::peers
