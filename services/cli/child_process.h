#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace troupe::services {

/// How a process ended. Plain value.
struct ChildExit {
  int code = 0;    ///< exit code; 0 when a signal ended it
  int signal = 0;  ///< the signal that ended it; 0: it exited by itself

  bool ok() const { return code == 0 && signal == 0; }
  /// A shell's exit code for it: 128 + signal when killed.
  int ShellCode() const { return signal != 0 ? 128 + signal : code; }
  /// "exited with 1", "was killed by signal 9 (Killed)".
  std::string ToString() const;
};

/// Starts `command` (an absolute path and its arguments) in a process group of its own, with our stdout and stderr, an
/// empty stdin and no signal blocked. It gets SIGTERM when we die, however we die. INTERNAL when it cannot be started.
/// Call from the main thread: the child's life hangs on the calling thread.
absl::StatusOr<pid_t> StartChild(const std::vector<std::string>& command);

/// How `pid` ended, or nullopt while it runs. Never blocks.
std::optional<ChildExit> TryReap(pid_t pid);

}  // namespace troupe::services
