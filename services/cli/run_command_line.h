#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "services/cli/cli_command.h"

namespace troupe::services {

/// Says `status` on stderr as `program`'s error; the exit code that it means.
int FailedWith(const std::string& program, const absl::Status& status);

/// Parses a command line of subcommands, which `add` declares, and runs the one that is asked for; the exit code.
/// Errors go to stderr, what was asked for to stdout.
int RunCommandLine(int argc, char** argv, const std::string& program,
                   const std::function<void(CLI::App&, Action*)>& add);

/// This program as whoever started it spelled it: "./troupe", "troupe", a path. For commands that a person pastes.
std::string OwnSpelling();

/// Makes this process troupe-learner, with the arguments that it has, where modules are to be run (users' TorchScript)
/// and this program has no LibTorch; returns OK where there is nothing to do. `modules`, which says whether, is asked
/// only then. Errors as ExecLearner.
absl::Status ActWhereLibTorchIs(absl::FunctionRef<bool()> modules);
/// Whether the configuration in `path` names users' modules; false where it cannot be read, which is said later.
bool NamesModules(const std::string& path, const std::vector<std::string>& overrides = {});

}  // namespace troupe::services
