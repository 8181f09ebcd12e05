// CPU time and memory of this process and of others, from getrusage and /proc.
//
// Safe from any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace forebay::bench {

// User and system time of this process so far.
double OwnCpuSeconds();

// The same of another process, to the kernel's tick (10 ms); 0 if it is gone.
double ProcessCpuSeconds(pid_t pid);

// Largest resident size of a process so far; 0 if it is gone.
uint64_t PeakRssBytes(pid_t pid);
// What is resident now.
uint64_t ResidentBytes(pid_t pid);

}  // namespace forebay::bench
