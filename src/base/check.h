// FOREBAY_CHECK: a broken invariant ends the process, in release too. Expected failures are
// absl::Status instead.
//
// Safe from any thread.
#pragma once

#include <cstdio>
#include <cstdlib>

#define FOREBAY_CHECK(condition)                                                         \
  do {                                                                                   \
    if (__builtin_expect(!(condition), 0)) {                                             \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#define FOREBAY_RETURN_IF_ERROR(expression)           \
  do {                                                \
    if (auto status_ = (expression); !status_.ok()) { \
      return status_;                                 \
    }                                                 \
  } while (false)
