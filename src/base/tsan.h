// Tells ThreadSanitizer of a hand-over that it cannot see: gRPC's own libraries are not
// instrumented, so an object passed as a tag through a completion queue looks unsynchronised.
// Nothing in other builds.
//
// Safe from any thread. Call TsanRelease before an object is given away, TsanAcquire after it was
// taken.
#pragma once

#ifdef FOREBAY_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace forebay {

inline void TsanRelease([[maybe_unused]] void* object) {
#ifdef FOREBAY_TSAN
  __tsan_release(object);
#endif
}

inline void TsanAcquire([[maybe_unused]] void* object) {
#ifdef FOREBAY_TSAN
  __tsan_acquire(object);
#endif
}

}  // namespace forebay
