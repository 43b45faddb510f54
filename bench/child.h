#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "lib/base/check.h"

extern char** environ;

namespace troupe::bench {

/// Another process of this same program, with other arguments; killed with its object. A fresh program, because gRPC
/// does not survive a fork.
class Child {
 public:
  explicit Child(const std::vector<std::string>& arguments) {
    std::vector<char*> argv;
    argv.push_back(const_cast<char*>("bench-child"));
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    TROUPE_CHECK(posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, argv.data(), environ) == 0);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

}  // namespace troupe::bench
