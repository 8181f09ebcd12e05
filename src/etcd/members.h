// The members of one etcd: which of them is used, who is tried next when one is silent or says that
// it cannot, and what may be sent again.
//
// Belongs to the loop: all but Health is called on its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "etcd/options.h"
#include "etcd/wire.h"
#include "node/coordinator.h"
#include "node/event_loop.h"

namespace forebay::etcd {

class Members {
 public:
  using Done = Wire::Done;
  // `sent`: the request may have reached a member.
  using OnceDone = absl::AnyInvocable<void(absl::StatusOr<std::string>, bool sent)>;

  Members(node::EventLoop* loop, const Options& options);

  // For what may be done twice: one member after another is asked until one answers, or until the
  // deadline. An error that another member would give too is told at once.
  void Call(const std::string& method, std::string request, Deadline deadline, Done done);

  // For what may not: it is sent once, to a member that was heard just now, and waited for no
  // longer than transaction_timeout; a member that was not is asked `probe` of `probe_method`
  // first.
  void CallOnce(const std::string& method, std::string request, const std::string& probe_method,
                std::string probe, Deadline deadline, OnceDone done);

  // A stream to the member that is used, told to `opened` with its number; or why there is none.
  void Open(const std::string& method, Deadline deadline, Stream::Handler handler,
            std::function<void(absl::StatusOr<std::shared_ptr<Stream>>, size_t member)> opened);

  // It was silent, or said that it cannot: another one is used from now on.
  void Suspect(size_t member, const absl::Status& why);
  // `whole`: for the cluster, so that a transaction may go to it at once.
  void Answered(size_t member, bool whole = true);
  // User and password are asked for again.
  void ForgetToken();
  // FailedPrecondition if it is not the one that answered first.
  absl::Status CheckCluster(uint64_t cluster_id);

  // Everything is told, with Cancelled; then `closed`. No call may follow.
  void Close(std::function<void()> closed);

  node::CoordinatorHealth Health() const;

 private:
  struct Attempt;

  void Try(const std::shared_ptr<Attempt>& attempt);
  void Told(const std::shared_ptr<Attempt>& attempt, size_t member,
            absl::StatusOr<std::string> answer);
  void End(const std::shared_ptr<Attempt>& attempt, absl::StatusOr<std::string> answer);
  // Ok at once if none is needed.
  void EnsureToken(Deadline deadline, std::function<void(absl::Status)> then);
  // A token that has aged, or is of before the last change of users, which has no code of its own.
  bool MayBeToken(const absl::Status& status) const;
  void SendOnce(const std::string& method, std::string request, Deadline deadline, OnceDone done);

  node::EventLoop* const loop_;
  const Options options_;
  Wire wire_;
  size_t current_;
  std::vector<Deadline> answered_;  // when last, by member
  std::string token_;
  std::optional<uint64_t> cluster_id_;
  std::set<std::shared_ptr<Attempt>> attempts_;
  bool closing_ = false;

  mutable Mutex mutex_;
  bool reachable_ ABSL_GUARDED_BY(mutex_) = false;
  std::string where_ ABSL_GUARDED_BY(mutex_);
  absl::Status why_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("nothing was asked yet");
  Deadline unreachable_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::etcd
