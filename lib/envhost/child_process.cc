#include "lib/envhost/child_process.h"

#include <sys/wait.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace troupe::envhost {

std::string HowItEnded(int wait_status) {
  return WIFSIGNALED(wait_status)
             ? absl::StrCat("was killed by signal ", WTERMSIG(wait_status), " (", strsignal(WTERMSIG(wait_status)), ")")
             : absl::StrCat("exited with ", WEXITSTATUS(wait_status));
}

}  // namespace troupe::envhost
