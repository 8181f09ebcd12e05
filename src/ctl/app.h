// buffer-ctl as a function: parses a command line, calls the daemon once or a few times, prints.
//
// One thread; nothing is kept between calls, so tests run it in the process.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace forebay::ctl {

inline constexpr int kExitOk = 0;
// The daemon refused, or a file cannot be read.
inline constexpr int kExitFailed = 1;
// The command line is wrong.
inline constexpr int kExitUsage = 2;
// `status` alone: works, but somebody should look.
inline constexpr int kExitDegraded = 10;
// The daemon cannot be reached or does not answer in time, or its run stands still.
inline constexpr int kExitUnavailable = 20;

// `arguments` without the program's name. Returns the exit code.
int Run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace forebay::ctl
