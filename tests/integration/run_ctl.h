// buffer-ctl within the test's process: what it says, and its exit code.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "ctl/app.h"

namespace forebay::integration {

struct Said {
  int code = 0;
  std::string out, err;
};

inline Said RunCtl(const std::vector<std::string>& words) {
  std::ostringstream out, err;
  Said said;
  said.code = ctl::Run(words, out, err);
  said.out = out.str();
  said.err = err.str();
  return said;
}

}  // namespace forebay::integration
