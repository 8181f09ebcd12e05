#include "etcd/members.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "etcdserverpb/rpc.pb.h"

namespace forebay::etcd {
namespace {

constexpr char kAuthenticate[] = "/etcdserverpb.Auth/Authenticate";
// Between rounds over all members.
constexpr absl::Duration kPauseMin = absl::Milliseconds(50);
constexpr absl::Duration kPauseMax = absl::Milliseconds(500);
// A token that was just given and is refused again and again is no matter of its age.
constexpr int kTokensMax = 3;

Deadline Now() { return std::chrono::steady_clock::now(); }

// Whether another member, or the same one later, may answer otherwise.
bool MayPass(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return true;
    default:
      return false;
  }
}

}  // namespace

struct Members::Attempt {
  std::string method;
  std::string request;
  Deadline deadline;
  Done done;
  size_t failures = 0;
  int tokens = 0;
  std::optional<node::EventLoop::TimerId> pause;
  absl::Status last = absl::UnavailableError("etcd: no member answered");
};

Members::Members(node::EventLoop* loop, const Options& options)
    : loop_(loop),
      options_(options),
      wire_(loop, options),
      current_(options.first % options.endpoints.size()),
      answered_(options.endpoints.size()) {
  MutexLock lock(&mutex_);
  where_ = options_.endpoints[current_];
  unreachable_since_ = Now();
}

void Members::Call(const std::string& method, std::string request, Deadline deadline, Done done) {
  auto attempt = std::make_shared<Attempt>();
  attempt->method = method;
  attempt->request = std::move(request);
  attempt->deadline = deadline;
  attempt->done = std::move(done);
  attempts_.insert(attempt);
  Try(attempt);
}

void Members::Try(const std::shared_ptr<Attempt>& attempt) {
  attempt->pause.reset();
  if (closing_) return End(attempt, absl::CancelledError("the coordinator is closed"));
  if (Now() >= attempt->deadline) {
    return End(attempt, absl::DeadlineExceededError(attempt->last.message()));
  }
  const auto send = [this, attempt](const absl::Status& status) {
    if (!status.ok()) return End(attempt, status);
    const size_t member = current_;
    const Deadline until = std::min(attempt->deadline, DeadlineIn(options_.attempt_timeout));
    wire_.Unary(member, attempt->method, attempt->request, until, true,
                [this, attempt, member](absl::StatusOr<std::string> answer) {
                  Told(attempt, member, std::move(answer));
                });
  };
  if (attempt->method == kAuthenticate) return send(absl::OkStatus());
  EnsureToken(attempt->deadline, send);
}

void Members::Told(const std::shared_ptr<Attempt>& attempt, size_t member,
                   absl::StatusOr<std::string> answer) {
  if (closing_ && !answer.ok()) {
    return End(attempt, absl::CancelledError("the coordinator is closed"));
  }
  const absl::Status status = answer.status();
  if (MayBeToken(status) && ++attempt->tokens < kTokensMax) {
    ForgetToken();
    return Try(attempt);
  }
  if (!MayPass(status.code())) {
    Answered(member);
    return End(attempt, std::move(answer));
  }
  attempt->last = status;
  Suspect(member, status);
  ++attempt->failures;
  const size_t members = options_.endpoints.size();
  if (attempt->failures % members != 0) return Try(attempt);
  const size_t doublings = std::min<size_t>(attempt->failures / members - 1, 10);
  const absl::Duration pause = std::min(kPauseMin * (1 << doublings), kPauseMax);
  attempt->pause =
      loop_->At(std::min(DeadlineIn(pause), attempt->deadline), [this, attempt] { Try(attempt); });
}

void Members::End(const std::shared_ptr<Attempt>& attempt, absl::StatusOr<std::string> answer) {
  attempts_.erase(attempt);
  Done done = std::exchange(attempt->done, nullptr);
  done(std::move(answer));
}

void Members::EnsureToken(Deadline deadline, std::function<void(absl::Status)> then) {
  if (options_.user.empty() || !token_.empty()) return then(absl::OkStatus());
  etcdserverpb::AuthenticateRequest request;
  request.set_name(options_.user);
  request.set_password(options_.password);
  Call(kAuthenticate, request.SerializeAsString(), deadline,
       [this, then = std::move(then)](const absl::StatusOr<std::string>& answer) {
         if (!answer.ok()) return then(answer.status());
         etcdserverpb::AuthenticateResponse response;
         if (!response.ParseFromString(*answer) || response.token().empty()) {
           return then(absl::InternalError("etcd's answer to user and password cannot be read"));
         }
         token_ = response.token();
         wire_.SetToken(token_);
         then(absl::OkStatus());
       });
}

bool Members::MayBeToken(const absl::Status& status) const {
  if (options_.user.empty()) return false;
  return absl::IsUnauthenticated(status) || absl::IsInvalidArgument(status);
}

void Members::ForgetToken() {
  token_.clear();
  wire_.SetToken("");
}

void Members::CallOnce(const std::string& method, std::string request,
                       const std::string& probe_method, std::string probe, Deadline deadline,
                       OnceDone done) {
  const bool fresh = answered_[current_] + absl::ToChronoNanoseconds(options_.fresh_for) > Now();
  if (fresh && (options_.user.empty() || !token_.empty())) {
    return SendOnce(method, std::move(request), deadline, std::move(done));
  }
  Call(probe_method, std::move(probe), deadline,
       [this, method, request = std::move(request), deadline,
        done = std::move(done)](const absl::StatusOr<std::string>& answer) mutable {
         if (!answer.ok()) return done(answer.status(), false);
         SendOnce(method, std::move(request), deadline, std::move(done));
       });
}

void Members::SendOnce(const std::string& method, std::string request, Deadline deadline,
                       OnceDone done) {
  if (closing_) return done(absl::CancelledError("the coordinator is closed"), false);
  const size_t member = current_;
  const Deadline until = std::min(deadline, DeadlineIn(options_.transaction_timeout));
  wire_.Unary(member, method, request, until, false,
              [this, member, done = std::move(done)](absl::StatusOr<std::string> answer) mutable {
                if (MayBeToken(answer.status())) ForgetToken();
                if (MayPass(answer.status().code())) {
                  Suspect(member, answer.status());
                } else {
                  Answered(member);
                }
                done(std::move(answer), true);
              });
}

void Members::Open(const std::string& method, Deadline deadline, Stream::Handler handler,
                   std::function<void(absl::StatusOr<std::shared_ptr<Stream>>, size_t)> opened) {
  EnsureToken(deadline, [this, method, handler = std::move(handler),
                         opened = std::move(opened)](absl::Status status) mutable {
    if (closing_) status = absl::CancelledError("the coordinator is closed");
    const size_t member = current_;
    if (!status.ok()) return opened(status, member);
    opened(wire_.Open(member, method, std::move(handler)), member);
  });
}

void Members::Suspect(size_t member, const absl::Status& why) {
  if (current_ == member) current_ = (member + 1) % options_.endpoints.size();
  answered_[member] = Deadline();
  MutexLock lock(&mutex_);
  if (reachable_) unreachable_since_ = Now();
  reachable_ = false;
  where_ = options_.endpoints[current_];
  why_ = why;
}

void Members::Answered(size_t member, bool whole) {
  if (whole) answered_[member] = Now();
  MutexLock lock(&mutex_);
  reachable_ = true;
  where_ = options_.endpoints[current_];
}

absl::Status Members::CheckCluster(uint64_t cluster_id) {
  if (!cluster_id_.has_value()) cluster_id_ = cluster_id;
  if (cluster_id == *cluster_id_) return absl::OkStatus();
  absl::Status status = absl::FailedPreconditionError(
      absl::StrCat("endpoints: are of two clusters of etcd, ", absl::Hex(*cluster_id_), " and ",
                   absl::Hex(cluster_id), "; what nodes share stands in one"));
  Suspect(current_, status);
  return status;
}

void Members::Close(std::function<void()> closed) {
  closing_ = true;
  const std::vector<std::shared_ptr<Attempt>> attempts(attempts_.begin(), attempts_.end());
  for (const auto& attempt : attempts) {
    if (!attempt->pause.has_value()) continue;
    loop_->Cancel(*attempt->pause);
    End(attempt, absl::CancelledError("the coordinator is closed"));
  }
  wire_.Cancel(std::move(closed));
}

node::CoordinatorHealth Members::Health() const {
  MutexLock lock(&mutex_);
  node::CoordinatorHealth health{.reachable = reachable_, .where = where_};
  if (!reachable_) {
    health.why = why_;
    health.unreachable = absl::FromChrono(Now() - unreachable_since_);
  }
  return health;
}

}  // namespace forebay::etcd
