#include "server/grpc/fetch_stream.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "codec/wire.h"
#include "server/grpc/fetch_plan.h"
#include "server/grpc/typed.h"

namespace forebay::server {
namespace {

constexpr uint64_t kFrameBytesMin = 4096;

grpc::Slice ToSlice(FetchPiece* piece, size_t from, size_t size) {
  if (piece->data == nullptr) {
    // Own bytes are few; rows and fills are made for this frame.
    grpc::Slice made(size);
    piece->Read(from, size, reinterpret_cast<char*>(const_cast<uint8_t*>(made.begin())));
    return made;
  }
  char* const data = const_cast<char*>(piece->data) + from;
  if (!piece->block) return grpc::Slice(data, size, grpc::Slice::STATIC_SLICE);
  storage::BlockRef block = piece->block;
  return grpc::Slice(
      data, size, [](void* held) { static_cast<storage::Block*>(held)->Unref(); }, block.Release());
}

// One answer on its way out.
struct Outgoing {
  uint64_t id = 0;
  uint64_t frame_bytes = 0;
  FetchPlan plan;
  size_t piece = 0;
  size_t offset = 0;  // in that piece
  uint64_t left = 0;
  bool begun = false;
};

// Cuts the next frame: its own fields in one slice, then slices of blocks.
grpc::ByteBuffer NextFrame(Outgoing* out) {
  uint64_t bytes = std::min(out->left, out->frame_bytes);
  out->left -= bytes;
  std::string head;
  codec::WireWriter writer(&head);
  writer.Varint(1, out->id);
  if (!std::exchange(out->begun, true)) writer.Message(2, out->plan.layout);
  writer.Varint(4, out->left == 0 ? 1 : 0);
  if (bytes > 0) writer.MessageHead(3, bytes);
  std::vector<grpc::Slice> slices;
  slices.reserve(out->plan.pieces.size() - out->piece + 1);
  slices.emplace_back(head);
  while (bytes > 0) {
    FetchPiece& piece = out->plan.pieces[out->piece];
    const size_t size = std::min<uint64_t>(bytes, piece.size - out->offset);
    slices.push_back(ToSlice(&piece, out->offset, size));
    bytes -= size;
    out->offset += size;
    if (out->offset == piece.size) {
      piece = {};  // the frame holds what it needs
      ++out->piece;
      out->offset = 0;
    }
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

FetchKey KeyOf(const v1::FetchRequest& request) {
  return {.generation = Generation(request.generation()),
          .step = StepId(request.step()),
          .revision = Revision(request.revision()),
          .micro_batch = {.dp_rank = request.dp_rank(),
                          .mini_batch = request.mini_batch(),
                          .micro_batch = request.micro_batch()}};
}

class FetchStream final : public StreamHandler {
 public:
  explicit FetchStream(const FetchOptions& options) : options_(options) {}

  void OnStart(Stream& stream, const CallContext& /*call*/) override {
    stream_ = &stream;
    GoOn();
  }
  void OnMessage(Stream& stream, grpc::ByteBuffer body) override;
  void OnHalfClose(Stream& /*stream*/) override {
    reading_ = false;
    half_closed_ = true;
    GoOn();
  }
  void OnDrained(Stream& /*stream*/) override { GoOn(); }
  void OnDrain(Stream& /*stream*/) override {
    draining_ = true;
    GoOn();
  }

 private:
  void AskForView();
  void TakeView(absl::StatusOr<FetchView> view);
  using Held = absl::StatusOr<std::vector<storage::PayloadView>>;
  using TakeHeld = void (FetchStream::*)(FetchView view, Held held);
  storage::PayloadStore::LoadDone Then(FetchView view, TakeHeld take);
  void TakeHot(FetchView view, Held held);
  void TakePayloads(FetchView view, Held held);
  void TellWhyMissing(absl::Status missing);
  void TellLost(const FetchView& view, const absl::Status& why);
  v1::FetchRequest TakeRequest();
  void SendError(uint64_t id, const absl::Status& status);
  void SendFrames();
  void GoOn();

  const FetchOptions options_;
  Stream* stream_ = nullptr;
  bool reading_ = false;
  bool half_closed_ = false;
  bool draining_ = false;
  bool ended_ = false;
  bool asked_ = false;  // the view of requests_.front()
  std::deque<v1::FetchRequest> requests_;
  std::optional<Outgoing> outgoing_;
  FetchPlanner planner_;
};

void FetchStream::OnMessage(Stream& stream, grpc::ByteBuffer body) {
  reading_ = false;
  v1::FetchRequest request;
  if (!ParseBody(&body, &request)) {
    ended_ = true;
    stream.Finish(absl::InvalidArgumentError("the message is no forebay.v1.FetchRequest"));
    return;
  }
  requests_.push_back(std::move(request));
  GoOn();
}

void FetchStream::AskForView() {
  const v1::FetchRequest& request = requests_.front();
  asked_ = true;
  const FetchKey key = KeyOf(request);
  options_.engine->View(key, [this, ref = stream_->ref()](absl::StatusOr<FetchView> view) {
    ref.Post([this, view = std::move(view)]() mutable {
      TakeView(std::move(view));
      GoOn();
    });
  });
}

v1::FetchRequest FetchStream::TakeRequest() {
  v1::FetchRequest request = std::move(requests_.front());
  requests_.pop_front();
  asked_ = false;
  return request;
}

void FetchStream::TakeView(absl::StatusOr<FetchView> view) {
  if (!view.ok()) return SendError(TakeRequest().id(), view.status());
  const std::vector<PayloadId> ids = PayloadsOf(requests_.front(), *view);
  options_.store->Load(ids, storage::Parts::kHot, Then(*std::move(view), &FetchStream::TakeHot));
}

storage::PayloadStore::LoadDone FetchStream::Then(FetchView view, TakeHeld take) {
  return [this, ref = stream_->ref(), view = std::move(view), take](Held held) mutable {
    ref.Post([this, view = std::move(view), held = std::move(held), take]() mutable {
      (this->*take)(std::move(view), std::move(held));
      GoOn();
    });
  };
}

// The headers are there, and say whether what is wanted lies in a cold part.
void FetchStream::TakeHot(FetchView view, Held held) {
  if (!held.ok()) return TakePayloads(std::move(view), std::move(held));
  std::vector<storage::PayloadParts> wanted = PartsOf(requests_.front(), view, *held);
  if (wanted.empty()) return TakePayloads(std::move(view), std::move(held));
  held->clear();  // nothing is held while it waits for memory
  options_.store->LoadParts(std::move(wanted), Then(std::move(view), &FetchStream::TakePayloads));
}

void FetchStream::TakePayloads(FetchView view, Held held) {
  if (absl::IsNotFound(held.status())) return TellWhyMissing(held.status());
  if (absl::IsDataLoss(held.status())) return TellLost(view, held.status());
  const v1::FetchRequest request = TakeRequest();
  if (!held.ok()) return SendError(request.id(), held.status());
  auto plan = planner_.Plan(request, view, *held);
  if (!plan.ok()) return SendError(request.id(), plan.status());
  const uint64_t wanted =
      request.frame_bytes() > 0 ? request.frame_bytes() : options_.limits.frame_bytes_default;
  outgoing_ =
      Outgoing{.id = request.id(),
               .frame_bytes = std::clamp(wanted, kFrameBytesMin, options_.limits.frame_bytes_max)};
  outgoing_->left = plan->bytes;
  options_.engine->Answering(KeyOf(request), plan->bytes);
  outgoing_->plan = *std::move(plan);
}

// The view was good a moment ago: either the step has ended since, or its bytes were not found when
// the daemon started, and it is about to be planned without them.
void FetchStream::TellWhyMissing(absl::Status missing) {
  const FetchKey key = KeyOf(requests_.front());
  options_.engine->View(key, [this, ref = stream_->ref(),
                              missing = std::move(missing)](absl::StatusOr<FetchView> view) {
    ref.Post([this, view = std::move(view), missing = std::move(missing)] {
      if (view.ok()) return TellLost(*view, missing);
      // Planned without what is lost it says so itself.
      SendError(TakeRequest().id(),
                absl::IsDataLoss(view.status())
                    ? view.status()
                    : absl::AbortedError("the step has ended: its payloads are gone"));
      GoOn();
    });
  });
}

void FetchStream::TellLost(const FetchView& view, const absl::Status& why) {
  options_.engine->Lost(KeyOf(requests_.front()), view, why,
                        [this, ref = stream_->ref()](const absl::Status& status) {
                          ref.Post([this, status] {
                            SendError(TakeRequest().id(), status);
                            GoOn();
                          });
                        });
}

void FetchStream::SendError(uint64_t id, const absl::Status& status) {
  v1::FetchFrame frame;
  frame.set_id(id);
  frame.set_last(true);
  frame.set_error_code(static_cast<int>(status.code()));
  frame.set_error_message(std::string(status.message()));
  stream_->Write(SerializeBody(frame));
}

void FetchStream::SendFrames() {
  // Never below the mark at which OnDrained comes.
  const uint64_t queued_max =
      std::max<uint64_t>(options_.limits.queued_bytes_max, kDrainedBytes + 1);
  while (outgoing_.has_value() && stream_->queued_bytes() < queued_max) {
    stream_->Write(NextFrame(&*outgoing_));
    if (outgoing_->left == 0) outgoing_.reset();
  }
}

void FetchStream::GoOn() {
  if (ended_) return;
  SendFrames();
  if (!outgoing_.has_value() && !requests_.empty() && !asked_ &&
      stream_->queued_bytes() <= kDrainedBytes) {
    AskForView();
  }
  const bool idle = requests_.empty() && !outgoing_.has_value();
  if (idle && (half_closed_ || draining_)) {
    ended_ = true;
    stream_->Finish(half_closed_ ? absl::OkStatus() : absl::UnavailableError("shutting down"));
    return;
  }
  if (!reading_ && !half_closed_ && !draining_ &&
      requests_.size() < options_.limits.requests_in_flight_max) {
    reading_ = true;
    stream_->Read();
  }
}

}  // namespace

StreamFactory MakeFetchStream(const FetchOptions& options) {
  return [options] { return std::make_unique<FetchStream>(options); };
}

}  // namespace forebay::server
