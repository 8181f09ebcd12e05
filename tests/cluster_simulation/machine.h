// The state machine that is replicated here: a counter for each client, and a chain over everything
// that was ever done, so that no two orders give the same hash.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/hash.h"
#include "codec/archive.h"

namespace forebay::cluster_simulation {

// A client's request; it has one at a time, and asks again under the same number.
struct Operation {
  uint32_t client = 0;
  uint64_t request = 0;
  template <class A>
  void Fields(A& a) {
    a(client, request);
  }
  auto operator<=>(const Operation&) const = default;
};

class Machine {
 public:
  // `skew`: what is wrong with this replica's arithmetic.
  Machine(bool accept_duplicates, uint64_t skew)
      : accept_duplicates_(accept_duplicates), skew_(skew) {}

  // The client's counter after the operation; the same again for a request that was done. Nothing
  // for one that is older.
  std::optional<uint64_t> Apply(const Operation& operation) {
    Client& client = clients_[operation.client];
    if (operation.request < client.request) return std::nullopt;
    if (operation.request == client.request && !accept_duplicates_) return client.count;
    client.request = operation.request;
    ++client.count;
    chain_ = HashCombine(HashCombine(chain_, operation.client), operation.request + skew_);
    return client.count;
  }

  uint64_t count(uint32_t client) const {
    const auto found = clients_.find(client);
    return found == clients_.end() ? 0 : found->second.count;
  }
  uint64_t Hash() const { return Hash64(Snapshot()); }
  std::string Snapshot() const { return codec::Encode(*this); }
  void Restore(std::string_view bytes) { FOREBAY_CHECK(codec::Decode(bytes, this)); }

  template <class A>
  void Fields(A& a) {
    a(clients_, chain_);
  }

 private:
  struct Client {
    uint64_t request = 0;
    uint64_t count = 0;
    template <class A>
    void Fields(A& a) {
      a(request, count);
    }
  };
  const bool accept_duplicates_;
  const uint64_t skew_;
  std::map<uint32_t, Client> clients_;
  uint64_t chain_ = 0;
};

}  // namespace forebay::cluster_simulation
