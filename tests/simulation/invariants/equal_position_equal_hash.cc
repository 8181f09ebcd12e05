// 7. Equal log position, equal state hash. Each machine has a twin that is given the same commands
// after they went through their encoding; it never restarts, so the comparison also says that a
// restored snapshot goes on as the state that it was taken of.
#include "tests/simulation/invariants/invariant.h"

namespace forebay::simulation {
namespace {

class EqualPositionEqualHash final : public Invariant {
 public:
  explicit EqualPositionEqualHash(Checker* checker)
      : Invariant("7 equal position, equal hash", checker) {}
  void OnScan() override {
    const std::string different = node().CompareReplicas();
    if (!different.empty()) Violated(different);
  }
};

}  // namespace

std::unique_ptr<Invariant> MakeEqualPositionEqualHash(Checker* checker) {
  return std::make_unique<EqualPositionEqualHash>(checker);
}

}  // namespace forebay::simulation
