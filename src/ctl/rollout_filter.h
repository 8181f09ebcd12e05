// Which rollouts a command is about: options that `rollouts` and `export` share, and the walk
// through what they choose.
//
// One thread. What the state machines know is asked of the daemon; what only the bytes tell (nan,
// repeat) is looked for here, in a bounded number of rollouts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "ctl/command.h"
#include "ctl/rollout_reader.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {

struct RolloutChoice {
  std::string source;
  std::string state;
  std::string reward;              // as ParseReward reads it
  std::vector<std::string> flags;  // one of them has to apply; empty: any rollout
  uint32_t limit = 100;
  uint32_t look_max = 1'000;  // rollouts whose bytes are read for a flag
};

void AddRolloutOptions(CLI::App* command, RolloutChoice* choice);

// "<0.1", ">=0.5,<0.9", "=1": bounds that hold together; sets them in the request. Errors name what
// is wrong.
absl::Status ParseReward(std::string_view text, v1::ListRolloutsRequest* request);

// Flags that the bytes of a rollout tell, each with what it means; Find... looks for those wanted.
// A column is read up to kLookBytesMax.
inline constexpr uint64_t kLookBytesMax = uint64_t{64} << 20;
absl::StatusOr<std::vector<std::string>> FindContentFlags(const RolloutReader& reader,
                                                          const std::vector<std::string>& wanted);

// How a walk ended.
struct WalkEnd {
  std::string page_token;     // "" when all was seen
  uint64_t looked = 0;        // rollouts whose bytes were read
  bool look_max_hit = false;  // and more were left
};
// Calls `take` with each rollout chosen, at most `limit` of them. Its error ends the walk.
using TakeRollout = absl::FunctionRef<absl::Status(const v1::RolloutState& rollout)>;
absl::StatusOr<WalkEnd> WalkRollouts(const Context& context, const RolloutChoice& choice,
                                     TakeRollout take);

}  // namespace forebay::ctl
