#include "tests/simulation/invariants/committed_entries_stay.h"

#include "absl/strings/str_cat.h"

namespace forebay::simulation {

std::string CommittedEntriesStay::Check(const std::string& machine, LogPosition found) const {
  if (found < committed) {
    return absl::StrCat("the log of ", machine, " ends at ", found.value, ", and ", committed.value,
                        " was committed");
  }
  if (found > logged) {
    return absl::StrCat("the log of ", machine, " ends at ", found.value, ", and only ",
                        logged.value, " was logged");
  }
  return "";
}

}  // namespace forebay::simulation
