// When a node leads: once every machine serves on it, or, after a bound, without those that the run
// can go on without.
//
// Pure and volatile; one for a process, which takes machines up once. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace forebay::cluster {

class Leadership {
 public:
  enum class Change {
    kNone,
    kLead,   // once: all that serve now are to be taken up
    kWhole,  // each time from then on: it leads without some, and all of these serve here by now
  };
  // `needed`, by machine: nobody leads without it. Of the others one at least must serve.
  Leadership(std::vector<bool> needed, uint64_t without_after_ms);

  // `serving`, by machine: whether it serves on this node.
  Change Look(uint64_t now_ms, const std::vector<bool>& serving);

  bool leads() const { return leads_; }
  // The machines that it leads without.
  const std::vector<uint32_t>& missing() const { return missing_; }

 private:
  bool Enough(const std::vector<bool>& serving) const;

  const std::vector<bool> needed_;
  const uint64_t without_after_ms_;
  bool leads_ = false;
  bool enough_ = false;
  uint64_t enough_ms_ = 0;  // since when what is needed serves here
  std::vector<uint32_t> missing_;
};

}  // namespace forebay::cluster
