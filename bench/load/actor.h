// An actor as a load: acquires assignments, pushes a rollout for each, counts what is acknowledged.
//
// Two rhythms. Lockstep: acquire `batch`, push all in one frame, wait for the reply, again; an
// operation is an assignment acquired, pushed and acknowledged. Steady: keep `window` rollouts in
// flight, with assignments acquired ahead. If all rollouts have the same reward, groups are
// filtered when they complete and their bytes are freed: the load runs for as long as one likes.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "bench/load/conversation.h"
#include "bench/load/daemon.h"
#include "bench/load/rollout_template.h"

namespace forebay::bench {

// Assignments that an actor had when it stopped.
struct LeftOver {
  uint64_t session = 0;
  std::vector<Lease> leases;
};

struct ActorLoad {
  uint32_t batch = 64;             // assignments a call, and in lockstep rollouts a frame
  uint32_t window = 0;             // rollouts in flight; 0 is lockstep
  uint32_t frame_bytes = 1 << 20;  // payload of a frame, for rollouts that are larger
  // Pushed in turn, so that their bytes do not all come from the cache. In lockstep those of a
  // frame have the first one's payload.
  std::vector<RolloutTemplate> rollouts;
  // If set: takes what the actors leave, to be given back. Without it their groups stay open, and
  // the bytes of those groups in memory.
  std::vector<LeftOver>* left_over = nullptr;
};

class ActorConversation : public Conversation {
 public:
  // `load` outlives this.
  ActorConversation(const ActorLoad* load, Daemon::Session session);
  ~ActorConversation() override;

  std::vector<Pipe> Pipes() const override;
  bool Next(size_t pipe, grpc::ByteBuffer* message) override;
  absl::Status Take(size_t pipe, grpc::ByteBuffer* answer) override;
  void Stop() override { stopping_ = true; }
  bool Stopped() const override { return !acquiring_ && in_flight_ == 0; }
  std::string Script() const override;

 private:
  static constexpr size_t kAcquire = 0;
  static constexpr size_t kPush = 1;

  bool NextAcquire(grpc::ByteBuffer* message);
  bool NextBatch(grpc::ByteBuffer* message);
  bool NextFrame(grpc::ByteBuffer* message);
  std::string FrameStart();
  absl::Status TakeAcquired(const grpc::Slice& answer);
  absl::Status TakeReply(const grpc::Slice& answer);

  // Bytes of all messages of a kind, for the script.
  struct Traffic {
    uint64_t messages = 0, bytes = 0;
    uint64_t Mean() const { return messages == 0 ? 0 : (bytes + messages / 2) / messages; }
  };

  const ActorLoad* load_;
  Daemon::Session session_;
  std::deque<Lease> leases_;     // acquired, not pushed yet; oldest first, so that groups complete
  std::vector<Lease> acquired_;  // scratch
  bool acquiring_ = false;
  bool stopping_ = false;
  uint64_t request_id_ = 0;
  uint64_t frame_ = 0;
  size_t turn_ = 0;        // of load_->rollouts
  size_t sent_bytes_ = 0;  // of the rollout that is being sent in frames; 0 if none is
  // What each unanswered frame ends, in order: rollouts and their bytes.
  struct Unanswered {
    uint32_t rollouts;
    uint64_t bytes;
  };
  std::deque<Unanswered> unanswered_;
  uint32_t in_flight_ = 0;  // rollouts begun and not acknowledged
  Traffic acquire_out_, acquire_in_, push_out_, push_in_;
};

}  // namespace forebay::bench
