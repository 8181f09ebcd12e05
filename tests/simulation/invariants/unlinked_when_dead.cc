// 10. A segment is unlinked only after a committed record says that it is dead.
//
// The model: which payloads lie in a file, from their acknowledgement by the store until they are
// declared dead. That happens in Apply, hence after commit, or when the push that brought them is
// refused or lost, or when the store finds one damaged: what is left of it is of no use to anybody.
// While there is one, its files must keep their names.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/invariants/invariant.h"

namespace forebay::simulation {
namespace {

class UnlinkedWhenDead final : public Invariant {
 public:
  explicit UnlinkedWhenDead(Checker* checker)
      : Invariant("10 a segment is unlinked when it is dead", checker) {}

  void OnPayloadStored(PayloadId payload, const std::vector<std::string>& paths) override {
    paths_[payload] = paths;
    for (const std::string& path : paths) alive_[path].insert(payload);
  }

  void OnPayloadDead(PayloadId payload) override {
    const auto paths = paths_.find(payload);
    if (paths == paths_.end()) return;
    for (const std::string& path : paths->second) alive_[path].erase(payload);
    paths_.erase(paths);
  }

  void OnPayloadLost(PayloadId payload) override { OnPayloadDead(payload); }

  void OnStoreAccess(uint64_t, const io::MemoryAccess& access) override {
    if (access.operation != io::MemoryOperation::kUnlink) return;
    const auto found = alive_.find(access.path);
    if (found == alive_.end()) return;
    if (!found->second.empty()) {
      return Violated(absl::StrCat(access.path, " is unlinked, and ", found->second.size(),
                                   " payloads in it are alive, the first is ",
                                   found->second.begin()->value));
    }
    alive_.erase(found);
  }

 private:
  std::map<PayloadId, std::vector<std::string>> paths_;  // of what is alive
  std::map<std::string, std::set<PayloadId>> alive_;     // by path
};

}  // namespace

std::unique_ptr<Invariant> MakeUnlinkedWhenDead(Checker* checker) {
  return std::make_unique<UnlinkedWhenDead>(checker);
}

}  // namespace forebay::simulation
