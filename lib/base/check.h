#pragma once

namespace troupe::base {

/// Prints `what` with its place and aborts. Only for our own broken invariants: nothing that came from the
/// network, a file or an environment may reach it.
[[noreturn]] void CheckFailed(const char* what, const char* file, int line);

}  // namespace troupe::base

/// Aborts unless `condition` holds; active in every build type.
#define TROUPE_CHECK(condition)                                    \
  do {                                                             \
    if (__builtin_expect(!(condition), 0)) {                       \
      ::troupe::base::CheckFailed(#condition, __FILE__, __LINE__); \
    }                                                              \
  } while (false)
