#include "peers/message_link.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "forebay/v1/peer.pb.h"
#include "peers/channel.h"
#include "peers/frames.h"

namespace forebay::peers {
namespace {

constexpr absl::Duration kTellAgain = absl::Minutes(1);

}  // namespace

void InFlight::Add() {
  MutexLock lock(&mutex_);
  ++count_;
}

void InFlight::Remove() {
  MutexLock lock(&mutex_);
  --count_;
  changed_.NotifyAll();
}

void InFlight::AwaitNone() {
  MutexLock lock(&mutex_);
  while (count_ > 0) changed_.Wait(&mutex_);
}

size_t MessageLink::Message::weight() const { return bytes.size() + kMessageOverheadBytes; }

// An operation of gRPC's. While it is under way it holds its call.
class MessageLink::Operation final : public Event {
 public:
  using Done = void (MessageLink::*)(const std::shared_ptr<Call>& call, bool ok);
  Operation(Call* call, Done done) : call_(call), done_(done) {}

  void* Begin();
  void Complete(bool ok) override;

 private:
  Call* const call_;
  const Done done_;
  std::shared_ptr<Call> held_;
};

// One stream to the peer.
struct MessageLink::Call : std::enable_shared_from_this<Call> {
  // Gone last, when nothing of the call is left.
  struct Presence {
    explicit Presence(InFlight* in_flight) : in_flight(in_flight) { in_flight->Add(); }
    ~Presence() { in_flight->Remove(); }
    InFlight* const in_flight;
  };

  Call(std::shared_ptr<MessageLink> owner, InFlight* in_flight, std::string to_address)
      : presence(in_flight), link(std::move(owner)), address(std::move(to_address)) {}

  const Presence presence;
  const std::shared_ptr<MessageLink> link;
  const std::string address;
  grpc::Alarm alarm;
  std::shared_ptr<grpc::Channel> channel;
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  grpc::ByteBuffer incoming;
  grpc::Status status;

  // Under the link's mutex.
  bool started = false;
  bool welcomed = false;
  bool writing = false;  // one thread has it, and with it all below
  Deadline moved_at;     // when it was opened, or a write began
  absl::Status why;      // it was given up for; OK: what gRPC says

  std::string opening;         // until it is written
  std::vector<Message> batch;  // in the frame that is being written
  std::optional<Message> large;
  size_t large_at = 0;  // what of it has been written
  size_t frame_weight = 0, frame_bytes = 0, frame_messages = 0;
  std::vector<MessageView> views;

  Operation open_done{this, &MessageLink::Open};
  Operation start_done{this, &MessageLink::Started};
  Operation read_done{this, &MessageLink::Welcomed};
  Operation write_done{this, &MessageLink::Written};
  Operation finish_done{this, &MessageLink::Finished};
};

void* MessageLink::Operation::Begin() {
  held_ = call_->shared_from_this();
  return Tag();
}

void MessageLink::Operation::Complete(bool ok) {
  const std::shared_ptr<Call> call = std::move(held_);  // perhaps the last one
  (call->link.get()->*done_)(call, ok);
}

void MessageLink::Send(std::string_view machine, std::string bytes) {
  FOREBAY_CHECK(!machine.empty() && machine.size() <= kMachineBytesMax);
  std::shared_ptr<Call> call;
  bool open = false;
  {
    MutexLock lock(&mutex_);
    const size_t size = bytes.size();
    if (!Take({std::string(machine), std::move(bytes)}, &call)) {
      ++stats_.dropped_messages;
      stats_.dropped_bytes += size;
      return;
    }
    if (call == nullptr) return;
    open = !call->started;
    if (!open) TakeBatch(call.get());
  }
  if (!open) return WriteNext(call);
  // Names are looked up and certificates read where nobody waits for it.
  call->alarm.Set(queue_, gpr_now(GPR_CLOCK_MONOTONIC), call->open_done.Begin());
}

bool MessageLink::Take(Message message, std::shared_ptr<Call>* call) {
  const size_t weight = message.weight();
  if (closed_ || message.bytes.size() > kMessageBytesMax) return false;
  if (queued_bytes_ > 0 && queued_bytes_ + weight > options_->queue_bytes_max) return false;
  if (call_ == nullptr) {
    const Deadline now = std::chrono::steady_clock::now();
    if (now < retry_at_) return false;
    call_ = std::make_shared<Call>(shared_from_this(), in_flight_, address_);
    call_->moved_at = now;
    call_->opening = Opening(*options_, to_);
    *call = call_;
  } else if (call_->started && !call_->writing) {
    call_->writing = true;
    call_->moved_at = std::chrono::steady_clock::now();
    *call = call_;
  }
  waiting_.push_back(std::move(message));
  queued_bytes_ += weight;
  return true;
}

void MessageLink::Open(const std::shared_ptr<Call>& call, bool /*ok*/) {
  {
    MutexLock lock(&mutex_);
    if (call_ != call) return;
  }
  Authorize(*options_, &call->context);
  call->channel = Connect(*options_, call->address);
  call->stream =
      grpc::GenericStub(call->channel).PrepareCall(&call->context, kMessagesMethod, queue_);
  call->stream->StartCall(call->start_done.Begin());
}

void MessageLink::Started(const std::shared_ptr<Call>& call, bool ok) {
  if (!ok) return Finish(call);
  {
    MutexLock lock(&mutex_);
    call->started = true;
    call->writing = true;
    call->moved_at = std::chrono::steady_clock::now();
    TakeBatch(call.get());
  }
  call->stream->Read(&call->incoming, call->read_done.Begin());
  WriteNext(call);
}

void MessageLink::Welcomed(const std::shared_ptr<Call>& call, bool ok) {
  if (!ok) return Finish(call);
  grpc::Slice slice;
  v1::PeerWelcome welcome;
  const bool read = call->incoming.DumpToSingleSlice(&slice).ok() &&
                    welcome.ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
  {
    MutexLock lock(&mutex_);
    if (!read || welcome.node() != to_.value || welcome.protocol() != kProtocol) {
      call->why = absl::FailedPreconditionError(
          absl::StrCat("node ", to_.value, " at ", call->address, ": its welcome does not fit"));
      call->context.TryCancel();
    } else if (call_ == call && !call->welcomed) {
      call->welcomed = true;
      ++stats_.connects;
      failures_ = 0;
    }
  }
  // Nothing more comes; but so the end is seen.
  call->stream->Read(&call->incoming, call->read_done.Begin());
}

// What the next frame holds; false if there is nothing to say.
bool MessageLink::TakeBatch(Call* call) {
  call->batch.clear();
  call->frame_weight = call->frame_bytes = call->frame_messages = 0;
  if (call_.get() != call) return false;
  if (call->large.has_value()) return true;
  while (!waiting_.empty() && call->batch.size() < kFrameMessagesMax) {
    Message& next = waiting_.front();
    if (call->frame_bytes + next.bytes.size() > kFrameBytesMax) {
      if (!call->batch.empty()) break;
      call->large = std::move(next);
      call->large_at = 0;
      waiting_.pop_front();
      return true;
    }
    call->frame_bytes += next.bytes.size();
    call->frame_weight += next.weight();
    call->batch.push_back(std::move(next));
    waiting_.pop_front();
  }
  call->frame_messages = call->batch.size();
  return !call->batch.empty() || !call->opening.empty();
}

void MessageLink::WriteNext(const std::shared_ptr<Call>& call) {
  call->views.clear();
  for (const Message& message : call->batch) {
    call->views.push_back({.machine = message.machine, .payload = message.bytes});
  }
  if (call->large.has_value()) {
    const std::string_view rest = std::string_view(call->large->bytes).substr(call->large_at);
    const std::string_view piece = rest.substr(0, kFrameBytesMax);
    call->views.push_back(
        {.machine = call->large->machine, .payload = piece, .left = rest.size() - piece.size()});
    call->large_at += piece.size();
    call->frame_bytes = piece.size();
  }
  grpc::Slice slice(FrameSize(call->opening, call->views));
  WriteFrame(call->opening, call->views,
             reinterpret_cast<char*>(const_cast<uint8_t*>(slice.begin())));
  call->opening.clear();
  call->stream->Write(grpc::ByteBuffer(&slice, 1), call->write_done.Begin());
}

void MessageLink::Written(const std::shared_ptr<Call>& call, bool ok) {
  {
    MutexLock lock(&mutex_);
    if (call->large.has_value() && (!ok || call->large_at == call->large->bytes.size())) {
      call->frame_weight = call->large->weight();
      call->frame_messages = 1;
      call->large.reset();
    }
    if (ok) {
      stats_.sent_messages += call->frame_messages;
      stats_.sent_bytes += call->frame_bytes;
    } else {
      stats_.dropped_messages += call->frame_messages;
      stats_.dropped_bytes += call->frame_bytes;
    }
    // If not ok the end comes by the read.
    call->writing = ok && call_ == call;
    if (!call->writing) return;
    queued_bytes_ -= call->frame_weight;
    call->writing = TakeBatch(call.get());
    if (!call->writing) return;
    call->moved_at = std::chrono::steady_clock::now();
  }
  WriteNext(call);
}

void MessageLink::Finish(const std::shared_ptr<Call>& call) {
  call->stream->Finish(&call->status, call->finish_done.Begin());
}

void MessageLink::Finished(const std::shared_ptr<Call>& call, bool /*ok*/) {
  absl::Status why;
  {
    MutexLock lock(&mutex_);
    if (call_ != call) return;
    call_ = nullptr;
    ++stats_.failures;
    const uint32_t doublings = std::min(failures_++, 16u);
    const absl::Duration pause =
        std::min(options_->backoff_min * (int64_t{1} << doublings), options_->backoff_max);
    retry_at_ = DeadlineIn(pause);
    DropAll();
    why = call->why.ok() ? FromGrpc(call->status, to_, call->address) : call->why;
    if (!ShouldTell(why.code())) return;
  }
  if (options_->on_trouble) options_->on_trouble(to_, why);
}

bool MessageLink::ShouldTell(absl::StatusCode code) {
  const Deadline now = std::chrono::steady_clock::now();
  if (told_ == code && now < tell_again_) return false;
  told_ = code;
  tell_again_ = now + absl::ToChronoNanoseconds(kTellAgain);
  return true;
}

void MessageLink::DropAll() {
  // What is being written is counted when that has ended.
  for (const Message& message : waiting_) stats_.dropped_bytes += message.bytes.size();
  stats_.dropped_messages += waiting_.size();
  waiting_.clear();
  queued_bytes_ = 0;
}

void MessageLink::Detach() {
  if (call_ != nullptr) call_->context.TryCancel();
  call_ = nullptr;
  DropAll();
}

void MessageLink::SetAddress(std::string address) {
  MutexLock lock(&mutex_);
  if (address_ == address) return;
  address_ = std::move(address);
  Detach();
  failures_ = 0;
  retry_at_ = {};
}

void MessageLink::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  Detach();
}

void MessageLink::Tick(Deadline now) {
  MutexLock lock(&mutex_);
  if (call_ == nullptr || !call_->why.ok()) return;
  if (call_->welcomed && !call_->writing) return;
  if (now - call_->moved_at < absl::ToChronoNanoseconds(options_->progress_timeout)) return;
  call_->why = absl::DeadlineExceededError(
      absl::StrCat("node ", to_.value, " at ", call_->address, ": it has taken nothing for ",
                   absl::FormatDuration(options_->progress_timeout)));
  call_->context.TryCancel();
}

void MessageLink::CountSnapshot(bool taken, uint64_t bytes) {
  MutexLock lock(&mutex_);
  ++(taken ? stats_.snapshots_sent : stats_.snapshots_failed);
  stats_.snapshot_bytes_sent += bytes;
}

std::string MessageLink::address() {
  MutexLock lock(&mutex_);
  return address_;
}

void MessageLink::GetStats(PeerStats* stats) {
  MutexLock lock(&mutex_);
  stats->address = address_;
  stats->connected = call_ != nullptr && call_->welcomed;
  stats->sent_messages = stats_.sent_messages;
  stats->sent_bytes = stats_.sent_bytes;
  stats->dropped_messages = stats_.dropped_messages;
  stats->dropped_bytes = stats_.dropped_bytes;
  stats->queued_bytes = queued_bytes_;
  stats->connects = stats_.connects;
  stats->failures = stats_.failures;
  stats->snapshots_sent = stats_.snapshots_sent;
  stats->snapshots_failed = stats_.snapshots_failed;
  stats->snapshot_bytes_sent = stats_.snapshot_bytes_sent;
}

}  // namespace forebay::peers
