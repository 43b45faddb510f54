#pragma once

#include <string>

#include "absl/status/status.h"

namespace troupe::base {

/// `status` with the lines of a traceback beside its message, which says in one line what happened and where. Nothing
/// for an OK status or an empty text. What makes a new Status of it must hand the traceback on.
absl::Status WithTraceback(absl::Status status, const std::string& traceback);
/// What WithTraceback attached; empty: nothing. As it came: for people it goes through LogSafeLines.
std::string TracebackOf(const absl::Status& status);

/// `status` as the doing of a callback beside an environment: it costs the episode and says nothing of the environment.
/// What makes a new Status of it must hand that on.
absl::Status WithCallbackBlamed(absl::Status status, bool blamed = true);
bool IsCallbackBlamed(const absl::Status& status);

}  // namespace troupe::base
