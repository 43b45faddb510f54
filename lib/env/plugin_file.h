#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::env {

/// Where a plug-in's file is on this machine: `path` itself, or, when there is no such file, one of the same file name
/// in the folders of `search` (separated by colons; the environment variable TROUPE_PLUGIN_PATH, for workers on other
/// machines). NOT_FOUND says where it was looked for.
absl::StatusOr<std::string> FindEnvPlugin(const std::string& path, std::string_view search);

/// OK when the file is a whole shared library for this machine. The loader itself does not look: a file that was cut
/// off ends the process. NOT_FOUND: no file; INVALID_ARGUMENT says what it is instead.
absl::Status CheckPluginFile(const std::string& path);

}  // namespace troupe::env
