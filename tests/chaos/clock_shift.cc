// A library that is loaded before others (LD_PRELOAD): the process then believes the time of day to
// be off by what a file says. Steady clocks stay as they are.
//
// FOREBAY_CLOCK_SHIFT names the file, which holds one int64 of nanoseconds and may be written at
// any time. Waits until a time of day end when the shifted clock, as it is at their begin, shows
// it. Nothing here allocates: allocators ask for the time before anything is set up. Thread-safe.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace {

constexpr int64_t kSecond = 1'000'000'000;
const std::atomic<int64_t>* shift = nullptr;

int64_t Shift() { return shift == nullptr ? 0 : shift->load(std::memory_order_relaxed); }

// The kernel's own answer: negative, an error.
long Raw(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

timespec Add(const timespec& time, int64_t nanoseconds) {
  const int64_t sum = time.tv_sec * kSecond + time.tv_nsec + nanoseconds;
  const int64_t whole = sum < 0 ? 0 : sum;
  return {.tv_sec = whole / kSecond, .tv_nsec = whole % kSecond};
}

bool IsTimeOfDay(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void Open() {
  const char* path = getenv("FOREBAY_CLOCK_SHIFT");
  if (path == nullptr) return;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) abort();
  void* memory = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) abort();
  close(file);
  shift = static_cast<const std::atomic<int64_t>*>(memory);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = Raw(SYS_clock_gettime, clock, reinterpret_cast<long>(time), 0, 0, 0, 0);
  if (result < 0) {
    errno = static_cast<int>(-result);
    return -1;
  }
  if (IsTimeOfDay(clock)) *time = Add(*time, Shift());
  return 0;
}

int gettimeofday(timeval* time, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  *time = {.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

// A condition's clock is not told: a time of day is far larger than any uptime.
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  static auto* const next = Next<decltype(pthread_cond_timedwait)>("pthread_cond_timedwait");
  const timespec real = until->tv_sec > kSecond ? Add(*until, -Shift()) : *until;
  return next(condition, mutex, &real);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  static auto* const next = Next<decltype(pthread_cond_clockwait)>("pthread_cond_clockwait");
  const timespec real = IsTimeOfDay(clock) ? Add(*until, -Shift()) : *until;
  return next(condition, mutex, clock, &real);
}

int sem_timedwait(sem_t* semaphore, const timespec* until) {
  static auto* const next = Next<decltype(sem_timedwait)>("sem_timedwait");
  const timespec real = Add(*until, -Shift());
  return next(semaphore, &real);
}

// Abseil waits by futexes of its own.
long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long words[6];
  for (long& word : words) word = va_arg(list, long);
  va_end(list);
  timespec real{};
  const auto* until = reinterpret_cast<const timespec*>(words[3]);
  if (number == SYS_futex && (words[1] & FUTEX_CLOCK_REALTIME) != 0 && until != nullptr) {
    real = Add(*until, -Shift());
    words[3] = reinterpret_cast<long>(&real);
  }
  const long result = Raw(number, words[0], words[1], words[2], words[3], words[4], words[5]);
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

}  // extern "C"
