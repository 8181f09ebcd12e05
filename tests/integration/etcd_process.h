// A real etcd on loopback: one member or a cluster, each a process with a data folder of its own.
// What is wrong with one fails the test, with its log.
//
// One thread. The processes end with the object.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "etcdserverpb/rpc.pb.h"
#include "tests/integration/run_directory.h"

namespace forebay::integration {

class EtcdCluster {
 public:
  // Every member serves, and knows its leader, when this returns.
  explicit EtcdCluster(size_t members, std::vector<std::string> flags = {});
  ~EtcdCluster();

  size_t size() const { return members_.size(); }
  const std::string& endpoint(size_t member) const { return members_[member].client; }
  std::vector<std::string> endpoints() const;

  // Which member leads, as `asked` sees it.
  size_t Leader(size_t asked) const;
  // One that does not.
  size_t Follower(size_t asked) const { return (Leader(asked) + 1) % size(); }

  void Freeze(size_t member) const;
  void Thaw(size_t member) const;
  void Kill(size_t member);
  // Again, on the same ports, with what it had; waits until it serves.
  void Start(size_t member);

  // Forgets what was before `revision`, on all members.
  void Compact(uint64_t revision) const;
  // From now on every call wants a token of a user; there is one, who may do everything.
  void DemandUser(const std::string& user, const std::string& password) const;
  // The value of a key, or "" if it is absent, as that member has it; for tests that see with
  // other eyes than the coordinator's.
  std::string ValueAt(size_t member, const std::string& key) const;

 private:
  struct Member {
    pid_t pid = -1;
    std::string client, peer;
    std::string folder;
    uint64_t id = 0;
  };

  void Spawn(size_t member);
  void AwaitServing(size_t member);
  etcdserverpb::StatusResponse Status(size_t member, bool* ok) const;
  std::string Log(size_t member) const;

  const std::vector<std::string> flags_;
  RunDirectory directory_;
  std::vector<Member> members_;
};

}  // namespace forebay::integration
