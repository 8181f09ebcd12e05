// The contents of tasks as a machine: commands are items, and their ids follow from the order in
// which they are committed.
//
// Applied to and snapshotted in the replica's loop; the store is read from any thread while the
// node leads, and by nobody before.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "node/replicated_state.h"
#include "storage/content_store.h"

namespace forebay::node {

class ContentMachine final : public ReplicatedState {
 public:
  explicit ContentMachine(storage::ContentStore* store) : store_(store) {}

  static std::string CommandOf(const std::vector<std::string>& items);

  bool Apply(LogPosition position, std::string_view command) override;
  // Of the command that was applied last, one an item; or why its items were not taken.
  const absl::StatusOr<std::vector<PayloadId>>& last() const { return last_; }

  void Snapshot(codec::Writer& writer) const override;
  bool Restore(std::string_view snapshot) override;

 private:
  storage::ContentStore* const store_;
  absl::StatusOr<std::vector<PayloadId>> last_ = std::vector<PayloadId>();
};

}  // namespace forebay::node
