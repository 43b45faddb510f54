#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/cli/machine_checks.h"

namespace troupe::services {
namespace {

std::vector<std::string> Words(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  for (std::string word; words.size() < 4 && file >> word;) words.push_back(word);
  return words;
}

std::optional<int64_t> Number(const std::vector<std::string>& words, size_t at) {
  int64_t number = 0;
  if (words.size() <= at || !absl::SimpleAtoi(words[at], &number)) return std::nullopt;  // "max"
  return number;
}

template <typename Value>
void TakeLesser(const std::optional<Value>& value, std::optional<Value>* least) {
  if (value && (!*least || *value < **least)) *least = value;
}

/// This process's group of `controller` ("": version 2) and those above it, as paths below the controller's folder. In
/// a container a path may be the host's, of which only the root is there.
std::vector<std::string> Groups(const std::string& root, const std::string& controller) {
  std::vector<std::string> groups = {""};
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) continue;
    for (std::string path = parts[2]; path.size() > 1; path.resize(path.rfind('/'))) groups.push_back(path);
  }
  return groups;
}

std::optional<double> Ratio(const std::optional<int64_t>& quota, const std::optional<int64_t>& period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<int64_t> AvailableBytes(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string name;
  int64_t kibibytes = 0;
  while (file >> name >> kibibytes) {
    if (name == "MemAvailable:") return kibibytes << 10;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

}  // namespace

MachineLimits ReadMachineLimits(const std::string& root) {
  MachineLimits limits;
  limits.available_bytes = AvailableBytes(root);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) limits.processors = std::max(1, CPU_COUNT(&allowed));
  const std::string groups = root + "/sys/fs/cgroup";
  for (const std::string& group : Groups(root, "")) {
    TakeLesser(Number(Words(groups + group + "/memory.max"), 0), &limits.limit_bytes);
    const std::vector<std::string> time = Words(groups + group + "/cpu.max");
    TakeLesser(Ratio(Number(time, 0), Number(time, 1)), &limits.quota);
  }
  for (const std::string& group : Groups(root, "memory")) {
    const std::optional<int64_t> bytes =
        Number(Words(absl::StrCat(groups, "/memory", group, "/memory.limit_in_bytes")), 0);
    if (bytes && *bytes < int64_t{1} << 60) TakeLesser(bytes, &limits.limit_bytes);  // no limit is a large number there
  }
  for (const std::string& group : Groups(root, "cpu")) {
    const std::string folder = absl::StrCat(groups, "/cpu", group);
    TakeLesser(Ratio(Number(Words(folder + "/cpu.cfs_quota_us"), 0), Number(Words(folder + "/cpu.cfs_period_us"), 0)),
               &limits.quota);
  }
  return limits;
}

}  // namespace troupe::services
