#include "lib/cli/death_words.h"

#include <signal.h>
#include <sys/resource.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace troupe::cli {

std::string DeathWords(const ChildExit& end, const DeathContext& context) {
  std::string words = end.ToString();
  if (end.signal == SIGKILL && !context.memory_kills) {
    absl::StrAppend(&words, ", perhaps by the kernel for lack of memory");
  } else if (end.signal == SIGKILL && *context.memory_kills == 0) {
    absl::StrAppend(&words, " by another process: the kernel has killed nobody for lack of memory meanwhile");
  } else if (end.signal == SIGKILL) {
    absl::StrAppend(&words, ", perhaps by the kernel for lack of memory, which has killed ", *context.memory_kills,
                    *context.memory_kills == 1 ? " process" : " processes", " of this machine for that meanwhile");
  } else if (end.signal != 0 && context.memory_limit_bytes) {
    absl::StrAppend(&words, "; it may have run out of memory, of which a process may have ",
                    *context.memory_limit_bytes >> 20, " MiB here (ulimit -v)");
  }
  return words;
}

std::optional<int64_t> KernelMemoryKills() {
  std::ifstream counters("/proc/vmstat");
  std::string name;
  for (int64_t count = 0; counters >> name >> count;) {
    if (name == "oom_kill") return count;
  }
  return std::nullopt;
}

DeathContext DeathContextSince(std::optional<int64_t> kills_before) {
  DeathContext context;
  const std::optional<int64_t> now = KernelMemoryKills();
  if (kills_before && now) context.memory_kills = *now - *kills_before;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    context.memory_limit_bytes = static_cast<int64_t>(limit.rlim_cur);
  }
  return context;
}

}  // namespace troupe::cli
