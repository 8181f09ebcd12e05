#include "peers/snapshot_stream.h"

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "forebay/v1/peer.pb.h"
#include "peers/frames.h"
#include "server/grpc/typed.h"

namespace forebay::peers {
namespace {

absl::Status ReadPiece(const grpc::ByteBuffer& body, grpc::Slice* slice, SnapshotPieceView* piece) {
  if (!body.DumpToSingleSlice(slice).ok()) return absl::DataLossError("piece: cannot be unpacked");
  return ReadSnapshotPiece({reinterpret_cast<const char*>(slice->begin()), slice->size()}, piece);
}

// Pieces between the stream and the thread that takes them. Thread-safe.
class Intake {
 public:
  // The stream: false if it should not be read on until there is room.
  bool Put(grpc::ByteBuffer piece) {
    MutexLock lock(&mutex_);
    bytes_ += piece.Length();
    pieces_.push_back(std::move(piece));
    changed_.NotifyAll();
    full_ = bytes_ >= kSnapshotQueueBytesMax;
    return !full_;
  }
  // No more pieces come.
  void End() {
    MutexLock lock(&mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }

  // The thread: waits for the next piece. `room`: the stream may be read on.
  absl::Status Take(absl::Duration timeout, grpc::ByteBuffer* piece, bool* room) {
    const Deadline deadline = DeadlineIn(timeout);
    MutexLock lock(&mutex_);
    while (pieces_.empty()) {
      if (ended_) return absl::DataLossError("the snapshot was broken off");
      if (changed_.WaitUntil(&mutex_, deadline) || !pieces_.empty()) continue;
      return absl::DeadlineExceededError(
          absl::StrCat("nothing of the snapshot came for ", absl::FormatDuration(timeout)));
    }
    piece->Swap(&pieces_.front());
    pieces_.pop_front();
    bytes_ -= piece->Length();
    *room = full_ && bytes_ < kSnapshotQueueBytesMax / 2;
    if (*room) full_ = false;
    return absl::OkStatus();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<grpc::ByteBuffer> pieces_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool full_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

class SnapshotStream final : public server::StreamHandler {
 public:
  explicit SnapshotStream(PeerService* service)
      : service_(service), intake_(std::make_shared<Intake>()) {}

  void OnStart(server::Stream& stream, const server::CallContext& /*call*/) override {
    stream_ = &stream;
    stream.Read();
  }
  void OnMessage(server::Stream& stream, grpc::ByteBuffer body) override {
    if (began_) {
      if (intake_->Put(std::move(body))) stream.Read();
      return;
    }
    began_ = true;
    if (absl::Status status = Begin(body); !status.ok()) return stream.Finish(status);
    stream.Read();
  }
  void OnHalfClose(server::Stream& stream) override {
    if (!began_) stream.Finish(absl::InvalidArgumentError("head: is missing"));
    intake_->End();
  }
  void OnDrain(server::Stream& stream) override {
    stream.Finish(absl::UnavailableError("shutting down"));
  }
  void OnDone() override { intake_->End(); }

 private:
  absl::Status Begin(const grpc::ByteBuffer& body);
  void Answer(const absl::Status& status, uint64_t bytes) {
    v1::SnapshotTaken taken;
    taken.set_bytes(bytes);
    if (status.ok()) stream_->Write(server::SerializeBody(taken));
    stream_->Finish(status);
  }

  PeerService* const service_;
  const std::shared_ptr<Intake> intake_;
  server::Stream* stream_ = nullptr;
  bool began_ = false;
};

// What the thread works on. It outlives the stream if it has to.
struct Taking {
  PeerService* service = nullptr;
  std::shared_ptr<Intake> intake;
  server::StreamRef stream;
  std::function<void()> read_on;  // on the stream's thread
  cluster::NodeId from;
  std::string machine, head;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};

absl::Status TakeEnd(const Taking& taking, const SnapshotEndView& end,
                     node::SnapshotReceiver* receiver) {
  if (end.bytes != taking.bytes || end.crc32c != taking.crc32c) {
    return absl::DataLossError(absl::StrCat("end: of ", end.bytes, " bytes, ", taking.bytes,
                                            " came, or the checksum is wrong"));
  }
  return receiver->End();
}

absl::Status TakeAll(Taking* taking) {
  const auto receiver = taking->service->port()->OnSnapshot(taking->machine, taking->head);
  if (receiver == nullptr) return absl::AbortedError("the snapshot is not wanted");
  while (true) {
    grpc::ByteBuffer body;
    grpc::Slice slice;
    SnapshotPieceView piece;
    bool room = false;
    FOREBAY_RETURN_IF_ERROR(
        taking->intake->Take(taking->service->options().progress_timeout, &body, &room));
    if (room) taking->stream.Post(taking->read_on);
    FOREBAY_RETURN_IF_ERROR(ReadPiece(body, &slice, &piece));
    if (piece.head.has_value()) return absl::InvalidArgumentError("head: comes twice");
    if (piece.end.has_value()) return TakeEnd(*taking, *piece.end, receiver.get());
    if (!receiver->Chunk(piece.chunk)) {
      return absl::AbortedError("the snapshot is not wanted any more");
    }
    taking->bytes += piece.chunk.size();
    taking->crc32c = JoinCrc32c(taking->crc32c, piece.chunk_crc32c, piece.chunk.size());
    taking->service->Count(taking->from, [&](PeerStats& stats) {
      stats.snapshot_bytes_received += piece.chunk.size();
      stats.last_heard = absl::Now();
    });
  }
}

absl::Status SnapshotStream::Begin(const grpc::ByteBuffer& body) {
  grpc::Slice slice;
  SnapshotPieceView piece;
  FOREBAY_RETURN_IF_ERROR(ReadPiece(body, &slice, &piece));
  if (!piece.head.has_value()) return absl::InvalidArgumentError("head: is missing");
  auto taking = std::make_shared<Taking>();
  FOREBAY_RETURN_IF_ERROR(service_->Check(piece.head->opening, &taking->from));
  taking->service = service_;
  taking->intake = intake_;
  taking->stream = stream_->ref();
  taking->read_on = [this] { stream_->Read(); };
  taking->machine = piece.head->machine;
  taking->head = piece.head->about;
  return service_->StartSnapshot([this, taking] {
    const absl::Status status = TakeAll(taking.get());
    taking->service->Count(taking->from, [&](PeerStats& stats) {
      ++(status.ok() ? stats.snapshots_received : stats.snapshots_refused);
    });
    taking->stream.Post([this, status, bytes = taking->bytes] { Answer(status, bytes); });
  });
}

}  // namespace

server::StreamFactory MakeSnapshotStream(PeerService* service) {
  return [service] { return std::make_unique<SnapshotStream>(service); };
}

}  // namespace forebay::peers
