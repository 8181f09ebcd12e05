// 8. A segment has exactly one writer (its name says which process; created exclusively); it is
// never reopened for writing.
//
// The model: which process created a path. All else that changes the file must be of the same one,
// and through what it opened then: whoever opens the file again may only read. A name is not given
// twice, not even to a segment that came after one that is gone.
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/simulation/invariants/invariant.h"
#include "tests/simulation/payload_disk.h"

namespace forebay::simulation {
namespace {

class SegmentHasOneWriter final : public Invariant {
 public:
  explicit SegmentHasOneWriter(Checker* checker)
      : Invariant("8 a segment has one writer", checker) {}

  void OnStoreAccess(uint64_t process, const io::MemoryAccess& access) override {
    const auto wrong = [&](const std::string& what) {
      Violated(absl::StrCat(access.path, " ", what, " by process ", process));
    };
    if (access.operation == io::MemoryOperation::kRename) {
      if (SegmentNameOf(access.path) || SegmentNameOf(access.to)) {
        wrong(absl::StrCat("is renamed to ", access.to));
      }
      return;
    }
    const auto name = SegmentNameOf(access.path);
    if (!name || access.operation == io::MemoryOperation::kUnlink) return;
    if (access.operation == io::MemoryOperation::kOpen) {
      if (access.mode == io::OpenMode::kWrite) return wrong("is opened again for writing");
      if (access.mode == io::OpenMode::kRead) return;
      if (name->incarnation != process) return wrong("is created under another one's name");
      if (!writers_.emplace(access.path, process).second) return wrong("is created twice");
      return;
    }
    const auto writer = writers_.find(access.path);
    if (writer == writers_.end()) return wrong("was never created, and is written");
    if (writer->second != process) {
      wrong(absl::StrCat("was created by process ", writer->second, ", and is written"));
    }
  }

 private:
  std::map<std::string, uint64_t> writers_;  // processes, by path
};

}  // namespace

std::unique_ptr<Invariant> MakeSegmentHasOneWriter(Checker* checker) {
  return std::make_unique<SegmentHasOneWriter>(checker);
}

}  // namespace forebay::simulation
