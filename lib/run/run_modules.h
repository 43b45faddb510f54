#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/config/run_config.h"
#include "lib/config/torch_modules.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::run {

/// Where a run keeps its TorchScript files, of networks and losses: torchscript/<SHA-256>.pt in its folder.
std::string ModulePath(const std::string& folder, const std::string& sha256);

/// Reads those of `use` that the pinned configuration names, and this process does not have yet, into
/// policy::ModuleFiles: for whoever resumes or plays the run, to whom its folder is a program. One that is not there is
/// found missing by who needs it. DATA_LOSS: a file is not what its name says.
absl::Status ReadRunModules(const std::string& folder, const config::RunConfig& config, config::ModuleUse use);

/// Keeps those that the pinned configuration names in the folder, durably: a run goes on, and is evaluated, after the
/// originals are gone. INVALID_ARGUMENT with the key's place for one that this process does not have.
absl::Status KeepRunModules(const std::string& folder, const config::RunConfig& config);

}  // namespace troupe::run
