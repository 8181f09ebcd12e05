#include "client/usage_meter.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

namespace forebay::client {
namespace {

thread_local bool counting = false;

uint64_t ThreadCpuNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t ProcessCpuMs() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_usec) / 1000;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

// The second number of statm, in pages; 0 where there is no /proc.
uint64_t ResidentBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  unsigned long long size = 0;
  unsigned long long resident = 0;
  const int read = std::fscanf(file, "%llu %llu", &size, &resident);
  std::fclose(file);
  return read == 2 ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace

Usage UsageMeter::Read() const {
  return {.cpu_ms = ProcessCpuMs(),
          .resident_bytes = ResidentBytes(),
          .pushed_bytes = pushed_bytes_.load(std::memory_order_relaxed),
          .fetched_bytes = fetched_bytes_.load(std::memory_order_relaxed),
          .library_cpu_ms = library_cpu_ns_.load(std::memory_order_relaxed) / 1'000'000,
          .host_load = host_load_.load(std::memory_order_relaxed)};
}

UsageMeter::Scope::Scope(UsageMeter* meter) : meter_(meter) {
  if (counting) return;
  counting = outermost_ = true;
  began_ns_ = ThreadCpuNs();
}

void UsageMeter::Scope::Note() {
  if (!outermost_) return;
  const uint64_t now = ThreadCpuNs();
  meter_->library_cpu_ns_.fetch_add(now - began_ns_, std::memory_order_relaxed);
  began_ns_ = now;
}

UsageMeter::Scope::~Scope() {
  if (!outermost_) return;
  Note();
  counting = false;
}

}  // namespace forebay::client
