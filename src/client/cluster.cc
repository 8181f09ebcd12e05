#include "client/cluster.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cluster_watch.h"

namespace forebay::client {
namespace {

// Heartbeats come each second.
constexpr absl::Duration kSilenceMax = absl::Seconds(2);
constexpr absl::Duration kFirstSilenceMin = absl::Milliseconds(500);
// Between rounds of all nodes, none of which can be watched; in the end less often.
constexpr absl::Duration kRoundPauseMin = absl::Milliseconds(50);
constexpr absl::Duration kRoundPauseMax = absl::Milliseconds(500);
constexpr absl::Duration kLatePauseMax = absl::Seconds(2);
constexpr int kLateRounds = 30;
// When calls to the leader fail so long, the node that calls it the leader is not believed alone.
constexpr absl::Duration kBelieved = absl::Seconds(1);
// How often nodes that failed are tried again while the leader itself is watched.
constexpr absl::Duration kForgive = absl::Seconds(10);

// What was known when a call failed.
constexpr char kRevisionPayload[] = "forebay/route-revision";
// How often a call that is not to be repeated goes elsewhere all the same.
constexpr size_t kRedirectsMax = 3;

uint64_t Revision(const absl::Status& failure) {
  const auto payload = failure.GetPayload(kRevisionPayload);
  uint64_t revision = 0;
  if (payload.has_value() && absl::SimpleAtoi(std::string(*payload), &revision)) return revision;
  return ~uint64_t{0};
}

void LeaveAll(const std::vector<std::shared_ptr<Channel>>& channels) {
  for (const auto& channel : channels) channel->Leave();
}

}  // namespace

Cluster::Cluster(const ConnectOptions& options, const std::vector<std::string>& seeds)
    : options_(options), route_(seeds, std::random_device{}()) {}

Cluster::~Cluster() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (watch_ != nullptr) watch_->TryCancel();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

// ---- channels

std::shared_ptr<Channel> Cluster::ChannelTo(const std::string& address) {
  auto& channel = channels_[address];
  if (channel == nullptr) {
    const bool watched = watched_ != nullptr && watched_->address() == address && !watched_->left();
    // What is watched already is connected already.
    channel = watched ? watched_ : std::make_shared<Channel>(options_, address);
  }
  return channel;
}

std::shared_ptr<Channel> Cluster::ChannelToWatch() {
  const std::string address = route_.NextWatch();
  const auto called = channels_.find(address);
  if (called != channels_.end()) return watched_ = called->second;
  if (watched_ == nullptr || watched_->address() != address || watched_->left()) {
    watched_ = std::make_shared<Channel>(options_, address);
  }
  return watched_;
}

void Cluster::Begin() {
  if (std::exchange(begun_, true) || !options_.follow) return;
  thread_ = std::thread([this] { Loop(); });
}

std::shared_ptr<Channel> Cluster::Current() {
  const std::lock_guard lock(mutex_);
  auto channel = ChannelTo(route_.current());
  Begin();
  return channel;
}

std::shared_ptr<Channel> Cluster::Any(int attempt) {
  const std::lock_guard lock(mutex_);
  Begin();
  const std::vector<std::string> addresses = route_.addresses();
  const auto current = std::find(addresses.begin(), addresses.end(), route_.current());
  const size_t at = static_cast<size_t>(current - addresses.begin()) + static_cast<size_t>(attempt);
  return ChannelTo(addresses[(at - 1) % addresses.size()]);
}

std::vector<std::shared_ptr<Channel>> Cluster::Moved(uint64_t revision_before) {
  std::vector<std::shared_ptr<Channel>> left;
  if (route_.revision() == revision_before) return left;
  failing_since_ = absl::InfiniteFuture();
  changed_.notify_all();
  for (auto it = channels_.begin(); it != channels_.end();) {
    if (it->first == route_.current()) {
      ++it;
      continue;
    }
    left.push_back(std::move(it->second));
    it = channels_.erase(it);
  }
  ChannelTo(route_.current())->ConnectNow();
  return left;
}

// ---- what calls tell

bool Cluster::several() const {
  const std::lock_guard lock(mutex_);
  return !route_.alone() && route_.addresses().size() > 1;
}

absl::Status Cluster::Failed(const Channel& channel, absl::Status status, const std::string& leader,
                             uint64_t epoch) {
  std::vector<std::shared_ptr<Channel>> left;
  uint64_t revision = 0;  // at once
  if (!channel.left()) {
    const std::lock_guard lock(mutex_);
    const bool behind = route_.leader_known() && channel.address() != route_.current();
    if (!behind) revision = route_.revision();
    const std::string said(status.message());
    if (leader.empty()) {
      route_.TakeFailure(channel.address(), said);
    } else {
      route_.TakeRefusal(channel.address(), leader, epoch, said);
    }
    if (!behind) left = Moved(revision);
    const absl::Time now = absl::Now();
    if (route_.leader_known() && channel.address() == route_.current()) {
      failing_since_ = std::min(failing_since_, now);
    }
    if (now - failing_since_ > kBelieved && watch_ != nullptr) {
      failing_since_ = now;
      watch_->TryCancel();
    }
  }
  LeaveAll(left);
  status.SetPayload(kRevisionPayload, absl::Cord(absl::StrCat(revision)));
  return status;
}

void Cluster::Answered(const Channel& /*channel*/) {
  const std::lock_guard lock(mutex_);
  failing_since_ = absl::InfiniteFuture();
}

bool Cluster::Elsewhere(const absl::Status& failure, int attempt) const {
  const std::lock_guard lock(mutex_);
  if (route_.alone()) return false;
  const auto tried = static_cast<size_t>(attempt);
  const size_t nodes = route_.addresses().size();
  if (route_.revision() > Revision(failure)) return tried < nodes + kRedirectsMax;
  return !route_.leader_known() && tried < nodes;
}

bool Cluster::Pause(const absl::Status& failure, absl::Duration duration,
                    Cancellation* cancellation) {
  uint64_t act = 0;
  bool cancelled = false;
  if (cancellation != nullptr) {
    act = cancellation->OnCancel([this, &cancelled] {
      const std::lock_guard lock(mutex_);
      cancelled = true;
      changed_.notify_all();
    });
  }
  {
    std::unique_lock lock(mutex_);
    const uint64_t seen = Revision(failure);
    changed_.wait_until(lock, absl::ToChronoTime(absl::Now() + duration),
                        [&] { return cancelled || route_.revision() > seen; });
  }
  if (cancellation != nullptr) cancellation->Forget(act);
  return !cancelled;
}

absl::Status Cluster::Ended(absl::Status status) const {
  status.ErasePayload(kRevisionPayload);
  const std::lock_guard lock(mutex_);
  const std::string asked = route_.alone() ? "" : route_.Asked();
  const bool nobody = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (asked.empty() || !nobody) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "; asked: ", asked));
}

// ---- the watch

absl::StatusOr<bool> Cluster::TakeNews(const std::string& from, const v1::ClusterNews& news) {
  std::vector<std::shared_ptr<Channel>> left;
  {
    const std::lock_guard lock(mutex_);
    failures_ = 0;
    if (news.has_view()) {
      const uint64_t revision = route_.revision();
      absl::Status status = route_.TakeView(from, news.view());
      if (!status.ok()) return status;
      left = Moved(revision);
    }
    if (from == route_.current() && absl::Now() - forgiven_ > kForgive) {
      forgiven_ = absl::Now();
      route_.Forgive();
    }
  }
  LeaveAll(left);
  const std::lock_guard lock(mutex_);
  return !route_.alone() && !route_.WatchesLeader(from);
}

absl::Status Cluster::Follow(Channel* channel, grpc::ClientContext* context) {
  absl::Duration silence;
  {
    const std::lock_guard lock(mutex_);
    const int round = failures_ / static_cast<int>(route_.addresses().size());
    silence = std::min(kFirstSilenceMin * (1 << std::min(round, 10)), kSilenceMax);
  }
  ClusterWatch watch(channel->shared(), context);
  while (true) {
    v1::ClusterNews news;
    if (absl::Status status = watch.Next(silence, &news); !status.ok()) return status;
    auto go_on = TakeNews(channel->address(), news);
    if (!go_on.ok()) return go_on.status();
    if (!*go_on) return absl::OkStatus();
    silence = kSilenceMax;
  }
}

bool Cluster::AwaitNext(const std::string& address, absl::Status ended) {
  std::unique_lock lock(mutex_);
  if (closing_) return false;
  if (absl::IsUnimplemented(ended)) {
    // Older than clusters are.
    ended = route_.TakeView(address, v1::ClusterView());
  }
  if (route_.alone()) {
    watched_ = nullptr;
    return false;
  }
  if (ended.ok()) return true;
  route_.WatchFailed(address, std::string(ended.message()));
  const int round = ++failures_ / static_cast<int>(route_.addresses().size());
  if (round == 0) return true;
  const absl::Duration pause = std::min(kRoundPauseMin * (1 << std::min(round - 1, 10)),
                                        round > kLateRounds ? kLatePauseMax : kRoundPauseMax);
  return !changed_.wait_until(lock, absl::ToChronoTime(absl::Now() + pause),
                              [this] { return closing_; });
}

void Cluster::Loop() {
  while (true) {
    grpc::ClientContext context;
    Authorize(options_, &context);
    std::shared_ptr<Channel> channel;
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
      channel = ChannelToWatch();
      watch_ = &context;
    }
    absl::Status ended = Follow(channel.get(), &context);
    {
      const std::lock_guard lock(mutex_);
      watch_ = nullptr;
    }
    if (!AwaitNext(channel->address(), std::move(ended))) return;
  }
}

}  // namespace forebay::client
