#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/config/run_config.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::run {

/// Where a run keeps the TorchScript files of its policies: torchscript/<SHA-256>.pt in its folder.
std::string ModulePath(const std::string& folder, const std::string& sha256);

/// Reads those that the pinned configuration names, and this process does not have yet, into policy::ModuleFiles: for
/// whoever resumes or plays the run, to whom its folder is a program. One that is not there is found missing by who
/// needs it. DATA_LOSS: a file is not what its name says.
absl::Status ReadRunModules(const std::string& folder, const config::RunConfig& config);

/// Keeps those of `specs` in the folder, durably: a run goes on, and is evaluated, after the originals are gone.
absl::Status KeepRunModules(const std::string& folder, const std::vector<policy::PolicySpec>& specs);

}  // namespace troupe::run
