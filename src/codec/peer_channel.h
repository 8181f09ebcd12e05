// The two ends of a numbered channel between state machines: messages are sent again until
// acknowledged, applied once, in order.
//
// Both ends are replicated state of their machines. Not thread-safe. Requirements: the driver
// re-sends what Unacknowledged returns after a reconnect or a time without an acknowledgement;
// acknowledgements may be lost or repeated.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace forebay::codec {

struct NumberedMessage {
  uint64_t number = 0;  // from 1
  std::string body;     // an encoded ToShard or ToLedger
  template <class A>
  void Fields(A& a) {
    a(number, body);
  }
};

class PeerOutbox {
 public:
  // Numbers a message and keeps it until it is acknowledged.
  const NumberedMessage& Add(std::string body) {
    return pending_.emplace_back(NumberedMessage{++last_, std::move(body)});
  }
  // Everything up to `number` has been applied by the peer.
  void Acknowledge(uint64_t number) {
    while (!pending_.empty() && pending_.front().number <= number) pending_.pop_front();
  }
  const std::deque<NumberedMessage>& Unacknowledged() const { return pending_; }
  uint64_t last() const { return last_; }
  uint64_t acknowledged() const { return last_ - pending_.size(); }

  template <class A>
  void Fields(A& a) {
    a(last_, pending_);
  }

 private:
  uint64_t last_ = 0;
  std::deque<NumberedMessage> pending_;
};

class PeerInbox {
 public:
  // True when the message is the next one, and is to be applied now; false for a repeated one or
  // one that came too early.
  bool Accept(uint64_t number) {
    if (number != last_ + 1) return false;
    last_ = number;
    return true;
  }
  // What to acknowledge.
  uint64_t last() const { return last_; }

  template <class A>
  void Fields(A& a) {
    a(last_);
  }

 private:
  uint64_t last_ = 0;
};

}  // namespace forebay::codec
