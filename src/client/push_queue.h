// A push stream that mends itself: many callers add rollouts, one stream carries them, small ones
// batched in a frame, large ones across frames; replies are matched in order. When the stream
// breaks, what is unanswered is sent again (the daemon answers a repeated push as the first one).
//
// Thread-safe. Payload bytes are sent from where they are; an item's `done` runs when its result is
// known and the transport has let go of its bytes. The destructor ends what is left with CANCELLED
// and waits for the transport.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connection.h"
#include "forebay/v1/actor.pb.h"

namespace forebay::client {

class PushQueue {
 public:
  // One entry a rollout of the item, in its order.
  using Outcomes = std::vector<v1::PushOutcome>;
  using Done = std::function<void(absl::StatusOr<Outcomes>)>;

  struct Item {
    std::vector<std::string> headers;  // encoded RolloutHeaders
    std::vector<std::string_view> payload;
    std::string group;  // encoded GroupHeader; the item then has its frames for itself
    absl::Time deadline;
    Done done;
    // `done` is quick and may run on any thread, with no lock of the queue held; otherwise it runs
    // on the queue's own.
    bool done_anywhere = false;
  };

  // `method`: Push or PushGroup.
  PushQueue(Connection* connection, const std::string& method, uint64_t session,
            uint64_t frame_bytes_max);
  ~PushQueue();

  // A ticket for Abandon.
  uint64_t Add(Item item);
  // Ends an item that is not answered yet; its `done` gets `why`.
  void Abandon(uint64_t ticket, const absl::Status& why);

 private:
  class Completions;
  struct Live;
  // Items, or a part of one, that went out in one frame.
  struct Frame {
    uint64_t number = 0;
    std::vector<std::shared_ptr<Live>> items;
    bool ends = false;  // the reply to this frame ends its items
  };

  void WriteLoop();
  void ReadLoop(MessageStream* stream);
  // Writes frames until the stream breaks or the queue closes.
  void Serve(MessageStream* stream);
  bool SendFrames(MessageStream* stream, const std::vector<std::shared_ptr<Live>>& items);
  std::vector<std::shared_ptr<Live>> TakeBatch();
  bool TakeReply(const v1::PushReply& reply);
  // After the stream ended: what is unanswered goes back to the front of the queue, or ends.
  void Recover(const absl::Status& status);
  void Finish(Live* live, absl::StatusOr<Outcomes> result);

  Connection* const connection_;
  const std::string method_;
  const uint64_t session_;
  const uint64_t frame_bytes_max_;
  const std::shared_ptr<Completions> completions_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool closing_ = false;
  bool broken_ = false;  // the stream of the moment
  MessageStream* stream_ = nullptr;
  uint64_t next_ticket_ = 1;
  std::deque<std::shared_ptr<Live>> waiting_;
  std::deque<Frame> sent_;
  std::map<uint64_t, std::weak_ptr<Live>> tickets_;
  uint64_t next_frame_ = 1;
  // So many items go one at a time: one of them made the daemon end the stream.
  size_t isolate_ = 0;
  int failures_ = 0;  // streams in a row that ended before a reply

  Cancellation ending_;
  std::thread writer_;
  std::thread timer_;
  void TimeLoop();
};

}  // namespace forebay::client
