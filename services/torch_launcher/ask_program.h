#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace troupe::services {

/// How a program ended that was asked something. Plain value.
struct ProgramAnswer {
  int status = 0;    ///< as waitpid gives it
  std::string text;  ///< what it wrote to stdout and stderr, the first 64 KiB of it

  /// "3", "signal 9": what it ended with.
  std::string EndedWith() const;
  /// Its last line that is not empty, safe to show; "nothing" without one.
  std::string LastLine() const;
};

/// Runs `command` (an absolute path and its arguments) with an empty stdin until it has ended and closed its output, at
/// most for `timeout`; then it is killed, with what it started. DEADLINE_EXCEEDED; INTERNAL: it cannot be started.
/// Messages name no program: they go on after its name. A path that is no program ends with 127.
absl::StatusOr<ProgramAnswer> AskProgram(std::vector<std::string> command, absl::Duration timeout);

}  // namespace troupe::services
