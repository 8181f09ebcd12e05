// Between the coordinator's words and etcd's messages.
//
// Pure functions and constants; safe from any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "etcdserverpb/rpc.pb.h"
#include "node/coordinator.h"

namespace forebay::etcd {

inline constexpr char kRange[] = "/etcdserverpb.KV/Range";
inline constexpr char kTxn[] = "/etcdserverpb.KV/Txn";
inline constexpr char kWatch[] = "/etcdserverpb.Watch/Watch";
inline constexpr char kLeaseGrant[] = "/etcdserverpb.Lease/LeaseGrant";
inline constexpr char kLeaseRevoke[] = "/etcdserverpb.Lease/LeaseRevoke";
inline constexpr char kLeaseKeepAlive[] = "/etcdserverpb.Lease/LeaseKeepAlive";

// The range of all keys that begin with `prefix`: its first key, and what is behind its last one.
std::string FirstOf(const std::string& prefix);
std::string BehindOf(const std::string& prefix);

etcdserverpb::RangeRequest RangeOfKey(const std::string& key);
etcdserverpb::RangeRequest RangeOfPrefix(const std::string& prefix);
etcdserverpb::TxnRequest ToTxn(const node::Transaction& transaction);

node::KeyState ToState(const etcdserverpb::RangeResponse& response);
// Done or refused. Internal if the answer does not fit the question.
absl::StatusOr<node::TransactionResult> ToResult(const node::Transaction& transaction,
                                                 const etcdserverpb::TxnResponse& response);

// Internal if it is not one.
template <class Message>
absl::StatusOr<Message> Parse(const absl::StatusOr<std::string>& bytes) {
  if (!bytes.ok()) return bytes.status();
  Message message;
  if (message.ParseFromString(*bytes)) return message;
  return absl::InternalError("etcd's answer cannot be read: is it etcd, of version 3.4 or later?");
}

}  // namespace forebay::etcd
