#include "server/cluster_map.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/grpc/status.h"
#include "server/grpc/typed.h"

namespace forebay::server {
namespace {

// Clients give a watch up that is silent for 2 s; the beat comes at the first look after its time.
constexpr uint64_t kBeatMs = 900;
constexpr uint64_t kLookMs = 100;
// A node that is to lead does so in a moment, and clients must not wait for longer and longer.
constexpr uint32_t kSoonMs = 20;
constexpr size_t kQueuedBytesMax = size_t{64} << 10;

constexpr std::string_view kServedByAny[] = {
    "/forebay.v1.ClusterService/",
    "/forebay.v1.OperatorService/",
    "/forebay.v1.PeerService/",
    "/grpc.health.v1.Health/",
};

const v1::ClusterNode* Leader(const v1::ClusterView& view) {
  if (view.leader() == 0) return nullptr;
  for (const v1::ClusterNode& node : view.nodes()) {
    if (node.id() == view.leader()) return &node;
  }
  return nullptr;
}

}  // namespace

// One Watch: the view now, then each change, and heartbeats.
class ClusterMap::Watcher final : public StreamHandler {
 public:
  explicit Watcher(ClusterMap* map) : map_(map) {}

  void OnStart(Stream& stream, const CallContext& /*call*/) override { stream.Read(); }
  void OnMessage(Stream& stream, grpc::ByteBuffer body) override {
    v1::WatchClusterRequest request;
    if (stream_ != nullptr || !ParseBody(&body, &request)) {
      stream.Finish(
          absl::InvalidArgumentError("the request is no WatchClusterRequest, or the second"));
      return;
    }
    stream_ = &stream;
    id_ = map_->AddWatcher(stream.ref(), this);
    Tell(false);
    stream.Read();
  }
  void OnHalfClose(Stream& stream) override {
    if (stream_ == nullptr) stream.Finish(absl::InvalidArgumentError("the call has no request"));
  }
  void OnDrain(Stream& stream) override { stream.Finish(absl::UnavailableError("shutting down")); }
  void OnDone() override { map_->RemoveWatcher(id_); }

  // The newest view if it is not told yet, else a heartbeat if one is due.
  void Tell(bool beat) {
    const auto newest = map_->encoded();
    // Whoever does not read costs no more than this; the next beat tries again.
    if (newest == nullptr || stream_->queued_bytes() > kQueuedBytesMax) return;
    if (std::exchange(told_, newest->revision) != newest->revision) {
      stream_->Write(newest->news);
    } else if (beat && stream_->queued_bytes() == 0) {
      stream_->Write(newest->heartbeat);
    }
  }
  // The ticker's thread alone.
  bool Due(uint64_t now_ms) {
    if (now_ms < beat_ms_ + kBeatMs) return false;
    beat_ms_ = now_ms;
    return true;
  }

 private:
  ClusterMap* const map_;
  Stream* stream_ = nullptr;
  uint64_t id_ = 0;
  uint64_t told_ = 0;
  uint64_t beat_ms_ = 0;
};

void ClusterMap::Set(v1::ClusterView view) {
  MutexLock lock(&mutex_);
  view.set_revision(view_->revision());
  if (view.revision() > 0 && google::protobuf::util::MessageDifferencer::Equals(view, *view_)) {
    return;
  }
  view.set_revision(view_->revision() + 1);
  v1::ClusterNews news;
  news.set_revision(view.revision());
  auto encoded = std::make_shared<Encoded>();
  encoded->revision = view.revision();
  encoded->heartbeat = SerializeBody(news);
  *news.mutable_view() = view;
  encoded->news = SerializeBody(news);
  encoded_ = std::move(encoded);
  view_ = std::make_shared<const v1::ClusterView>(std::move(view));
  for (const auto& [id, watching] : watchers_) {
    watching.stream.Post([watcher = watching.watcher] { watcher->Tell(false); });
  }
}

std::shared_ptr<const v1::ClusterView> ClusterMap::Get() const {
  MutexLock lock(&mutex_);
  return view_;
}

std::shared_ptr<const ClusterMap::Encoded> ClusterMap::encoded() const {
  MutexLock lock(&mutex_);
  return encoded_;
}

uint64_t ClusterMap::AddWatcher(StreamRef stream, Watcher* watcher) {
  MutexLock lock(&mutex_);
  watchers_[++last_watcher_] = {std::move(stream), watcher};
  return last_watcher_;
}

void ClusterMap::RemoveWatcher(uint64_t id) {
  MutexLock lock(&mutex_);
  watchers_.erase(id);
}

void ClusterMap::Beat(uint64_t now_ms) {
  MutexLock lock(&mutex_);
  for (const auto& [id, watching] : watchers_) {
    if (!watching.watcher->Due(now_ms)) continue;
    watching.stream.Post([watcher = watching.watcher] { watcher->Tell(true); });
  }
}

void AddClusterService(ClusterMap* map, Ticker* ticker, MethodTable* methods) {
  methods->AddUnary(
      "/forebay.v1.ClusterService/Get",
      TypedUnary<v1::GetClusterRequest, v1::ClusterView>(
          [map](const CallContext&, const v1::GetClusterRequest&,
                TypedResponder<v1::ClusterView> responder) { responder.Reply(*map->Get()); }));
  methods->AddStream("/forebay.v1.ClusterService/Watch",
                     [map] { return std::make_unique<ClusterMap::Watcher>(map); });
  ticker->Add(kLookMs, [map](uint64_t now_ms) { map->Beat(now_ms); });
}

bool ServedByAnyNode(std::string_view method) {
  for (const std::string_view prefix : kServedByAny) {
    if (method.substr(0, prefix.size()) == prefix) return true;
  }
  return false;
}

absl::Status DoesNotLead(const v1::ClusterView& view) {
  const std::string self = absl::StrCat("node ", view.node(), " does not lead: ");
  const v1::ClusterNode* leader = Leader(view);
  if (leader == nullptr || leader->id() == view.node()) {
    absl::Status status = absl::UnavailableError(absl::StrCat(self, "no node is known that does"));
    if (leader == nullptr) return status;
    return WithRetryAfter(std::move(status), kSoonMs);
  }
  absl::Status status = absl::UnavailableError(
      absl::StrCat(self, "node ", leader->id(), " at ", leader->address(), " does"));
  if (leader->address().empty()) return status;
  return WithTrailer(WithTrailer(std::move(status), kLeaderKey, leader->address()), kLeaderEpochKey,
                     absl::StrCat(view.leader_epoch()));
}

v1::ClusterView AloneView(uint64_t run) {
  v1::ClusterView view;
  view.set_run(run);
  v1::ClusterNode* node = view.add_nodes();
  node->set_up(true);
  node->set_role("leads");
  return view;
}

}  // namespace forebay::server
