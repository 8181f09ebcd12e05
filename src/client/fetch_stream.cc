#include "client/fetch_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/assembly.h"
#include "client/fetch_frame.h"

namespace forebay::client {
namespace {

// The daemon reads so many requests ahead; writing more could block.
constexpr uint32_t kPrefetchMax = 32;

std::vector<v1::FetchRequest> Numbered(std::vector<v1::FetchRequest> requests) {
  for (size_t i = 0; i < requests.size(); ++i) requests[i].set_id(i + 1);
  return requests;
}

}  // namespace

FetchStream::FetchStream(Connection* connection, std::vector<v1::FetchRequest> requests,
                         FetchSpec spec)
    : connection_(connection), requests_(Numbered(std::move(requests))), spec_(std::move(spec)) {
  if (!requests_.empty()) thread_ = std::thread([this] { Loop(); });
}

FetchStream::~FetchStream() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (stream_ != nullptr) stream_->Cancel();
    changed_.notify_all();
  }
  ending_.Cancel();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<bool> FetchStream::Next(MicroBatch* batch, const CallOptions& options) {
  const UsageMeter::Scope scope(&connection_->meter());
  bool cancelled = false;
  uint64_t act = 0;
  if (options.cancellation != nullptr) {
    act = options.cancellation->OnCancel([this, &cancelled] {
      const std::lock_guard lock(mutex_);
      cancelled = true;
      changed_.notify_all();
    });
  }
  absl::StatusOr<bool> result = false;
  {
    std::unique_lock lock(mutex_);
    const absl::Time deadline = absl::Now() + connection_->CallTimeout(options);
    const auto over = [&] {
      return !ready_.empty() || failed_ || cancelled || taken_ == requests_.size();
    };
    changed_.wait_until(lock, absl::ToChronoTime(deadline), over);
    if (!ready_.empty()) {
      *batch = std::move(ready_.front());
      ready_.pop_front();
      ++taken_;
      result = true;
    } else if (taken_ == requests_.size()) {
      result = false;
    } else if (failed_) {
      result = failure_;
    } else if (cancelled) {
      result = absl::CancelledError("cancelled by the caller");
    } else {
      result = absl::DeadlineExceededError(
          absl::StrCat("micro-batch ", taken_, " of ", requests_.size(), " did not come in time"));
    }
  }
  if (options.cancellation != nullptr) options.cancellation->Forget(act);
  if (result.ok() && *result) Ask(false);
  return result;
}

void FetchStream::Ask(bool anew) {
  const std::lock_guard write_lock(write_mutex_);
  while (true) {
    MessageStream* stream = nullptr;
    size_t index = 0;
    {
      const std::lock_guard lock(mutex_);
      stream = stream_;
      if (std::exchange(anew, false)) asked_ = received_;
      const size_t ahead = std::clamp(spec_.prefetch, 1u, kPrefetchMax);
      if (stream == nullptr || asked_ == requests_.size() || asked_ >= taken_ + ahead) return;
      index = asked_++;
    }
    // The loop takes the stream away under the write lock, so it is there.
    const auto bytes = std::make_shared<const std::string>(requests_[index].SerializeAsString());
    const Piece piece{*bytes, bytes};
    if (!stream->Write({&piece, 1})) return;
  }
}

void FetchStream::Fail(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  failed_ = true;
  failure_ = status;
  changed_.notify_all();
}

void FetchStream::Receive(MessageStream* stream) {
  UsageMeter::Scope scope(&connection_->meter());
  Assembly assembly(&spec_);
  Incoming message;
  FetchFrameView frame;
  while (stream->Read(&message)) {
    size_t index = 0;
    {
      const std::lock_guard lock(mutex_);
      index = received_;
    }
    if (!ReadFetchFrame(message.views(), &frame) || index == requests_.size() ||
        frame.id != requests_[index].id()) {
      return Fail(absl::InternalError("the daemon sent a frame that answers nothing"));
    }
    if (frame.error_code != 0) {
      return Fail(
          absl::Status(static_cast<absl::StatusCode>(frame.error_code), frame.error_message));
    }
    if (auto status = assembly.Add(frame); !status.ok()) return Fail(status);
    scope.Note();
    if (!assembly.complete()) continue;
    connection_->meter().AddFetched(assembly.bytes());
    MicroBatch batch = assembly.Take();
    batch.mini_batch = requests_[index].mini_batch();
    batch.micro_batch = requests_[index].micro_batch();
    assembly = Assembly(&spec_);
    const std::lock_guard lock(mutex_);
    ready_.push_back(std::move(batch));
    ++received_;
    changed_.notify_all();
    if (received_ == requests_.size()) return;
  }
}

void FetchStream::Loop() {
  for (int failures = 0;;) {
    auto stream = connection_->OpenStream("/forebay.v1.TrainerService/Fetch");
    size_t before = 0;
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
      stream_ = stream.get();
      before = received_;
    }
    Ask(true);
    Receive(stream.get());
    bool finished = false;
    {
      // A writer that is under way fails once the stream is cancelled.
      stream->Cancel();
      const std::lock_guard write_lock(write_mutex_);
      const std::lock_guard lock(mutex_);
      stream_ = nullptr;
      finished = closing_ || failed_ || received_ == requests_.size();
      if (received_ > before) failures = 0;
    }
    const absl::Status status = stream->Finish();
    if (finished) return;
    if (!status.ok() && !MayRetry(status) && !absl::IsInternal(status) &&
        !absl::IsUnknown(status) && !absl::IsCancelled(status)) {
      return Fail(status);
    }
    if (!connection_->PauseAfter(status, ++failures, &ending_)) return;
  }
}

}  // namespace forebay::client
