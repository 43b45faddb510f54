#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace troupe::bench {

/// CPU seconds that the processes have used: what they could do each on a core of its own, whatever else runs here.
inline double CpuSeconds(const std::vector<pid_t>& pids) {
  double ticks = 0;
  for (const pid_t pid : pids) {
    std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
    std::string word;
    for (int field = 1; file >> word && field < 15; ++field) {
      if (field == 14) ticks += std::atof(word.c_str());
    }
    ticks += std::atof(word.c_str());  // 15: in the kernel
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace troupe::bench
