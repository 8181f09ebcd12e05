#include "etcd/messages.h"

#include <utility>

namespace forebay::etcd {

std::string FirstOf(const std::string& prefix) {
  return prefix.empty() ? std::string(1, '\0') : prefix;
}

std::string BehindOf(const std::string& prefix) {
  std::string end = prefix;
  while (!end.empty() && end.back() == '\xff') end.pop_back();
  if (end.empty()) return std::string(1, '\0');  // which stands for the end of all keys
  end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return end;
}

etcdserverpb::RangeRequest RangeOfKey(const std::string& key) {
  etcdserverpb::RangeRequest request;
  request.set_key(key);
  return request;
}

etcdserverpb::RangeRequest RangeOfPrefix(const std::string& prefix) {
  etcdserverpb::RangeRequest request;
  request.set_key(FirstOf(prefix));
  request.set_range_end(BehindOf(prefix));
  return request;
}

etcdserverpb::TxnRequest ToTxn(const node::Transaction& transaction) {
  etcdserverpb::TxnRequest request;
  for (const node::KeyCondition& condition : transaction.conditions) {
    etcdserverpb::Compare* compare = request.add_compare();
    compare->set_target(etcdserverpb::Compare::MOD);
    compare->set_key(condition.key);
    compare->set_mod_revision(static_cast<int64_t>(condition.revision));
    request.add_failure()->mutable_request_range()->set_key(condition.key);
  }
  for (const node::KeyChange& change : transaction.changes) {
    etcdserverpb::RequestOp* operation = request.add_success();
    if (!change.value.has_value()) {
      operation->mutable_request_delete_range()->set_key(change.key);
      continue;
    }
    operation->mutable_request_put()->set_key(change.key);
    operation->mutable_request_put()->set_value(*change.value);
  }
  return request;
}

node::KeyState ToState(const etcdserverpb::RangeResponse& response) {
  node::KeyState state{.entries = {},
                       .revision = static_cast<uint64_t>(response.header().revision())};
  for (const mvccpb::KeyValue& entry : response.kvs()) {
    state.entries.push_back(
        {entry.key(), entry.value(), static_cast<uint64_t>(entry.mod_revision())});
  }
  return state;
}

absl::StatusOr<node::TransactionResult> ToResult(const node::Transaction& transaction,
                                                 const etcdserverpb::TxnResponse& response) {
  node::TransactionResult result;
  result.revision = static_cast<uint64_t>(response.header().revision());
  result.outcome = response.succeeded() ? node::Outcome::kDone : node::Outcome::kRefused;
  const size_t wanted =
      response.succeeded() ? transaction.changes.size() : transaction.conditions.size();
  if (static_cast<size_t>(response.responses_size()) != wanted) {
    return absl::InternalError("etcd's answer to a transaction has another number of parts");
  }
  if (response.succeeded()) return result;
  for (size_t i = 0; i < wanted; ++i) {
    const auto& found = response.responses(static_cast<int>(i)).response_range().kvs();
    node::KeyValue entry{.key = transaction.conditions[i].key};
    if (!found.empty()) {
      entry.value = found[0].value();
      entry.revision = static_cast<uint64_t>(found[0].mod_revision());
    }
    result.now.push_back(std::move(entry));
  }
  return result;
}

}  // namespace forebay::etcd
