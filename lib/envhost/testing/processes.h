#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "lib/base/await.h"

/// What tests see of processes.
namespace troupe::envhost {

/// A letter (Z: a zombie) and the parent of a process that is there, '-' and 0 of another one.
struct ProcessState {
  char state = '-';
  pid_t parent = 0;
};
inline ProcessState StateOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return {};
  const std::vector<std::string> words = absl::StrSplit(line.substr(line.rfind(')') + 2), ' ');
  return {words[0][0], std::stoi(words[1])};
}

/// Whether it is there and no zombie.
inline bool Lives(pid_t pid) {
  const char state = StateOf(pid).state;
  return state != '-' && state != 'Z' && state != 'X';
}

/// How many processes that this one started run this Python module.
inline int CountChildren(const std::string& module) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid) || StateOf(pid).parent != getpid()) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::string word;
    while (std::getline(file, word, '\0')) count += word == module ? 1 : 0;
  }
  return count;
}

/// Waits until `what` holds, at most a minute; whether it does.
template <typename Condition>
bool Await(const Condition& what) {
  return base::AwaitPolling(absl::Milliseconds(2), base::Deadline::After(absl::Seconds(60)), what);
}

}  // namespace troupe::envhost
