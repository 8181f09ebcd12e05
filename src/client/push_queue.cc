#include "client/push_queue.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "codec/wire.h"

namespace forebay::client {
namespace {

constexpr size_t kFrameItemsMax = 256;
constexpr size_t kFrameHeaderBytesMax = size_t{1} << 20;
// Smaller spans are copied into the frame: cheaper than a slice of their own.
constexpr size_t kCopiedBytesMax = 2048;
constexpr absl::Duration kTick = absl::Milliseconds(200);

}  // namespace

// Runs what is done, on a thread of its own; outlives the queue if the transport does.
class PushQueue::Completions {
 public:
  ~Completions() = default;

  void Born() {
    const std::lock_guard lock(mutex_);
    ++alive_;
  }
  void Died(std::function<void()> call, bool anywhere) {
    if (anywhere) {
      call();
      call = nullptr;
    }
    const std::lock_guard lock(mutex_);
    --alive_;
    if (call != nullptr) calls_.push_back(std::move(call));
    changed_.notify_all();
  }
  // Runs what there is; waits up to `timeout` for something. False once closed and all have died.
  bool Run(absl::Duration timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, absl::ToChronoTime(absl::Now() + timeout),
                        [this] { return !calls_.empty() || Over(); });
    while (!calls_.empty()) {
      auto call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      call();
      lock.lock();
    }
    return !Over();
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  bool Over() const { return closed_ && alive_ == 0 && calls_.empty(); }

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;
  size_t alive_ = 0;
  bool closed_ = false;
};

// An item on its way. Held by the queue and by each slice of its bytes; when the last lets go,
// `done` runs.
struct PushQueue::Live {
  Live(Item i, uint64_t t, std::shared_ptr<Completions> c)
      : item(std::move(i)), ticket(t), completions(std::move(c)) {
    for (const auto& part : item.payload) payload_bytes += part.size();
    for (const auto& header : item.headers) header_bytes += header.size() + 8;
    completions->Born();
  }
  ~Live() {
    completions->Died([done = std::move(item.done),
                       result = std::move(result)]() mutable { done(std::move(result)); },
                      item.done_anywhere);
  }

  Item item;
  const uint64_t ticket;
  const std::shared_ptr<Completions> completions;
  uint64_t payload_bytes = 0;
  size_t header_bytes = 0;
  // Under the queue's lock:
  bool finished = false;
  Outcomes outcomes;
  absl::StatusOr<Outcomes> result = absl::CancelledError("the push was given up");
};

PushQueue::PushQueue(Connection* connection, const std::string& method, uint64_t session,
                     uint64_t frame_bytes_max)
    : connection_(connection),
      method_("/forebay.v1.ActorService/" + method),
      session_(session),
      frame_bytes_max_(std::max<uint64_t>(frame_bytes_max, 4096)),
      completions_(std::make_shared<Completions>()) {
  writer_ = std::thread([this] { WriteLoop(); });
  timer_ = std::thread([this] { TimeLoop(); });
}

PushQueue::~PushQueue() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (stream_ != nullptr) stream_->Cancel();
    changed_.notify_all();
  }
  ending_.Cancel();
  writer_.join();
  completions_->Close();
  timer_.join();
}

uint64_t PushQueue::Add(Item item) {
  const std::lock_guard lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  auto live = std::make_shared<Live>(std::move(item), ticket, completions_);
  if (closing_) return ticket;
  tickets_.emplace(ticket, live);
  waiting_.push_back(std::move(live));
  changed_.notify_all();
  return ticket;
}

void PushQueue::Finish(Live* live, absl::StatusOr<Outcomes> result) {
  if (std::exchange(live->finished, true)) return;
  live->result = std::move(result);
  tickets_.erase(live->ticket);
}

void PushQueue::Abandon(uint64_t ticket, const absl::Status& why) {
  std::shared_ptr<Live> live;  // dies after the lock
  const std::lock_guard lock(mutex_);
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end() || (live = found->second.lock()) == nullptr) return;
  Finish(live.get(), why);
  const auto waits = std::find(waiting_.begin(), waiting_.end(), live);
  if (waits != waiting_.end()) {
    waiting_.erase(waits);
    return;
  }
  // The transport may hold its bytes: only the end of the stream makes it let go.
  broken_ = true;
  if (stream_ != nullptr) stream_->Cancel();
  changed_.notify_all();
}

void PushQueue::TimeLoop() {
  while (completions_->Run(kTick)) {
    std::vector<uint64_t> late;
    {
      const std::lock_guard lock(mutex_);
      const absl::Time now = absl::Now();
      for (const auto& [ticket, weak] : tickets_) {
        const auto live = weak.lock();
        if (live != nullptr && live->item.deadline <= now) late.push_back(ticket);
      }
    }
    for (const uint64_t ticket : late) {
      Abandon(ticket, absl::DeadlineExceededError("the daemon did not take the rollout in time"));
    }
  }
}

void PushQueue::WriteLoop() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
      if (closing_) break;
    }
    auto stream = connection_->OpenStream(method_);
    {
      const std::lock_guard lock(mutex_);
      stream_ = stream.get();
      broken_ = closing_;
    }
    std::thread reader([this, &stream] { ReadLoop(stream.get()); });
    Serve(stream.get());
    stream->Cancel();
    reader.join();
    const absl::Status status = stream->Finish();
    {
      const std::lock_guard lock(mutex_);
      stream_ = nullptr;
    }
    stream.reset();
    Recover(status);
  }
  std::deque<std::shared_ptr<Live>> left;  // die after the lock
  const std::lock_guard lock(mutex_);
  for (auto& live : waiting_) Finish(live.get(), absl::CancelledError("the actor was closed"));
  left.swap(waiting_);
}

std::vector<std::shared_ptr<PushQueue::Live>> PushQueue::TakeBatch() {
  std::vector<std::shared_ptr<Live>> batch;
  uint64_t payload = 0;
  size_t headers = 0;
  while (!waiting_.empty() && batch.size() < kFrameItemsMax) {
    Live& next = *waiting_.front();
    const bool alone =
        next.payload_bytes > frame_bytes_max_ || !next.item.group.empty() || isolate_ > 0;
    const bool fits = payload + next.payload_bytes <= frame_bytes_max_ &&
                      headers + next.header_bytes <= kFrameHeaderBytesMax && !alone;
    if (!batch.empty() && !fits) break;
    payload += next.payload_bytes;
    headers += next.header_bytes;
    batch.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    if (alone) break;
  }
  return batch;
}

void PushQueue::Serve(MessageStream* stream) {
  UsageMeter::Scope scope(&connection_->meter());
  while (true) {
    std::vector<std::shared_ptr<Live>> batch;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] {
        // One at a time: the next goes out when the one before is answered.
        return closing_ || broken_ || (!waiting_.empty() && (isolate_ == 0 || sent_.empty()));
      });
      if (closing_ || broken_) return;
      batch = TakeBatch();
    }
    const bool sent = SendFrames(stream, batch);
    scope.Note();
    if (!sent) return;
  }
}

namespace {

// Cuts a list of spans into frames.
class PayloadCursor {
 public:
  explicit PayloadCursor(const std::vector<std::string_view>* parts) : parts_(parts) {}
  // The next span, of at most `max` bytes; empty at the end.
  std::string_view Next(uint64_t max) {
    while (part_ < parts_->size() && offset_ == (*parts_)[part_].size()) {
      ++part_;
      offset_ = 0;
    }
    if (part_ == parts_->size()) return {};
    const std::string_view out = (*parts_)[part_].substr(offset_, max);
    offset_ += out.size();
    return out;
  }

 private:
  const std::vector<std::string_view>* parts_;
  size_t part_ = 0;
  size_t offset_ = 0;
};

// A message under construction: own bytes gather in a string until a span is large enough for a
// slice of its own.
class FrameBuilder {
 public:
  std::string& own() { return *own_; }
  void Add(std::string_view span, const std::shared_ptr<const void>& owner) {
    if (span.size() <= kCopiedBytesMax) {
      own_->append(span);
      return;
    }
    Flush();
    pieces_.push_back({span, owner});
  }
  absl::Span<const Piece> Pieces() {
    Flush();
    return pieces_;
  }

 private:
  void Flush() {
    if (own_->empty()) return;
    pieces_.push_back({*own_, own_});
    own_ = std::make_shared<std::string>();
  }
  std::shared_ptr<std::string> own_ = std::make_shared<std::string>();
  std::vector<Piece> pieces_;
};

}  // namespace

// The first frame holds all headers; payload that does not fit goes on in frames of its own.
bool PushQueue::SendFrames(MessageStream* stream, const std::vector<std::shared_ptr<Live>>& items) {
  std::vector<PayloadCursor> cursors;
  uint64_t left = 0;
  for (const auto& live : items) {
    cursors.emplace_back(&live->item.payload);
    left += live->payload_bytes;
  }
  size_t at = 0;
  for (bool first = true; first || left > 0; first = false) {
    uint64_t bytes = std::min(left, frame_bytes_max_);
    left -= bytes;
    Frame frame{.items = items, .ends = left == 0};
    {
      const std::lock_guard lock(mutex_);
      if (!first && (broken_ || closing_)) return false;
      frame.number = next_frame_++;
      // Noted before anything is written, so that a failure finds them.
      sent_.push_back(frame);
    }
    FrameBuilder builder;
    codec::WireWriter writer(&builder.own());
    writer.Fixed(1, session_);
    writer.Varint(2, frame.number);
    if (first) {
      for (const auto& live : items) {
        for (const auto& header : live->item.headers) writer.Message(3, header);
        writer.Bytes(5, live->item.group);
      }
    }
    if (bytes > 0) writer.MessageHead(4, bytes);
    connection_->meter().AddPushed(bytes);
    while (bytes > 0) {
      const std::string_view span = cursors[at].Next(bytes);
      if (span.empty()) {
        ++at;
        continue;
      }
      builder.Add(span, items[at]);
      bytes -= span.size();
    }
    if (!stream->Write(builder.Pieces())) return false;
  }
  return true;
}

void PushQueue::ReadLoop(MessageStream* stream) {
  UsageMeter::Scope scope(&connection_->meter());
  Incoming message;
  while (stream->Read(&message)) {
    v1::PushReply reply;
    const std::string_view bytes = message.Whole();
    if (!reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || !TakeReply(reply)) {
      stream->Cancel();
    }
    scope.Note();
  }
  const std::lock_guard lock(mutex_);
  broken_ = true;
  changed_.notify_all();
}

// False if it answers nothing that was asked.
bool PushQueue::TakeReply(const v1::PushReply& reply) {
  Frame frame;  // its items die after the lock
  const std::lock_guard lock(mutex_);
  if (sent_.empty() || sent_.front().number != reply.frame()) return false;
  frame = std::move(sent_.front());
  sent_.pop_front();
  failures_ = 0;
  size_t base = 0;
  for (const auto& live : frame.items) {
    const size_t count = live->item.headers.size();
    if (live->outcomes.empty()) {
      live->outcomes.resize(count);
      for (auto& outcome : live->outcomes) outcome.set_result(v1::PUSH_RESULT_ACCEPTED);
    }
    for (const auto& outcome : reply.outcomes()) {
      if (outcome.index() >= base && outcome.index() < base + count) {
        live->outcomes[outcome.index() - base] = outcome;
      }
    }
    base += count;
    if (!frame.ends) continue;
    Finish(live.get(), std::move(live->outcomes));
    if (isolate_ > 0) --isolate_;
  }
  changed_.notify_all();
  return true;
}

void PushQueue::Recover(const absl::Status& status) {
  std::vector<std::shared_ptr<Live>> ended;  // die after the lock
  int failures = 0;
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Live>> unanswered;
    for (const Frame& frame : sent_) {
      for (const auto& live : frame.items) {
        const bool again =
            std::find(unanswered.begin(), unanswered.end(), live) != unanswered.end();
        if (!again && !live->finished) unanswered.push_back(live);
        if (live->finished) ended.push_back(live);
      }
    }
    sent_.clear();
    if (closing_) {
      for (const auto& live : unanswered) {
        Finish(live.get(), absl::CancelledError("the actor was closed"));
        ended.push_back(live);
      }
      return;
    }
    const bool refused = absl::IsInvalidArgument(status);
    // Our own Cancel (an item was given up) leaves the rest to be sent again.
    const bool passing = status.ok() || MayRetry(status) || absl::IsCancelled(status) ||
                         absl::IsInternal(status) || absl::IsUnknown(status);
    if ((refused && unanswered.size() == 1) || (!refused && !passing)) {
      for (const auto& live : unanswered) Finish(live.get(), status);
      ended.insert(ended.end(), unanswered.begin(), unanswered.end());
      isolate_ -= std::min<size_t>(isolate_, unanswered.size());
      unanswered.clear();
    } else if (refused) {
      isolate_ = unanswered.size();
    }
    for (auto& live : unanswered) live->outcomes.clear();
    waiting_.insert(waiting_.begin(), unanswered.begin(), unanswered.end());
    if (passing && !status.ok() && !absl::IsCancelled(status)) failures = ++failures_;
  }
  ended.clear();
  // The loop sees by itself that it ends.
  connection_->PauseAfter(status, failures, &ending_);
}

}  // namespace forebay::client
