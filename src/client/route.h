// Which node of a cluster to call and which to watch, from what nodes say and how calls fare.
//
// Pure; not thread-safe. Nodes are told apart by their addresses. Of two who disagree about the
// leader the one with the higher epoch is right, so that a node that is behind leads nobody back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "forebay/v1/cluster.pb.h"

namespace forebay::client {

// The entries of "a:1, b:2,unix:/c"; an error if there is none, or an empty one.
absl::StatusOr<std::vector<std::string>> ParseSeeds(std::string_view address);

class Route {
 public:
  // Not empty. `salt` spreads clients over the nodes that can be watched.
  Route(std::vector<std::string> seeds, uint64_t salt);

  // Where calls go: the leader, or while none is known the node whose turn it is.
  const std::string& current() const { return current_; }
  // Rises when a call that failed has a reason to be repeated at once: a leader became known.
  uint64_t revision() const { return revision_; }
  bool leader_known() const { return !leader_.empty(); }
  // The daemon has no cluster: nothing will change.
  bool alone() const { return alone_; }
  std::vector<std::string> addresses() const;

  // An error if the view is not of this cluster.
  absl::Status TakeView(const std::string& from, const v1::ClusterView& view);
  // A call was refused; `leader` is empty if the node knows none.
  void TakeRefusal(const std::string& from, const std::string& leader, uint64_t epoch,
                   const std::string& said);
  // A node could not be called.
  void TakeFailure(const std::string& from, const std::string& said);

  // The node to watch next: one that does not lead, and that has failed the least.
  std::string NextWatch() const;
  void WatchFailed(const std::string& address, const std::string& said);
  // Another node than the leader would be a better one to watch.
  bool WatchesLeader(const std::string& address) const;
  // Nodes that failed are worth a try again.
  void Forgive();

  // What each node said last, for people; empty while there is but one.
  std::string Asked() const;

 private:
  struct Node {
    std::string address;
    bool seed = false;
    bool member = false;  // as of the newest view
    bool up = true;
    uint32_t failures = 0;  // watches in a row
    std::string said;
  };
  Node& Find(const std::string& address);
  void Adopt(const std::string& leader, uint64_t epoch);
  // The next node's turn, if none is known that leads.
  void GoRound(const std::string& from);

  std::vector<Node> nodes_;
  const uint64_t salt_;
  std::string current_;
  std::string leader_;
  uint64_t cluster_ = 0;
  uint64_t epoch_ = 0;
  uint64_t revision_ = 1;
  bool alone_ = false;
};

}  // namespace forebay::client
