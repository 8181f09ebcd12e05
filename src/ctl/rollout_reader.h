// Reads one rollout from the daemon, its columns piece by piece, however large they are.
//
// One thread. Each piece is a call of its own: a rollout that is trained meanwhile is NotFound.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ctl/command.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {

class RolloutReader {
 public:
  // NotFound if the buffer does not hold it, DataLoss if its bytes are lost.
  static absl::StatusOr<RolloutReader> Open(const Context& context, uint64_t rollout);

  const v1::RolloutState& state() const { return first_.rollout(); }
  const v1::RolloutHeader& header() const { return first_.header(); }
  // -1 if there is none.
  int FindColumn(std::string_view name) const;

  // Gives away the column's bytes in order, in pieces that end between two values; at most
  // `bytes_max` of them. The sink's error ends it.
  using Sink = absl::FunctionRef<absl::Status(std::string_view piece)>;
  absl::Status ReadColumn(int column, Sink sink, uint64_t bytes_max = UINT64_MAX) const;
  absl::StatusOr<std::string> ReadColumn(int column, uint64_t bytes_max) const;

 private:
  explicit RolloutReader(const Context& context) : context_(&context) {}
  uint64_t OffsetOf(int column) const;

  const Context* context_;
  v1::ReadRolloutResponse first_;  // with the first bytes of all columns
};

}  // namespace forebay::ctl
