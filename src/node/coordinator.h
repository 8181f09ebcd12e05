// The configuration that nodes share, through a node's eyes: keys with opaque values, each with the
// revision of its last change; transactions that compare and then change; watches; presence.
//
// Implementations: one file of this machine (local_coordinator.h) and etcd (etcd/coordinator.h).
// Revisions count the transactions that changed something, of all keys together, from 1; 0 stands
// for a key that is absent. Both behave alike (coordinator_contract_test.cc holds them to that).
//
// Thread-safe. Callbacks run on a thread of the coordinator, one after another and without a lock
// held. They must not block, may call the coordinator and end its watches and presences, and must
// not destroy it. Each `done` is called exactly once: by the deadline, or in the destructor, or,
// for arguments that are refused and for too many calls, before the call returns. The destructor
// waits for no more than what was begun; afterwards no callback runs. Watches and presences are
// destroyed before it.
//
// There is no lock to be had here, and nothing to elect with: a lease, as etcd has them, may end
// early or late, so that whoever believes to hold something may be wrong. What must be safe goes
// through a transaction's conditions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace forebay::node {

struct CoordinatorLimits {
  static constexpr size_t kKeyBytesMax = 1024;
  // etcd takes 1.5 MiB in a request by default, and 128 operations.
  static constexpr size_t kValueBytesMax = 1 << 20;
  static constexpr size_t kTransactionBytesMax = 5 << 18;
  static constexpr size_t kTransactionOperationsMax = 128;
  // What lies under one prefix, and all that the local file holds.
  static constexpr size_t kStateBytesMax = 64 << 20;
  static constexpr size_t kCallsMax = 1024;  // that wait for their answer
  static constexpr size_t kWatchesMax = 64;
  static constexpr size_t kPresencesMax = 16;
};
static_assert(CoordinatorLimits::kValueBytesMax + CoordinatorLimits::kKeyBytesMax <
              CoordinatorLimits::kTransactionBytesMax);
static_assert(CoordinatorLimits::kTransactionBytesMax < 3 << 19);

struct KeyValue {
  std::string key;
  std::string value;
  uint64_t revision = 0;  // of its last change; 0: there is no such key
  bool operator==(const KeyValue&) const = default;
};

// What a key or a prefix held at a revision of the whole, by ascending key.
struct KeyState {
  std::vector<KeyValue> entries;
  uint64_t revision = 0;
};

struct KeyCondition {
  std::string key;
  uint64_t revision = 0;  // that the key must have; 0: it must be absent
};

struct KeyChange {
  std::string key;
  std::optional<std::string> value;  // none: the key is deleted, which it may be already
};

// All changes or none, if all conditions hold. No key stands twice among the conditions, nor among
// the changes.
struct Transaction {
  std::vector<KeyCondition> conditions;
  std::vector<KeyChange> changes;
};

enum class Outcome : uint8_t {
  kDone,     // `revision` is that of the changes
  kRefused,  // nothing was changed: `now` holds the keys of the conditions as they are
  kNotDone,  // it surely did not and will not happen: `why`
  kUnknown,  // it may have happened, and if not, it may still: `why`. Reading the keys tells, once
             // they have other revisions; a transaction with the same conditions settles it.
};

struct TransactionResult {
  Outcome outcome = Outcome::kUnknown;
  uint64_t revision = 0;      // of the whole, when done or refused
  std::vector<KeyValue> now;  // in the order of the conditions
  absl::Status why;
};

struct WatchedChange {
  std::string key;
  std::optional<std::string> value;  // none: deleted
  uint64_t revision = 0;
};

// What a watch tells, in this order: State (Changes | Compacted State)*. A watch from a revision
// begins with the changes after it.
struct WatchEvent {
  enum class Kind : uint8_t {
    kState,      // all that the prefix holds; what was known before is void
    kChanges,    // in order. After a connection was lost some may come again
    kCompacted,  // changes are missing, since they are not kept any more; a state follows
  };
  Kind kind = Kind::kState;
  std::vector<KeyValue> entries;       // of kState
  std::vector<WatchedChange> changes;  // of kChanges
  // The state's; of the last change; or the oldest one that is still kept.
  uint64_t revision = 0;
};

struct WatchOptions {
  std::string prefix;             // "" is all
  std::optional<uint64_t> after;  // a revision that the caller has seen; none: begin with the state
};

struct PresenceOptions {
  std::string key;
  std::string value;
  // How long the key stays when nobody keeps it alive, about; etcd may choose a longer time.
  absl::Duration time_to_live = absl::Seconds(5);
};

struct PresenceEvent {
  enum class Kind : uint8_t {
    kHeld,  // the key is there, at `revision`; or it is confirmed again after it was in doubt
    kLost,  // the key is gone, or may be: no confirmation came in time. It is put again by itself
  };
  Kind kind = Kind::kHeld;
  uint64_t revision = 0;  // of the put; 0 if it was not put anew
  absl::Status why;       // of kLost
};

// Ends with the object: when the destructor returns, no callback runs or will, unless it is called
// from within one. Not while a lock is held that a callback takes.
class Watch {
 public:
  virtual ~Watch() = default;
};

// The same; and the key is taken away, without waiting for that.
class Presence {
 public:
  virtual ~Presence() = default;
};

struct CoordinatorHealth {
  bool reachable = false;      // the newest call was answered
  std::string where;           // the file, or the member of etcd that is used
  absl::Status why;            // of the newest failure, if it is not
  absl::Duration unreachable;  // for how long
};

class Coordinator {
 public:
  using StateDone = absl::AnyInvocable<void(absl::StatusOr<KeyState>)>;
  using TransactionDone = absl::AnyInvocable<void(TransactionResult)>;
  using WatchCallback = std::function<void(WatchEvent)>;
  using PresenceCallback = std::function<void(PresenceEvent)>;

  virtual ~Coordinator() = default;

  // As they are now: no older than any answer that was given, to whomever, before the call.
  // DeadlineExceeded or Unavailable if that cannot be known in time.
  virtual void Get(std::string key, absl::Duration timeout, StateDone done) = 0;
  virtual void GetPrefix(std::string prefix, absl::Duration timeout, StateDone done) = 0;

  // Never sent twice: what is not known is kUnknown.
  virtual void Commit(Transaction transaction, absl::Duration timeout, TransactionDone done) = 0;

  // Every change, in order, at least once; over lost connections too. InvalidArgument,
  // ResourceExhausted.
  virtual absl::StatusOr<std::unique_ptr<Watch>> WatchPrefix(WatchOptions options,
                                                             WatchCallback callback) = 0;

  // Keeps a key as long as the object lives and this process runs, whatever it held before.
  virtual absl::StatusOr<std::unique_ptr<Presence>> Announce(PresenceOptions options,
                                                             PresenceCallback callback) = 0;

  virtual CoordinatorHealth Health() const = 0;
};

// What both implementations refuse, with InvalidArgument that names what is wrong.
absl::Status CheckKey(const std::string& key);
absl::Status CheckPrefix(const std::string& prefix);
absl::Status CheckTransaction(const Transaction& transaction);
absl::Status CheckPresence(const PresenceOptions& options);

}  // namespace forebay::node
