#include "lib/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace troupe::base {

void CheckFailed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "CHECK failed: %s at %s:%d\n", what, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace troupe::base
