#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::base {

/// How a program of ours ends (docs/cli.md). A shell, a supervisor or a container's restart policy decides by it.
enum class ExitCode : int {
  kDone = 0,           ///< also SIGTERM or a drain, in order
  kFailed = 1,         ///< another try may end differently
  kUsage = 2,          ///< wrong use of the command line
  kDeaf = 70,          ///< the watchdog found that the process does not answer at its own port
  kRefused = 78,       ///< no other try ends differently before somebody changes something: nothing was begun
  kInterrupted = 130,  ///< SIGINT, in order
};

/// `status` with the code that the program is to end with. Further words added with a new Status lose it.
absl::Status WithExitCode(absl::Status status, ExitCode code);
/// The error of a start, with kRefused where its code says that the same start again ends the same: INVALID_ARGUMENT,
/// NOT_FOUND, FAILED_PRECONDITION, PERMISSION_DENIED, OUT_OF_RANGE, UNIMPLEMENTED. One that was given a code keeps it.
/// lib/config gives it to every error of a configuration, so that all commands that read one end alike.
absl::Status RefusedIfFinal(absl::Status status);
template <typename T>
absl::StatusOr<T> RefusedIfFinal(absl::StatusOr<T> value) {
  if (value.ok()) return value;
  return RefusedIfFinal(std::move(value).status());
}
/// kDone for OK, the code that `status` was given, else kFailed.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace troupe::base
