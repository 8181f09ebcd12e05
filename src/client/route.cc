#include "client/route.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/hash.h"

namespace forebay::client {

absl::StatusOr<std::vector<std::string>> ParseSeeds(std::string_view address) {
  std::vector<std::string> seeds;
  for (absl::string_view entry :
       absl::StrSplit(absl::string_view(address.data(), address.size()), ',')) {
    entry = absl::StripAsciiWhitespace(entry);
    if (entry.empty()) {
      return absl::InvalidArgumentError(
          "address: is empty, or has an empty entry; give HOST:PORT or unix:/path, several nodes "
          "of "
          "a cluster with commas");
    }
    if (std::find(seeds.begin(), seeds.end(), entry) == seeds.end()) seeds.emplace_back(entry);
  }
  return seeds;
}

Route::Route(std::vector<std::string> seeds, uint64_t salt) : salt_(salt) {
  current_ = seeds.front();
  for (std::string& seed : seeds) {
    nodes_.push_back({.address = std::move(seed), .seed = true});
  }
}

std::vector<std::string> Route::addresses() const {
  std::vector<std::string> addresses;
  for (const Node& node : nodes_) addresses.push_back(node.address);
  return addresses;
}

Route::Node& Route::Find(const std::string& address) {
  for (Node& node : nodes_) {
    if (node.address == address) return node;
  }
  nodes_.push_back({.address = address});
  return nodes_.back();
}

void Route::Adopt(const std::string& leader, uint64_t epoch) {
  if (leader == leader_ && epoch == epoch_) return;
  leader_ = leader;
  epoch_ = epoch;
  current_ = leader;
  ++revision_;
}

absl::Status Route::TakeView(const std::string& from, const v1::ClusterView& view) {
  if (view.cluster() == 0) {
    if (cluster_ != 0) return absl::FailedPreconditionError("is a daemon without a cluster");
    alone_ = true;
    if (current_ != from) {
      current_ = from;
      ++revision_;
    }
    return absl::OkStatus();
  }
  if (cluster_ != 0 && view.cluster() != cluster_) {
    return absl::FailedPreconditionError("is of another cluster");
  }
  cluster_ = view.cluster();
  for (Node& node : nodes_) node.member = false;
  std::string leader;
  for (const v1::ClusterNode& told : view.nodes()) {
    if (told.address().empty()) continue;
    Node& node = Find(told.address());
    node.member = true;
    node.up = told.up();
    if (told.id() == view.leader() && view.leader() != 0) leader = told.address();
  }
  std::erase_if(nodes_, [&](const Node& node) {
    return !node.member && !node.seed && node.address != current_ && node.address != from;
  });
  // A socket of this host is the shorter way to the same node.
  if (absl::StartsWith(from, "unix:") && view.node() == view.leader() && !leader.empty()) {
    leader = from;
  }
  Node& node = Find(from);
  node.failures = 0;
  node.said = leader.empty() ? "knows no leader" : absl::StrCat("says that ", leader, " leads");
  if (view.leader_epoch() < epoch_) return absl::OkStatus();
  if (leader.empty()) {
    // Calls stay where they are until there is a better place.
    leader_.clear();
    epoch_ = view.leader_epoch();
  } else {
    Adopt(leader, view.leader_epoch());
  }
  return absl::OkStatus();
}

void Route::TakeRefusal(const std::string& from, const std::string& leader, uint64_t epoch,
                        const std::string& said) {
  Find(from).said = said;
  const bool news = epoch > epoch_ || (epoch == epoch_ && leader_.empty());
  if (!leader.empty() && leader != from && news) {
    Find(leader);
    Adopt(leader, epoch);
  } else {
    GoRound(from);
  }
}

void Route::TakeFailure(const std::string& from, const std::string& said) {
  Find(from).said = said;
  GoRound(from);
}

void Route::GoRound(const std::string& from) {
  if (!leader_.empty() || alone_ || from != current_) return;
  const auto at = std::find_if(nodes_.begin(), nodes_.end(),
                               [&](const Node& node) { return node.address == from; });
  const size_t next = (static_cast<size_t>(at - nodes_.begin()) + 1) % nodes_.size();
  current_ = nodes_[next].address;
}

std::string Route::NextWatch() const {
  const auto rank = [this](const Node& node) {
    const int kind = node.address == current_        ? 2
                     : cluster_ != 0 && !node.member ? 3  // perhaps another name of a member
                     : node.up                       ? 0
                                                     : 1;
    return std::tuple(node.failures, kind, Hash64(node.address, salt_));
  };
  return std::min_element(nodes_.begin(), nodes_.end(),
                          [&](const Node& a, const Node& b) { return rank(a) < rank(b); })
      ->address;
}

void Route::WatchFailed(const std::string& address, const std::string& said) {
  Node& node = Find(address);
  ++node.failures;
  node.said = said;
}

bool Route::WatchesLeader(const std::string& address) const {
  return address == leader_ && NextWatch() != address;
}

void Route::Forgive() {
  for (Node& node : nodes_) node.failures = 0;
}

std::string Route::Asked() const {
  if (nodes_.size() < 2) return "";
  std::string out;
  for (const Node& node : nodes_) {
    absl::StrAppend(&out, out.empty() ? "" : ", ", node.address, " (",
                    node.said.empty() ? "not asked yet" : node.said, ")");
  }
  return out;
}

}  // namespace forebay::client
