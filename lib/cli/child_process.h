#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/base/exit_code.h"

namespace troupe::cli {

/// How a process ended. Plain value.
struct ChildExit {
  int code = 0;    ///< exit code; 0 when a signal ended it
  int signal = 0;  ///< the signal that ended it; 0: it exited by itself

  bool Is(base::ExitCode exit_code) const { return signal == 0 && code == static_cast<int>(exit_code); }
  /// It was done, or did what a first SIGTERM or SIGINT asks for.
  bool in_order() const { return Is(base::ExitCode::kDone) || Is(base::ExitCode::kInterrupted); }
  /// A shell's exit code for it: 128 + signal when killed.
  int ShellCode() const { return signal != 0 ? 128 + signal : code; }
  /// "exited with 1", "was killed by signal 9 (Killed)".
  std::string ToString() const;
};

/// Starts `command` (an absolute path and its arguments) in a process group of its own, with our stdout and stderr, an
/// empty stdin and no signal blocked. It gets SIGTERM when we die, however we die. `inherited_fd`, if any, is open in
/// it under the same number. INTERNAL when it cannot be started. Call from the main thread: the child's life hangs on
/// the calling thread.
absl::StatusOr<pid_t> StartChild(const std::vector<std::string>& command,
                                 std::optional<int> inherited_fd = std::nullopt);

/// How `pid` ended, or nullopt while it runs. Never blocks.
std::optional<ChildExit> TryReap(pid_t pid);

}  // namespace troupe::cli
