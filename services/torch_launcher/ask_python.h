#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace troupe::services {

/// The folder of the package torch, from the first python3 in `path` (as PATH), which finds it without importing it.
/// Blocks until python3 answers, at most for `timeout`; then it is killed, with what it started. NOT_FOUND: no python3,
/// or no torch there; DEADLINE_EXCEEDED; INTERNAL: it failed, or answered something else. The message is half a
/// sentence, which goes on after "… and".
absl::StatusOr<std::string> AskPythonForTorch(const std::string& path, absl::Duration timeout);

}  // namespace troupe::services
