// One presence: a lease, a key that ends with it, and what keeps both alive.
//
// Belongs to the loop: all of it happens on its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/sync.h"
#include "etcd/members.h"
#include "node/callback_gate.h"
#include "node/coordinator.h"
#include "node/event_loop.h"

namespace forebay::etcd {

class Keeper : public std::enable_shared_from_this<Keeper> {
 public:
  using Gate = node::CallbackGate<node::PresenceEvent>;

  // All of them outlive it.
  Keeper(node::EventLoop* loop, Members* members, node::PresenceOptions what,
         std::shared_ptr<Gate> gate)
      : loop_(loop), members_(members), what_(std::move(what)), gate_(std::move(gate)) {}

  // Asks for a lease, and puts the key.
  void Start();
  // Takes both away; `ended` when that was answered, or was not in a second.
  void End(std::function<void()> ended);

 private:
  void Granted(const absl::StatusOr<std::string>& answer, Deadline asked);
  void Put();
  void PutDone(const absl::StatusOr<std::string>& answer);
  void KeepAlive();
  void KeptAlive(const absl::StatusOr<std::string>& answer, Deadline asked);
  void Held(uint64_t revision);
  void Lost(const absl::Status& why);
  // What is next, after some time.
  void In(absl::Duration pause, void (Keeper::*next)());
  void Revoke(int64_t lease, std::function<void()> ended);
  // What is asked for while the lease may end is in vain after it.
  Deadline CallDeadline() const;

  node::EventLoop* const loop_;
  Members* const members_;
  const node::PresenceOptions what_;
  const std::shared_ptr<Gate> gate_;

  bool ended_ = false;
  bool held_ = false;
  bool told_ = false;  // that it is lost, since it was held
  int64_t lease_ = 0;  // 0: none
  absl::Duration time_to_live_;
  Deadline confirmed_until_;
  size_t failures_ = 0;
  std::optional<node::EventLoop::TimerId> timer_;
};

}  // namespace forebay::etcd
