#pragma once

#if defined(__SANITIZE_THREAD__)
#define TROUPE_SEES_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TROUPE_SEES_THREADS 1
#endif
#endif

#ifdef TROUPE_SEES_THREADS
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace troupe::base {

/// For the thread sanitizer, where a library that is not instrumented (gRPC) orders what our threads do: what was done
/// with `object` before HandOver happened before what is done with it after a later TakeOver. Claim only what the
/// library documents. Nothing in other builds.
inline void HandOver([[maybe_unused]] const void* object) {
#ifdef TROUPE_SEES_THREADS
  __tsan_release(const_cast<void*>(object));
#endif
}
inline void TakeOver([[maybe_unused]] const void* object) {
#ifdef TROUPE_SEES_THREADS
  __tsan_acquire(const_cast<void*>(object));
#endif
}

/// The reaction of a reactor: takes it over at its begin and hands it over at its end, for the one that comes next.
class Reaction {
 public:
  explicit Reaction(const void* reactor) : reactor_(reactor) { TakeOver(reactor_); }
  ~Reaction() { HandOver(reactor_); }
  Reaction(const Reaction&) = delete;
  Reaction& operator=(const Reaction&) = delete;

 private:
  const void* const reactor_;
};

}  // namespace troupe::base
