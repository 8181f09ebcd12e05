#include "bench/load/cpu.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace forebay::bench {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A line of the process's status, which counts in KiB.
uint64_t StatusBytes(pid_t pid, const std::string& name) {
  const std::string text = ReadFile(absl::StrCat("/proc/", pid, "/status"));
  const size_t at = text.find(name);
  unsigned long long kib = 0;
  if (at == std::string::npos || std::sscanf(text.c_str() + at + name.size(), " %llu", &kib) != 1) {
    return 0;
  }
  return kib * 1024;
}

double Seconds(const timeval& time) { return time.tv_sec + time.tv_usec * 1e-6; }

}  // namespace

double OwnCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

double ProcessCpuSeconds(pid_t pid) {
  const std::string text = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  // The program's name may hold spaces and brackets; fields count from the last bracket.
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return 0;
  const std::vector<std::string> fields = absl::StrSplit(text.substr(end + 2), ' ');
  constexpr size_t kUserTime = 11, kSystemTime = 12;
  uint64_t user = 0, system = 0;
  if (fields.size() <= kSystemTime || !absl::SimpleAtoi(fields[kUserTime], &user) ||
      !absl::SimpleAtoi(fields[kSystemTime], &system)) {
    return 0;
  }
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

uint64_t PeakRssBytes(pid_t pid) { return StatusBytes(pid, "VmHWM:"); }
uint64_t ResidentBytes(pid_t pid) { return StatusBytes(pid, "VmRSS:"); }

}  // namespace forebay::bench
