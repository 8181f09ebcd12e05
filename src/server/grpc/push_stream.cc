#include "server/grpc/push_stream.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/actor_messages.h"
#include "codec/push_frame.h"
#include "server/grpc/incoming_rollout.h"
#include "server/grpc/status.h"

namespace forebay::server {
namespace {

// A frame that was read and is not answered yet.
struct FrameRecord {
  uint64_t number = 0;
  uint64_t bytes = 0;
  uint32_t accepted = 0;
  std::vector<RefusedRollout> refused;
  uint32_t waits_for = 0;  // answers of the engine
};

class PushStream final : public StreamHandler {
 public:
  PushStream(const PushOptions& options, bool groups) : options_(options), groups_(groups) {}

  void OnStart(Stream& stream, const CallContext& call) override;
  void OnMessage(Stream& stream, grpc::ByteBuffer body) override;
  void OnHalfClose(Stream& stream) override;
  void OnDrained(Stream& /*stream*/) override { GoOn(); }
  void OnDrain(Stream& /*stream*/) override;
  void OnDone() override;

 private:
  // A batch on its way through store and engine: the sequence number of the frame that is answered
  // with it, and for each rollout its index within the frame that began it.
  struct Pending {
    PushBatch batch;
    PushGroupRequest group;
    std::vector<PayloadId> ids;
    uint64_t sequence = 0;
    std::vector<uint32_t> indexes;
    std::vector<uint64_t> attempts;
  };

  absl::Status TakeFrame();
  absl::Status PlanRollouts();
  absl::Status CheckGroup();
  // True if the memory is there; else the stream waits for it.
  bool ReserveOrWait();
  void StorePayload();
  void PushEnded(uint32_t begin, FrameRecord* record);
  void Store(const std::shared_ptr<Pending>& pending, absl::Span<storage::PayloadBuilder> payloads);
  static void SendToEngine(const PushOptions& options, bool groups, PushStream* self,
                           const StreamRef& ref, const std::shared_ptr<Pending>& pending);
  void Answered(const Pending& pending, std::vector<shard::PushOutcome> outcomes);
  void FlushReplies();
  void GoOn();
  void End(const absl::Status& status);
  bool MayRead() const;
  void Watch();
  void EndStalled(uint64_t frames, const std::string& why);

  const PushOptions options_;
  const bool groups_;
  Stream* stream_ = nullptr;
  StreamRef ref_;
  bool reading_ = false;
  bool half_closed_ = false;
  bool draining_ = false;
  bool ended_ = false;

  SessionId session_;
  // The message at hand; kept while the stream waits for memory.
  std::vector<grpc::Slice> slices_;
  std::vector<std::string_view> views_;
  codec::PushFrameView frame_;
  uint64_t message_bytes_ = 0;
  std::optional<storage::WaiterId> waiter_;
  uint64_t waits_for_bytes_ = 0;

  // Rollouts whose headers have come. Those below next_ have ended; next_ is being filled.
  IncomingRollouts incoming_{options_.cold_columns};
  uint64_t watch_ = 0;         // 0: no rollout is half here
  uint64_t watch_frames_ = 0;  // that left it so
  PushGroupRequest group_;

  std::deque<FrameRecord> frames_;  // oldest first
  uint64_t first_sequence_ = 0;     // of frames_.front()
  uint64_t bytes_in_flight_ = 0;
};

void PushStream::OnStart(Stream& stream, const CallContext& /*call*/) {
  stream_ = &stream;
  ref_ = stream.ref();
  GoOn();
}

void PushStream::OnMessage(Stream& /*stream*/, grpc::ByteBuffer body) {
  reading_ = false;
  slices_.clear();
  views_.clear();
  if (!body.Dump(&slices_).ok()) {
    End(absl::InvalidArgumentError("frame: cannot be read"));
    return;
  }
  for (const grpc::Slice& slice : slices_) {
    views_.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  message_bytes_ = body.Length();
  if (absl::Status status = TakeFrame(); !status.ok()) {
    End(status);
    return;
  }
  if (ReserveOrWait()) StorePayload();
  GoOn();
}

absl::Status PushStream::TakeFrame() {
  const auto wrong = [](const codec::FieldError& error) {
    return absl::InvalidArgumentError(absl::StrCat(error.field, ": ", error.message));
  };
  if (!frame_.Split(views_)) return wrong(frame_.error());
  if (frame_.session() != 0) session_ = SessionId(frame_.session());
  if (session_.value == 0) return absl::InvalidArgumentError("session: is 0 in the first frame");
  const bool goes_on = incoming_.left() > 0;
  if (goes_on && !frame_.rollouts().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rollouts: the rollouts before lack ", incoming_.left(), " bytes of payload"));
  }
  if (!goes_on) {
    if (absl::Status status = PlanRollouts(); !status.ok()) return status;
  }
  if (frame_.payload_bytes() > incoming_.left()) {
    return absl::InvalidArgumentError(absl::StrCat("payload: has ", frame_.payload_bytes(),
                                                   " bytes, the rollouts take ", incoming_.left()));
  }
  frames_.push_back({.number = frame_.frame(), .bytes = message_bytes_});
  bytes_in_flight_ += message_bytes_;
  return absl::OkStatus();
}

absl::Status PushStream::PlanRollouts() {
  incoming_.Begin(options_.engine->Names(), frame_.rollouts().size());
  const codec::HeaderRules rules{.rollout_bytes_max = options_.limits.rollout_bytes_max};
  for (std::string_view header : frame_.rollouts()) {
    const codec::FieldError error = incoming_.Add(header, rules, options_.store->budget());
    if (error.ok()) continue;
    // Nobody knows how much payload to skip.
    return absl::InvalidArgumentError(
        absl::StrCat("rollouts[", incoming_.size(), "].", error.field, ": ", error.message));
  }
  return groups_ ? CheckGroup() : absl::OkStatus();
}

absl::Status PushStream::CheckGroup() {
  codec::GroupHeader group;
  if (!frame_.has_group()) return absl::InvalidArgumentError("group: is missing");
  if (!codec::DecodeGroupHeader(frame_.group(), &group)) {
    return absl::InvalidArgumentError("group: is no GroupHeader");
  }
  if (group.request_id == 0) return absl::InvalidArgumentError("group.request_id: is 0");
  if (group.external_id.empty()) return absl::InvalidArgumentError("group.external_id: is empty");
  if (incoming_.size() == 0) return absl::InvalidArgumentError("rollouts: a group needs some");
  group_ = {.request_id = group.request_id,
            .source = std::string(group.source),
            .external_id = std::string(group.external_id),
            .payload = std::string(group.payload)};
  // A group is pushed whole or not at all.
  incoming_.RefuseAllIfAny();
  return absl::OkStatus();
}

bool PushStream::ReserveOrWait() {
  const uint64_t bytes = incoming_.TakeUnreserved();
  storage::PayloadBudget& budget = options_.store->budget();
  if (bytes == 0 || budget.TryReserve(bytes)) return true;
  waits_for_bytes_ = bytes;
  waiter_ = budget.Await(bytes, incoming_.first_attempt(), [this, ref = ref_] {
    ref.Post([this] {
      waiter_.reset();
      StorePayload();
      GoOn();
    });
  });
  return false;
}

void PushStream::StorePayload() {
  const uint32_t begin = incoming_.ended();
  incoming_.Fill(frame_.payload(), &options_.store->budget());
  slices_.clear();
  PushEnded(begin, &frames_.back());
  if (incoming_.left() > 0 || watch_ != 0) Watch();
  FlushReplies();
}

// A rollout that is half here holds memory for the rest of it.
void PushStream::Watch() {
  if (options_.watch == nullptr) return;
  if (incoming_.left() == 0) {
    options_.watch->Forget(std::exchange(watch_, 0));
    return;
  }
  if (watch_ == 0) {
    watch_ = options_.watch->Begin([this, ref = ref_](uint64_t frames, const std::string& why) {
      ref.Post([this, frames, why] { EndStalled(frames, why); });
    });
  }
  options_.watch->Came(watch_, ++watch_frames_, incoming_.lease_at_hand());
}

void PushStream::EndStalled(uint64_t frames, const std::string& why) {
  if (ended_ || watch_ == 0 || frames != watch_frames_) return;  // it went on meanwhile
  constexpr uint32_t kRetryMs = 1000;
  // The client may be frozen or out of reach: the end of the call may be long in coming.
  const uint64_t left = incoming_.left();
  incoming_.Clear();
  End(WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrCat("payload: lacks ", left, " bytes, ", why)),
      kRetryMs));
}

// Hands what has ended in this frame to the engine; what was refused is answered with it.
void PushStream::PushEnded(uint32_t begin, FrameRecord* record) {
  const bool whole = incoming_.left() == 0;
  if (groups_) {
    if (!whole) return;
    begin = 0;
    incoming_.RefuseAllIfAny();
  }
  auto pending = std::make_shared<Pending>();
  pending->sequence = first_sequence_ + frames_.size() - 1;
  PushBatch& batch = pending->batch;
  batch.session = session_;
  batch.names = incoming_.names();
  const absl::Span<storage::PayloadBuilder> payloads =
      incoming_.Take(begin, &batch, &pending->indexes, &record->refused);
  if (!payloads.empty()) {
    ++record->waits_for;
    if (groups_) pending->group = std::move(group_);
    Store(pending, payloads);
  }
  if (whole) incoming_.Clear();
}

void PushStream::Store(const std::shared_ptr<Pending>& pending,
                       absl::Span<storage::PayloadBuilder> payloads) {
  pending->ids.resize(payloads.size());
  pending->attempts.reserve(payloads.size());
  for (const shard::RolloutMeta& rollout : pending->batch.rollouts) {
    pending->attempts.push_back(rollout.lease.attempt.value);
  }
  // The store may call back from another thread, and after the stream is gone: the engine takes
  // over all the same.
  options_.store->Finish(payloads, absl::MakeSpan(pending->ids),
                         [this, pending, ref = ref_, options = options_,
                          groups = groups_](const absl::Status& status) {
                           if (status.ok()) {
                             SendToEngine(options, groups, this, ref, pending);
                             return;
                           }
                           options.store->Free(pending->ids);
                           ref.Post([this, status] { End(status); });
                         });
}

void PushStream::SendToEngine(const PushOptions& options, bool groups, PushStream* self,
                              const StreamRef& ref, const std::shared_ptr<Pending>& pending) {
  PushBatch& batch = pending->batch;
  for (size_t i = 0; i < pending->ids.size(); ++i) {
    batch.rollouts[i].payload = pending->ids[i];
  }
  PushAnswer answer = [self, ref, pending](std::vector<shard::PushOutcome> outcomes) {
    ref.Post([self, pending, outcomes = std::move(outcomes)]() mutable {
      self->Answered(*pending, std::move(outcomes));
    });
  };
  if (groups) {
    options.engine->PushGroup(std::move(batch), std::move(pending->group), std::move(answer));
  } else {
    options.engine->Push(std::move(batch), std::move(answer));
  }
}

void PushStream::Answered(const Pending& pending, std::vector<shard::PushOutcome> outcomes) {
  FrameRecord& record = frames_[pending.sequence - first_sequence_];
  --record.waits_for;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    shard::PushOutcome& outcome = outcomes[i];
    const bool in = outcome.result == shard::PushResult::kAccepted ||
                    outcome.result == shard::PushResult::kDuplicate;
    record.accepted += in ? 1 : 0;
    if (outcome.result == shard::PushResult::kAccepted) continue;
    record.refused.push_back({.index = pending.indexes[i],
                              .attempt_id = pending.attempts[i],
                              .result = outcome.result,
                              .error = {outcome.field, std::move(outcome.message)}});
  }
  FlushReplies();
  GoOn();
}

// Answers the frames at the front that are done, in order.
void PushStream::FlushReplies() {
  while (!frames_.empty() && frames_.front().waits_for == 0) {
    // The frame at hand is still being worked on while it waits for memory.
    if (waiter_.has_value() && frames_.size() == 1) break;
    FrameRecord& record = frames_.front();
    std::vector<codec::OutcomeFields> outcomes;
    std::sort(record.refused.begin(), record.refused.end(),
              [](const RefusedRollout& a, const RefusedRollout& b) { return a.index < b.index; });
    for (const RefusedRollout& refused : record.refused) {
      outcomes.push_back({refused.index, refused.attempt_id, static_cast<uint32_t>(refused.result),
                          refused.error.field, refused.error.message});
    }
    std::string reply;
    codec::AppendPushReply(record.number, record.accepted, outcomes, &reply);
    grpc::Slice slice(reply);
    stream_->Write(grpc::ByteBuffer(&slice, 1));
    bytes_in_flight_ -= record.bytes;
    frames_.pop_front();
    ++first_sequence_;
  }
}

bool PushStream::MayRead() const {
  return !reading_ && !half_closed_ && !waiter_.has_value() &&
         frames_.size() < options_.limits.frames_in_flight_max &&
         bytes_in_flight_ < options_.limits.bytes_in_flight_max &&
         stream_->queued_bytes() <= kDrainedBytes;
}

// Reads on if it may, or ends the stream if all is answered.
void PushStream::GoOn() {
  if (ended_) return;
  const bool idle = frames_.empty() && !waiter_.has_value();
  if (half_closed_ && idle) {
    End(incoming_.left() == 0
            ? absl::OkStatus()
            : absl::InvalidArgumentError(absl::StrCat(
                  "payload: the stream ended ", incoming_.left(), " bytes before its rollouts")));
    return;
  }
  // A rollout that is half here is taken to its end.
  if (draining_ && incoming_.left() == 0) {
    if (idle) End(absl::UnavailableError("shutting down"));
    return;
  }
  if (MayRead()) {
    reading_ = true;
    stream_->Read();
  }
}

void PushStream::OnHalfClose(Stream& /*stream*/) {
  reading_ = false;
  half_closed_ = true;
  GoOn();
}

void PushStream::OnDrain(Stream& /*stream*/) {
  draining_ = true;
  GoOn();
}

void PushStream::End(const absl::Status& status) {
  if (std::exchange(ended_, true)) return;
  stream_->Finish(status);
}

void PushStream::OnDone() {
  ended_ = true;
  if (watch_ != 0) options_.watch->Forget(watch_);
  storage::PayloadBudget& budget = options_.store->budget();
  // A waiter that was admitted meanwhile holds its reservation, and its task will not run any more.
  if (waiter_.has_value() && !budget.Cancel(*waiter_)) budget.Unreserve(waits_for_bytes_);
}

}  // namespace

StreamFactory MakePushStream(const PushOptions& options) {
  return [options] { return std::make_unique<PushStream>(options, false); };
}

StreamFactory MakePushGroupStream(const PushOptions& options) {
  return [options] { return std::make_unique<PushStream>(options, true); };
}

}  // namespace forebay::server
