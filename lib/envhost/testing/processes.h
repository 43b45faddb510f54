#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

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

/// Waits until `what` holds, at most a minute; whether it does.
template <typename Condition>
bool Await(const Condition& what) {
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!what() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(2));
  return what();
}

}  // namespace troupe::envhost
