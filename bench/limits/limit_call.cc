#include "bench/limits/limit_call.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <cstring>

namespace forebay::bench {
namespace {

// A caller that does not read its answers is not read from either.
constexpr size_t kMaxAnswers = 256;

bool ReadHeader(grpc::ByteBuffer* message, LimitHeader* header) {
  grpc::ProtoBufferReader reader(message);
  auto* out = reinterpret_cast<char*>(header);
  size_t have = 0;
  const void* data = nullptr;
  int size = 0;
  while (have < sizeof(*header) && reader.Next(&data, &size)) {
    const size_t piece = std::min(sizeof(*header) - have, static_cast<size_t>(size));
    std::memcpy(out + have, data, piece);
    have += piece;
  }
  return have == sizeof(*header);
}

}  // namespace

LimitCall::LimitCall(LimitShared* shared) : shared_(shared) {
  ++operations_;
  shared_->service.RequestCall(&context_, &stream_, shared_->queue.get(), shared_->queue.get(),
                               &accepted_);
}

void LimitCall::OnAccepted(bool ok) {
  --operations_;
  if (!ok) {
    delete this;  // the server stops
    return;
  }
  Await(shared_);
  if (context_.method() == kUnaryMethod) {
    mode_ = Mode::kUnary;
  } else if (context_.method() == kStreamMethod) {
    mode_ = Mode::kStream;
  } else if (context_.method() == kStoreMethod) {
    mode_ = Mode::kStore;
  } else {
    Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "unknown method " + context_.method()));
    return;
  }
  Read();
}

void LimitCall::Read() {
  reading_ = true;
  ++operations_;
  stream_.Read(&message_, &read_);
}

void LimitCall::OnRead(bool ok) {
  --operations_;
  reading_ = false;
  if (finishing_) {
    DeleteWhenIdle();
  } else if (!ok) {
    half_closed_ = true;
    if (!writing_) Finish(grpc::Status::OK);
  } else {
    TakeMessage();
  }
}

void LimitCall::TakeMessage() {
  LimitHeader header;
  if (!ReadHeader(&message_, &header)) {
    Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "message shorter than its header"));
    return;
  }
  if (mode_ == Mode::kStore) shared_->crc_sum += shared_->store.Store(&message_);
  message_.Clear();
  if (mode_ == Mode::kUnary) {
    finishing_ = true;
    ++operations_;
    stream_.WriteAndFinish(shared_->source.Lend(header.answer_bytes), grpc::WriteOptions(),
                           grpc::Status::OK, &finished_);
    return;
  }
  if (header.answer_bytes > 0) answers_.push_back(header);
  if (!writing_ && !answers_.empty()) WriteNext();
  if (answers_.size() < kMaxAnswers) Read();
}

void LimitCall::WriteNext() {
  LimitHeader& answer = answers_.front();
  uint32_t bytes = answer.answer_bytes;
  if (answer.answer_frame_bytes > 0) bytes = std::min(bytes, answer.answer_frame_bytes);
  answer.answer_bytes -= bytes;
  if (answer.answer_bytes == 0) answers_.pop_front();
  writing_ = true;
  ++operations_;
  stream_.Write(shared_->source.Lend(bytes), &written_);
}

void LimitCall::OnWritten(bool ok) {
  --operations_;
  writing_ = false;
  if (finishing_) {
    DeleteWhenIdle();
  } else if (!ok) {
    answers_.clear();
    if (!reading_) Finish(grpc::Status::CANCELLED);
  } else if (!answers_.empty()) {
    WriteNext();
    if (!reading_ && !half_closed_ && answers_.size() < kMaxAnswers) Read();
  } else if (half_closed_) {
    Finish(grpc::Status::OK);
  }
}

void LimitCall::Finish(const grpc::Status& status) {
  finishing_ = true;
  ++operations_;
  stream_.Finish(status, &finished_);
}

void LimitCall::OnFinished(bool /*ok*/) {
  --operations_;
  DeleteWhenIdle();
}

void LimitCall::Drop() {
  --operations_;
  DeleteWhenIdle();
}

void LimitCall::DeleteWhenIdle() {
  if (operations_ == 0) delete this;
}

}  // namespace forebay::bench
