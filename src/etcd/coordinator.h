// What nodes share, in etcd, over its own gRPC API: version 3.4 and later.
//
// Thread-safe, as node/coordinator.h has it. One thread does all of it and runs the callbacks; a
// second one hands over what gRPC completes.
//
// A transaction is sent once, to a member that was heard just now; if its answer is lost, or is an
// error that does not say for sure that nothing was done, it is unknown. (etcd does a transaction
// and then says that its space is exhausted.) Everything else is asked of one member after another.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "etcd/keeper.h"
#include "etcd/members.h"
#include "etcd/options.h"
#include "etcd/watcher.h"
#include "node/coordinator.h"
#include "node/event_loop.h"

namespace forebay::etcd {

class Coordinator final : public node::Coordinator {
 public:
  // Does not wait for etcd: that it is away shows in the answers, and in Health.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Open(const Options& options);
  ~Coordinator() override;

  void Get(std::string key, absl::Duration timeout, StateDone done) override;
  void GetPrefix(std::string prefix, absl::Duration timeout, StateDone done) override;
  void Commit(node::Transaction transaction, absl::Duration timeout, TransactionDone done) override;
  absl::StatusOr<std::unique_ptr<node::Watch>> WatchPrefix(node::WatchOptions options,
                                                           WatchCallback callback) override;
  absl::StatusOr<std::unique_ptr<node::Presence>> Announce(node::PresenceOptions options,
                                                           PresenceCallback callback) override;
  node::CoordinatorHealth Health() const override { return members_->Health(); }

 private:
  class WatchHandle;
  class PresenceHandle;

  explicit Coordinator(const Options& options);
  bool Admit();
  void Read(std::string request, absl::Duration timeout, StateDone done);
  node::TransactionResult ResultOf(const node::Transaction& transaction,
                                   const absl::StatusOr<std::string>& answer, bool sent);

  const Options options_;
  std::atomic<size_t> calls_{0};
  std::atomic<size_t> watches_count_{0};
  std::atomic<size_t> presences_count_{0};  // those that say farewell, too

  // Of the loop's thread, as what they point at.
  std::function<void()> farewells_said_;

  const std::unique_ptr<node::EventLoop> loop_;
  const std::unique_ptr<Members> members_;
};

}  // namespace forebay::etcd
