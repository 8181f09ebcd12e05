// 4. An attempt has at most one live lease; an old token changes nothing.
//
// The model: by attempt the newest token that was seen in an assignment, who got it, and whether
// its lease was seen to end. A new token while the lease lives is a violation, and so is an old
// token that is accepted or renewed.
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/invariants/invariant.h"

namespace forebay::simulation {
namespace {

struct Lease {
  uint32_t token = 0;
  SessionId session;
  bool live = false;
  bool stale = false;  // a push of it was refused so: it may be handed out again, or not
  uint64_t seed = 0;
  TaskId task;
  uint32_t number = 0;
};

class OneLiveLease final : public Invariant {
 public:
  explicit OneLiveLease(Checker* checker)
      : Invariant("4 one live lease, old tokens change nothing", checker) {}

  void OnAssigned(SessionId session, const shard::Assignment& a) override {
    Lease& lease = leases_[a.attempt.value];
    const auto wrong = [&](const char* what) {
      Violated(absl::StrCat("attempt ", a.attempt.value, " token ", a.token, ": ", what));
    };
    if (lease.token != 0 &&
        (lease.seed != a.seed || lease.task != a.task || lease.number != a.number)) {
      return wrong("it is another attempt than before");
    }
    if (a.token == lease.token) {
      // The answer of a repeated request.
      if (session != lease.session || !lease.live) wrong("handed out twice under one token");
      return;
    }
    if (a.token < lease.token) return wrong("tokens go back");
    if (lease.live && !lease.stale) return wrong("handed out while its lease lives");
    lease = {a.token, session, true, false, a.seed, a.task, a.number};
  }

  void OnShardCommand(ShardId, const shard::Command& command) override {
    if (const auto* expire = std::get_if<shard::Expire>(&command)) {
      for (const shard::LeaseRef& ref : expire->leases) End(ref, std::nullopt);
    } else if (const auto* release = std::get_if<shard::Release>(&command)) {
      for (const shard::LeaseRef& ref : release->leases) End(ref, release->session);
    } else if (const auto* fail = std::get_if<shard::Fail>(&command)) {
      for (const shard::LeaseRef& ref : fail->leases) End(ref, fail->session);
    }
  }

  void OnPushed(SessionId, const shard::RolloutMeta& meta,
                const shard::PushOutcome& outcome) override {
    const auto found = leases_.find(meta.lease.attempt.value);
    if (found == leases_.end()) return;
    const bool taken = outcome.result == shard::PushResult::kAccepted ||
                       outcome.result == shard::PushResult::kDuplicate ||
                       outcome.result == shard::PushResult::kLate;
    if (taken && meta.lease.token != found->second.token) {
      return Violated(absl::StrCat("attempt ", meta.lease.attempt.value, ": a push under token ",
                                   meta.lease.token, " is taken, and the last one given is ",
                                   found->second.token));
    }
    // A refusal that names the fields of the rollout leaves the lease as it is.
    if (taken) End(meta.lease, std::nullopt);
    if (outcome.result == shard::PushResult::kStale && meta.lease.token == found->second.token)
      found->second.stale = true;
  }

  void OnRenewed(SessionId session, const shard::LeaseRef& ref,
                 shard::LeaseAction action) override {
    const auto found = leases_.find(ref.attempt.value);
    if (found == leases_.end() || action == shard::LeaseAction::kAbandon) return;
    if (found->second.token != ref.token || found->second.session != session ||
        !found->second.live) {
      Violated(absl::StrCat("attempt ", ref.attempt.value, ": token ", ref.token,
                            " is renewed, and its lease is over"));
    }
  }

  void OnScan() override {
    for (uint32_t s = 0; s < node().shards(); ++s) {
      uint64_t cursor = 0;
      for (const shard::LeaseView& view :
           node().shard(ShardId(static_cast<uint8_t>(s))).Leases(&cursor, SIZE_MAX)) {
        const auto found = leases_.find(view.attempt.value);
        const bool right = found != leases_.end() && found->second.live &&
                           found->second.token == view.token &&
                           found->second.session == view.session;
        if (!right)
          Violated(absl::StrCat("attempt ", view.attempt.value,
                                " is leased to a session that was not given it"));
      }
    }
  }

 private:
  void End(const shard::LeaseRef& ref, std::optional<SessionId> by) {
    const auto found = leases_.find(ref.attempt.value);
    if (found == leases_.end() || found->second.token != ref.token) return;
    if (!by || *by == found->second.session) found->second.live = false;
  }

  absl::flat_hash_map<uint64_t, Lease> leases_;  // by attempt; never iterated
};

}  // namespace

std::unique_ptr<Invariant> MakeOneLiveLease(Checker* checker) {
  return std::make_unique<OneLiveLease>(checker);
}

}  // namespace forebay::simulation
