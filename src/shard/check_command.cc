#include "shard/check_command.h"

#include <cmath>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "shard/limits.h"
#include "shard/reply.h"

namespace forebay::shard {
namespace {

absl::Status CheckCount(const char* field, size_t count) {
  if (count <= kEntriesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", count, " entries; at most ", kEntriesMax));
}

absl::Status CheckLeases(const Machine& machine, SessionId session, size_t leases) {
  if (machine.sessions().Find(session) == kNone) return UnknownSession(session);
  return CheckCount("attempt_ids", leases);
}

std::optional<Reply> RefuseCount(absl::Status status) {
  if (status.ok()) return std::nullopt;
  return Reply(CountReply{std::move(status), 0});
}

struct Refuser {
  const Machine& machine;

  std::optional<Reply> operator()(const OpenSession& c) const {
    return RefuseCount(CheckSession(c));
  }
  std::optional<Reply> operator()(const Release& c) const {
    return RefuseCount(CheckLeases(machine, c.session, c.leases.size()));
  }
  std::optional<Reply> operator()(const Fail& c) const {
    absl::Status status = CheckLeases(machine, c.session, c.leases.size());
    if (status.ok() && c.reason.size() > kFailReasonMax) {
      status = absl::InvalidArgumentError(
          absl::StrCat("reason: ", c.reason.size(), " bytes; at most ", kFailReasonMax));
    }
    return RefuseCount(std::move(status));
  }
  std::optional<Reply> operator()(const SetQuarantine& c) const {
    if (machine.curriculum().source(c.source) == nullptr) {
      return RefuseCount(
          absl::NotFoundError(absl::StrCat("source: ", c.source.value, " is not known")));
    }
    return RefuseCount(CheckCount("external_ids", c.external_hashes.size()));
  }
  std::optional<Reply> operator()(const StartEval& c) const {
    return RefuseCount(machine.CheckEval(c));
  }
  std::optional<Reply> operator()(const DropDamaged& c) const {
    return RefuseCount(CheckCount("payloads", c.payloads.size()));
  }
  std::optional<Reply> operator()(const DropByOperator& c) const {
    return RefuseCount(machine.CheckDrop(c));
  }
  std::optional<Reply> operator()(const SetRewards& c) const {
    // Only when none of them is of use; the state answers each.
    for (const LateReward& reward : c.rewards) {
      if (std::isfinite(reward.reward) && reward.rewards_present != 0) return std::nullopt;
    }
    return Reply(SetRewardsReply{std::vector<PushResult>(c.rewards.size(), PushResult::kInvalid)});
  }
  template <class C>
  std::optional<Reply> operator()(const C&) const {
    return std::nullopt;
  }
};

}  // namespace

absl::Status CheckAssign(const Machine& machine, const Assign& request, uint32_t assignments_max) {
  if (machine.sessions().Find(request.session) == kNone) return UnknownSession(request.session);
  if (request.request_id == 0) return absl::InvalidArgumentError("request_id: 0; it begins at 1");
  if (request.max < 1 || request.max > assignments_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("max: ", request.max, "; 1 to ", assignments_max));
  }
  for (SourceId source : request.sources) {
    if (machine.curriculum().source(source) != nullptr) continue;
    return absl::NotFoundError(absl::StrCat("sources: ", source.value, " is not known"));
  }
  return absl::OkStatus();
}

std::optional<Reply> RefusalOf(const Machine& machine, const Command& command) {
  return std::visit(Refuser{machine}, command);
}

}  // namespace forebay::shard
