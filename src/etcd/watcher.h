// One watch: reads a prefix, follows its changes on a stream, and opens another one, from the last
// revision that was told, when a member is silent or gone.
//
// Belongs to the loop: all of it happens on its thread. A member's sign of life says that it is
// there and nothing else: in etcd 3.4 its revision may be ahead of events that are still to come on
// the same stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "etcd/members.h"
#include "etcd/options.h"
#include "etcdserverpb/rpc.pb.h"
#include "node/callback_gate.h"
#include "node/coordinator.h"
#include "node/event_loop.h"

namespace forebay::etcd {

class Watcher : public std::enable_shared_from_this<Watcher> {
 public:
  using Gate = node::CallbackGate<node::WatchEvent>;

  // All of them outlive it.
  Watcher(node::EventLoop* loop, Members* members, const Options* options, node::WatchOptions what,
          std::shared_ptr<Gate> gate)
      : loop_(loop),
        members_(members),
        options_(options),
        what_(std::move(what)),
        gate_(std::move(gate)) {}

  void Start();
  // Nothing happens afterwards.
  void End();

 private:
  // Reads the prefix and tells it, or, from a revision at the start, holds it against that.
  void Read();
  void ReadDone(const absl::StatusOr<std::string>& answer);
  void TellState(node::KeyState state);
  void Follow();
  void Opened(std::shared_ptr<Stream> stream, size_t member);
  void Message(const std::string& bytes);
  void Events(const etcdserverpb::WatchResponse& response);
  void Heartbeat();
  void Heard();
  // The stream is of no use any more; `read`: what was told is void, too.
  void Broken(const absl::Status& why, bool read = false);
  void Pause();

  node::EventLoop* const loop_;
  Members* const members_;
  const Options* const options_;
  const node::WatchOptions what_;
  const std::shared_ptr<Gate> gate_;

  bool ended_ = false;
  bool compare_ = false;  // the next read is held against `what_.after`
  bool reading_ = true;   // what was told, if anything, is void
  uint64_t next_ = 0;     // the first revision that was not told, or not all of it
  size_t failures_ = 0;   // since something came
  uint64_t stream_number_ = 0;
  std::shared_ptr<Stream> stream_;
  size_t member_ = 0;
  std::optional<node::EventLoop::TimerId> heartbeat_, silence_, pause_;
};

}  // namespace forebay::etcd
