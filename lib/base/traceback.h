#pragma once

#include <string>

#include "absl/status/status.h"

namespace troupe::base {

/// `status` with the lines of a traceback beside its message, which says in one line what happened and where. Nothing
/// for an OK status or an empty text. What makes a new Status of it must hand the traceback on.
absl::Status WithTraceback(absl::Status status, const std::string& traceback);
/// What WithTraceback attached; empty: nothing. As it came: for people it goes through LogSafeLines.
std::string TracebackOf(const absl::Status& status);

}  // namespace troupe::base
