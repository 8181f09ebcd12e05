#include "tests/cluster_simulation/client.h"

#include <algorithm>

namespace forebay::cluster_simulation {

void Client::Ask() {
  const uint64_t asked = ++asked_;
  const Operation operation = operation_;
  world_.network.Deliver(kClient, at_, [this, to = at_, operation, asked] {
    world_.nodes[to.value - 1]->OnRequest(
        machine_, operation, [this, to, operation, asked](const Reply& reply) {
          world_.network.Deliver(to, kClient, [this, operation, asked, reply] {
            // An answer to an earlier asking is one, but a refusal is not.
            if (operation == operation_ && (reply.count || asked == asked_)) OnReply(reply);
          });
        });
  });
  world_.queue.After(world_.options.client_timeout_ms, [this, asked] {
    if (asked != asked_) return world_.queue.Idle();
    at_ = NodeId(static_cast<uint32_t>(world_.dice.Between(1, world_.options.nodes)));
    Ask();
  });
}

void Client::OnReply(const Reply& reply) {
  ++asked_;
  uint64_t wait = 10;
  if (reply.count) {
    world_.checker.OnAcknowledged(machine_, operation_, *reply.count);
    const uint64_t now = world_.queue.now_ms();
    world_.stats.longest_wait_ms = std::max(world_.stats.longest_wait_ms, now - began_ms_);
    ++operation_.request;
    wait = world_.dice.Below(world_.options.think_ms_max + 1);
  } else if (reply.leader != NodeId() && reply.leader != at_) {
    at_ = reply.leader;
  } else {
    at_ = NodeId(static_cast<uint32_t>(world_.dice.Between(1, world_.options.nodes)));
  }
  world_.queue.After(wait, [this, asked = asked_, acknowledged = reply.count.has_value()] {
    if (asked != asked_) return;
    if (acknowledged) began_ms_ = world_.queue.now_ms();
    Ask();
  });
}

}  // namespace forebay::cluster_simulation
