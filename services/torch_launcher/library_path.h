#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace troupe::services {

/// Puts `folders` before, and `last` after, what LD_LIBRARY_PATH has, and keeps what it was for RestoreLibraryPath in
/// the program that is started next. INVALID_ARGUMENT where the loader could not read a folder's name (it has a ':' or
/// a ';').
absl::Status SetLibraryPath(const std::vector<std::string>& folders, const std::vector<std::string>& last);

/// Gives LD_LIBRARY_PATH the value from before SetLibraryPath, for the processes that this one starts; none where the
/// launcher did not start it. The loader has read the variable when the process began, so it still finds everything,
/// also what is opened later. Call first in main: it changes the environment.
void RestoreLibraryPath();

/// The folders below `stubs` whose library (each has one file) is neither in `folders` nor where the loader finds it by
/// itself.
std::vector<std::string> NeededStubs(const std::string& stubs, const std::vector<std::string>& folders);

}  // namespace troupe::services
