#include "server/grpc/call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/grpc/status.h"

namespace forebay::server {

Call::Call(CallShared* shared, Poller* poller) : shared_(shared), poller_(poller) {
  context_.AsyncNotifyWhenDone(&over_done_);
  shared_->service.RequestCall(&context_, &stream_, poller_->queue(), poller_->queue(), this);
}

Call::~Call() {
  if (!accepted_) return;
  if (served_ != nullptr) poller_->calls().erase(this);
  if (handler_ != nullptr) handler_->OnDone();
  link_->call = nullptr;
  shared_->calls.fetch_sub(1, std::memory_order_relaxed);
}

void Call::Drop() { delete this; }  // the server stops; this call was never made

void Call::Handle(bool ok) {
  if (!ok) {
    delete this;
    return;
  }
  Await(shared_, poller_);
  accepted_ = true;
  operations_ = 1;  // OnOver
  shared_->calls.fetch_add(1, std::memory_order_relaxed);
  began_ = std::chrono::steady_clock::now();
  link_ = std::make_shared<CallLink>(poller_->mailbox(), this, context_.deadline());
  Begin();
}

void Call::Begin() {
  Method* const method = shared_->methods->Find(context_.method());
  if (method == nullptr) {
    AnswerError(absl::UnimplementedError(absl::StrCat("unknown method ", context_.method())));
    return;
  }
  served_ = method;
  poller_->calls().insert(this);
  served_->stats.running.fetch_add(1, std::memory_order_relaxed);
  if (absl::Status status = Admit(); !status.ok()) {
    AnswerError(status);
    return;
  }
  if (served_->unary) {
    StartRead();
    return;
  }
  handler_ = served_->stream();
  handler_->OnStart(*this, *this);
}

absl::Status Call::Admit() const {
  if (shared_->calls.load(std::memory_order_relaxed) > shared_->calls_max) {
    constexpr uint32_t kRetryMs = 1000;
    return WithRetryAfter(absl::ResourceExhaustedError(
                              absl::StrCat("more than ", shared_->calls_max, " calls at once")),
                          kRetryMs);
  }
  if (shared_->authorize) {
    constexpr std::string_view kBearer = "Bearer ";
    const std::string value = Metadata("authorization");
    const bool bearer = std::string_view(value).substr(0, kBearer.size()) == kBearer;
    FOREBAY_RETURN_IF_ERROR(
        shared_->authorize(method(), bearer ? std::string_view(value).substr(kBearer.size()) : ""));
  }
  return shared_->admit ? shared_->admit(method()) : absl::OkStatus();
}

std::string Call::Metadata(std::string_view key) const {
  const auto& metadata = context_.client_metadata();
  const auto at = metadata.find(grpc::string_ref(key.data(), key.size()));
  return at == metadata.end() ? "" : std::string(at->second.data(), at->second.size());
}

void Call::OnServerDrain() {
  if (handler_ != nullptr && !answered_) handler_->OnDrain(*this);
}

void Call::End(const absl::Status& status) {
  if (answered_ || over_) return;
  answered_ = true;
  final_status_ = status;
  queue_.clear();
  queued_bytes_ = writing_ ? writing_bytes_ : 0;
  // A write that is under way comes back first.
  if (!writing_) StartFinish(status);
  link_->cancelled.store(true, std::memory_order_relaxed);
  if (on_cancel_) std::exchange(on_cancel_, nullptr)();
}

// ---- reading

void Call::Read() {
  if (!answered_ && !reading_) StartRead();
}

void Call::StartRead() {
  if (!CanBegin()) return;
  reading_ = true;
  ++operations_;
  stream_.Read(&message_, &read_done_);
}

void Call::OnRead(bool ok) {
  --operations_;
  reading_ = false;
  if (!answered_ && !over_) {
    if (ok) served_->stats.received_messages.fetch_add(1, std::memory_order_relaxed);
    grpc::ByteBuffer body;
    body.Swap(&message_);
    if (handler_ != nullptr) {
      ok ? handler_->OnMessage(*this, std::move(body)) : handler_->OnHalfClose(*this);
    } else if (ok) {
      served_->unary(*this, std::move(body), Responder(link_));
    } else {
      AnswerError(absl::InvalidArgumentError("the call has no request message"));
    }
  }
  DeleteWhenIdle();
}

// ---- answering

void Call::Answer(grpc::ByteBuffer body) {
  if (answered_ || !CanBegin()) return;
  answered_ = finishing_ = true;
  on_cancel_ = nullptr;
  served_->stats.sent_messages.fetch_add(1, std::memory_order_relaxed);
  const auto took = std::chrono::steady_clock::now() - began_;
  served_->stats.Took(
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()));
  CountEnd(grpc::StatusCode::OK);
  ++operations_;
  stream_.WriteAndFinish(body, grpc::WriteOptions(), grpc::Status::OK, &finish_done_);
}

void Call::AnswerError(const absl::Status& status) {
  if (answered_ || !CanBegin()) return;
  answered_ = true;
  on_cancel_ = nullptr;
  StartFinish(status);
}

void Call::SetOnCancel(Task task) {
  if (link_->cancelled.load(std::memory_order_relaxed)) {
    std::move(task)();
    return;
  }
  if (answered_) return;
  on_cancel_ = std::move(task);
}

void Call::Write(grpc::ByteBuffer body) {
  if (answered_ || over_) return;
  queued_bytes_ += body.Length();
  above_mark_ |= queued_bytes_ > StreamHandler::kDrainedBytes;
  queue_.push_back(std::move(body));
  if (!writing_) WriteNext();
}

void Call::WriteNext() {
  if (!CanBegin()) return;
  grpc::ByteBuffer body;
  body.Swap(&queue_.front());
  queue_.pop_front();
  writing_ = true;
  writing_bytes_ = body.Length();
  served_->stats.sent_messages.fetch_add(1, std::memory_order_relaxed);
  grpc::WriteOptions options;
  // What follows is there already, so the transport may put both into one packet.
  if (!queue_.empty()) options.set_buffer_hint();
  ++operations_;
  stream_.Write(body, options, &write_done_);
}

void Call::OnWritten(bool ok) {
  --operations_;
  writing_ = false;
  queued_bytes_ -= writing_bytes_;
  if (!ok) {
    queue_.clear();
    queued_bytes_ = 0;
  }
  if (!over_) {
    if (!queue_.empty()) {
      WriteNext();
    } else if (answered_ && !finishing_) {
      StartFinish(final_status_);
    }
    if (ok && above_mark_ && queued_bytes_ <= StreamHandler::kDrainedBytes) {
      above_mark_ = false;
      if (!answered_) handler_->OnDrained(*this);
    }
  }
  DeleteWhenIdle();
}

void Call::Finish(const absl::Status& status) {
  if (answered_ || over_) return;
  answered_ = true;
  final_status_ = status;
  if (!writing_ && queue_.empty()) StartFinish(status);
}

void Call::StartFinish(const absl::Status& status) {
  if (!CanBegin()) return;
  finishing_ = true;
  if (const uint32_t ms = RetryAfterMs(status); ms > 0) {
    context_.AddTrailingMetadata(kRetryAfterKey, absl::StrCat(ms));
  }
  ForEachTrailer(status, [this](std::string_view key, std::string_view value) {
    context_.AddTrailingMetadata(std::string(key), std::string(value));
  });
  CountEnd(static_cast<int>(status.code()));
  ++operations_;
  stream_.Finish(ToGrpcStatus(status), &finish_done_);
}

void Call::OnFinished(bool /*ok*/) {
  --operations_;
  DeleteWhenIdle();
}

void Call::OnOver(bool /*ok*/) {
  --operations_;
  over_ = true;
  if (!finishing_) {
    link_->cancelled.store(true, std::memory_order_relaxed);
    CountEnd(grpc::StatusCode::CANCELLED);
    queue_.clear();
    if (on_cancel_) std::exchange(on_cancel_, nullptr)();
  }
  DeleteWhenIdle();
}

void Call::CountEnd(int code) {
  if (served_ == nullptr || std::exchange(counted_, true)) return;
  served_->stats.Ended(code);
}

void Call::OperationDropped() {
  --operations_;
  DeleteWhenIdle();
}

void Call::DeleteWhenIdle() {
  if (operations_ == 0) delete this;
}

// ---- handles

Responder::~Responder() {
  if (link_ != nullptr) Fail(absl::InternalError("the call was dropped without an answer"));
}

void Responder::Reply(grpc::ByteBuffer body) {
  CallLink::Run(std::exchange(link_, nullptr), true,
                [body = std::move(body)](Call* call) mutable { call->Answer(std::move(body)); });
}

void Responder::Fail(const absl::Status& status) {
  CallLink::Run(std::exchange(link_, nullptr), true,
                [status](Call* call) { call->AnswerError(status); });
}

bool Responder::cancelled() const {
  return link_ == nullptr || link_->cancelled.load(std::memory_order_relaxed);
}

Deadline Responder::deadline() const { return link_->deadline; }

void Responder::OnCancel(Task task) {
  CallLink::Run(link_, true, [task = std::move(task)](Call* call) mutable {
    call->SetOnCancel(std::move(task));
  });
}

void StreamRef::Post(Task task) const {
  if (link_ == nullptr) return;
  CallLink::Run(link_, false, [task = std::move(task)](Call*) mutable { std::move(task)(); });
}

}  // namespace forebay::server
