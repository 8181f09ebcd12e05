#include "etcd/watcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "etcd/messages.h"

namespace forebay::etcd {
namespace {

using Kind = node::WatchEvent::Kind;

// A read goes on through all members, and then anew.
constexpr absl::Duration kReadTimeout = absl::Seconds(10);
constexpr absl::Duration kPauseMin = absl::Milliseconds(20);
constexpr absl::Duration kPauseMax = absl::Seconds(1);

}  // namespace

void Watcher::Start() {
  compare_ = what_.after.has_value();
  if (compare_) next_ = *what_.after + 1;
  Read();
}

void Watcher::End() {
  ended_ = true;
  if (stream_ != nullptr) stream_->Cancel();
  stream_ = nullptr;
  for (auto* timer : {&heartbeat_, &silence_, &pause_}) {
    if (timer->has_value()) loop_->Cancel(**timer);
    timer->reset();
  }
}

void Watcher::Read() {
  etcdserverpb::RangeRequest request = RangeOfPrefix(what_.prefix);
  // Only the revision is wanted.
  request.set_count_only(compare_);
  members_->Call(kRange, request.SerializeAsString(), DeadlineIn(kReadTimeout),
                 [self = shared_from_this()](const absl::StatusOr<std::string>& answer) {
                   if (!self->ended_) self->ReadDone(answer);
                 });
}

void Watcher::ReadDone(const absl::StatusOr<std::string>& answer) {
  const auto response = Parse<etcdserverpb::RangeResponse>(answer);
  if (!response.ok() || !members_->CheckCluster(response->header().cluster_id()).ok()) {
    return Pause();
  }
  const auto revision = static_cast<uint64_t>(response->header().revision());
  if (!compare_) {
    TellState(ToState(*response));
  } else {
    compare_ = false;
    if (*what_.after > revision) {
      // Of another etcd, or of one that was put back to an older state.
      gate_->Run({.kind = Kind::kCompacted, .revision = revision});
      if (!ended_) Read();
      return;
    }
    reading_ = false;
  }
  if (!ended_) Follow();
}

void Watcher::TellState(node::KeyState state) {
  reading_ = false;
  failures_ = 0;
  next_ = state.revision + 1;
  gate_->Run(
      {.kind = Kind::kState, .entries = std::move(state.entries), .revision = state.revision});
}

void Watcher::Follow() {
  const uint64_t number = ++stream_number_;
  const auto current = [self = shared_from_this(), number] {
    return !self->ended_ && self->stream_number_ == number;
  };
  Stream::Handler handler{.message =
                              [self = shared_from_this(), current](const std::string& bytes) {
                                if (current()) self->Message(bytes);
                              },
                          .end =
                              [self = shared_from_this(), current](const absl::Status& why) {
                                if (current()) self->Broken(why);
                              }};
  members_->Open(kWatch, DeadlineIn(kReadTimeout), std::move(handler),
                 [self = shared_from_this(), current](
                     absl::StatusOr<std::shared_ptr<Stream>> stream, size_t member) {
                   if (!current()) {
                     if (stream.ok()) (*stream)->Cancel();
                     return;
                   }
                   if (!stream.ok()) return self->Pause();
                   self->Opened(*std::move(stream), member);
                 });
}

void Watcher::Opened(std::shared_ptr<Stream> stream, size_t member) {
  stream_ = std::move(stream);
  member_ = member;
  etcdserverpb::WatchRequest request;
  auto* create = request.mutable_create_request();
  create->set_key(FirstOf(what_.prefix));
  create->set_range_end(BehindOf(what_.prefix));
  create->set_start_revision(static_cast<int64_t>(next_));
  create->set_fragment(true);
  stream_->Write(request.SerializeAsString());
  Heard();
  Heartbeat();
}

// The silence begins anew.
void Watcher::Heard() {
  if (silence_.has_value()) loop_->Cancel(*silence_);
  silence_ = loop_->At(DeadlineIn(options_->silence_max), [self = shared_from_this()] {
    self->silence_.reset();
    self->Broken(absl::UnavailableError(
        absl::StrCat("etcd: a member gives no sign of life on a watch's stream")));
  });
}

void Watcher::Heartbeat() {
  heartbeat_ = loop_->At(DeadlineIn(options_->heartbeat_interval), [self = shared_from_this()] {
    etcdserverpb::WatchRequest request;
    request.mutable_progress_request();
    // One that cannot be written is one that is not answered.
    self->stream_->Write(request.SerializeAsString());
    self->Heartbeat();
  });
}

void Watcher::Message(const std::string& bytes) {
  const auto response = Parse<etcdserverpb::WatchResponse>(bytes);
  if (!response.ok()) return Broken(response.status());
  absl::Status same = members_->CheckCluster(response->header().cluster_id());
  if (!same.ok()) return Broken(same);
  Heard();
  members_->Answered(member_, false);
  if (response->compact_revision() != 0) {
    const auto kept = static_cast<uint64_t>(response->compact_revision());
    gate_->Run({.kind = Kind::kCompacted, .revision = kept});
    if (!ended_) Broken(absl::OkStatus(), true);
    return;
  }
  if (response->canceled()) {
    // With an old token, too, and etcd 3.4 gives that no code.
    members_->ForgetToken();
    return Broken(
        absl::UnavailableError(absl::StrCat("etcd: ended the watch: ", response->cancel_reason())));
  }
  failures_ = 0;
  if (response->events_size() > 0) Events(*response);
}

void Watcher::Events(const etcdserverpb::WatchResponse& response) {
  node::WatchEvent event{.kind = Kind::kChanges};
  for (const mvccpb::Event& change : response.events()) {
    const auto revision = static_cast<uint64_t>(change.kv().mod_revision());
    // A member that lagged behind tells what was told before.
    if (revision < next_) continue;
    node::WatchedChange& told = event.changes.emplace_back();
    told.key = change.kv().key();
    told.revision = revision;
    if (change.type() == mvccpb::Event::PUT) told.value = change.kv().value();
  }
  if (event.changes.empty()) return;
  event.revision = event.changes.back().revision;
  // Of a response that is split the last revision may have more to come.
  next_ = event.revision + (response.fragment() ? 0 : 1);
  gate_->Run(std::move(event));
}

void Watcher::Broken(const absl::Status& why, bool read) {
  const bool was_open = stream_ != nullptr;
  if (was_open) stream_->Cancel();
  stream_ = nullptr;
  ++stream_number_;
  for (auto* timer : {&heartbeat_, &silence_}) {
    if (timer->has_value()) loop_->Cancel(**timer);
    timer->reset();
  }
  reading_ |= read;
  if (!why.ok()) members_->Suspect(member_, why);
  // The first one after something came is made up for at once.
  if (++failures_ > 1) return Pause();
  if (reading_) return Read();
  Follow();
}

void Watcher::Pause() {
  const size_t doublings = std::min<size_t>(failures_++, 10);
  const absl::Duration pause = std::min(kPauseMin * (1 << doublings), kPauseMax);
  pause_ = loop_->At(DeadlineIn(pause), [self = shared_from_this()] {
    self->pause_.reset();
    if (self->reading_) return self->Read();
    self->Follow();
  });
}

}  // namespace forebay::etcd
