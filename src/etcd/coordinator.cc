#include "etcd/coordinator.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sync.h"
#include "etcd/messages.h"

namespace forebay::etcd {
namespace {

using Limits = node::CoordinatorLimits;
using node::Outcome;

absl::Status TooMany(const char* what, size_t limit) {
  return absl::ResourceExhaustedError(absl::StrCat(what, ": there are ", limit, " already"));
}

// Whether a transaction that was answered so was not done, and will not be.
bool IsSureRefusal(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return true;
    default:
      return false;
  }
}

}  // namespace

class Coordinator::WatchHandle final : public node::Watch {
 public:
  WatchHandle(Coordinator* coordinator, std::shared_ptr<Watcher> watcher,
              std::shared_ptr<Watcher::Gate> gate)
      : coordinator_(coordinator), watcher_(std::move(watcher)), gate_(std::move(gate)) {}
  ~WatchHandle() override {
    gate_->Close();
    --coordinator_->watches_count_;
    coordinator_->loop_->Post([watcher = std::move(watcher_)] { watcher->End(); });
  }

 private:
  Coordinator* const coordinator_;
  std::shared_ptr<Watcher> watcher_;
  const std::shared_ptr<Watcher::Gate> gate_;
};

class Coordinator::PresenceHandle final : public node::Presence {
 public:
  PresenceHandle(Coordinator* coordinator, std::shared_ptr<Keeper> keeper,
                 std::shared_ptr<Keeper::Gate> gate)
      : coordinator_(coordinator), keeper_(std::move(keeper)), gate_(std::move(gate)) {}
  ~PresenceHandle() override {
    gate_->Close();
    coordinator_->loop_->Post([coordinator = coordinator_, keeper = std::move(keeper_)] {
      keeper->End([coordinator] {
        if (--coordinator->presences_count_ > 0 || !coordinator->farewells_said_) return;
        std::exchange(coordinator->farewells_said_, nullptr)();
      });
    });
  }

 private:
  Coordinator* const coordinator_;
  std::shared_ptr<Keeper> keeper_;
  const std::shared_ptr<Keeper::Gate> gate_;
};

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Open(const Options& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  return std::unique_ptr<Coordinator>(new Coordinator(options));
}

Coordinator::Coordinator(const Options& options)
    : options_(options),
      loop_(std::make_unique<node::EventLoop>()),
      members_(std::make_unique<Members>(loop_.get(), options_)) {}

Coordinator::~Coordinator() {
  FOREBAY_CHECK(watches_count_ == 0);
  // Presences that just ended are taken away, which has a deadline of its own.
  Notification said, closed;
  loop_->Post([this, &said] {
    if (presences_count_ == 0) return said.Notify();
    farewells_said_ = [&said] { said.Notify(); };
  });
  said.Wait();
  loop_->Post([this, &closed] { members_->Close([&closed] { closed.Notify(); }); });
  closed.Wait();
  loop_->Stop();
}

bool Coordinator::Admit() {
  if (++calls_ <= Limits::kCallsMax) return true;
  --calls_;
  return false;
}

void Coordinator::Read(std::string request, absl::Duration timeout, StateDone done) {
  if (!Admit()) return done(TooMany("calls", Limits::kCallsMax));
  const Deadline deadline = DeadlineIn(timeout);
  loop_->Post([this, request = std::move(request), deadline, done = std::move(done)]() mutable {
    members_->Call(
        kRange, std::move(request), deadline,
        [this, done = std::move(done)](const absl::StatusOr<std::string>& answer) mutable {
          --calls_;
          const auto response = Parse<etcdserverpb::RangeResponse>(answer);
          if (!response.ok()) return done(response.status());
          absl::Status same = members_->CheckCluster(response->header().cluster_id());
          if (!same.ok()) return done(same);
          done(ToState(*response));
        });
  });
}

void Coordinator::Get(std::string key, absl::Duration timeout, StateDone done) {
  if (absl::Status status = node::CheckKey(key); !status.ok()) return done(status);
  Read(RangeOfKey(key).SerializeAsString(), timeout, std::move(done));
}

void Coordinator::GetPrefix(std::string prefix, absl::Duration timeout, StateDone done) {
  if (absl::Status status = node::CheckPrefix(prefix); !status.ok()) return done(status);
  Read(RangeOfPrefix(prefix).SerializeAsString(), timeout, std::move(done));
}

void Coordinator::Commit(node::Transaction transaction, absl::Duration timeout,
                         TransactionDone done) {
  absl::Status status = node::CheckTransaction(transaction);
  if (status.ok() && !Admit()) status = TooMany("calls", Limits::kCallsMax);
  if (!status.ok()) return done({.outcome = Outcome::kNotDone, .why = std::move(status)});
  const Deadline deadline = DeadlineIn(timeout);
  loop_->Post(
      [this, transaction = std::move(transaction), deadline, done = std::move(done)]() mutable {
        // The transaction's own key, since a user may be allowed to read no other.
        std::string key = "forebay";
        if (!transaction.changes.empty()) key = transaction.changes[0].key;
        if (!transaction.conditions.empty()) key = transaction.conditions[0].key;
        etcdserverpb::RangeRequest probe = RangeOfKey(key);
        probe.set_count_only(true);
        std::string request = ToTxn(transaction).SerializeAsString();
        members_->CallOnce(kTxn, std::move(request), kRange, probe.SerializeAsString(), deadline,
                           [this, transaction = std::move(transaction), done = std::move(done)](
                               const absl::StatusOr<std::string>& answer, bool sent) mutable {
                             --calls_;
                             done(ResultOf(transaction, answer, sent));
                           });
      });
}

node::TransactionResult Coordinator::ResultOf(const node::Transaction& transaction,
                                              const absl::StatusOr<std::string>& answer,
                                              bool sent) {
  node::TransactionResult failed{.outcome = sent ? Outcome::kUnknown : Outcome::kNotDone};
  if (!answer.ok()) {
    failed.why = answer.status();
    if (IsSureRefusal(answer.status().code())) failed.outcome = Outcome::kNotDone;
    return failed;
  }
  const auto response = Parse<etcdserverpb::TxnResponse>(answer);
  failed.why = response.status();
  if (response.ok()) failed.why = members_->CheckCluster(response->header().cluster_id());
  if (!failed.why.ok()) return failed;
  auto result = ToResult(transaction, *response);
  if (result.ok()) return *std::move(result);
  failed.why = result.status();
  return failed;
}

absl::StatusOr<std::unique_ptr<node::Watch>> Coordinator::WatchPrefix(node::WatchOptions options,
                                                                      WatchCallback callback) {
  if (absl::Status status = node::CheckPrefix(options.prefix); !status.ok()) return status;
  if (++watches_count_ > Limits::kWatchesMax) {
    --watches_count_;
    return TooMany("watches", Limits::kWatchesMax);
  }
  auto gate = std::make_shared<Watcher::Gate>(std::move(callback));
  auto watcher =
      std::make_shared<Watcher>(loop_.get(), members_.get(), &options_, std::move(options), gate);
  loop_->Post([watcher] { watcher->Start(); });
  return std::make_unique<WatchHandle>(this, std::move(watcher), std::move(gate));
}

absl::StatusOr<std::unique_ptr<node::Presence>> Coordinator::Announce(node::PresenceOptions options,
                                                                      PresenceCallback callback) {
  if (absl::Status status = node::CheckPresence(options); !status.ok()) return status;
  if (++presences_count_ > Limits::kPresencesMax) {
    --presences_count_;
    return TooMany("presences", Limits::kPresencesMax);
  }
  auto gate = std::make_shared<Keeper::Gate>(std::move(callback));
  auto keeper = std::make_shared<Keeper>(loop_.get(), members_.get(), std::move(options), gate);
  loop_->Post([keeper] { keeper->Start(); });
  return std::make_unique<PresenceHandle>(this, std::move(keeper), std::move(gate));
}

}  // namespace forebay::etcd
