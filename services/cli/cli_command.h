#pragma once

#include <functional>

#include "absl/status/statusor.h"

namespace CLI {
class App;
}

/// The subcommands of `troupe`, a file each. Add… declares the command's flags on `app` and, when it is the one on the
/// command line, sets
/// `*action` to what it does: the exit code, or why it failed (printed by main). Nothing runs while the command line is
/// parsed.
namespace troupe::services {

using Action = std::function<absl::StatusOr<int>()>;

void AddTrainCommand(CLI::App& app, Action* action);
void AddLearnerCommand(CLI::App& app, Action* action);
void AddWorkerCommand(CLI::App& app, Action* action);
void AddEvaluateCommand(CLI::App& app, Action* action);
void AddServeCommand(CLI::App& app, Action* action);
void AddQueryCommand(CLI::App& app, Action* action);
void AddStatusCommand(CLI::App& app, Action* action);
void AddStopCommand(CLI::App& app, Action* action);
void AddWatchCommand(CLI::App& app, Action* action);
void AddRunsCommand(CLI::App& app, Action* action);
void AddPolicyCommand(CLI::App& app, Action* action);
void AddMappingCommand(CLI::App& app, Action* action);
void AddCheckpointCommand(CLI::App& app, Action* action);
void AddExportCommand(CLI::App& app, Action* action);
void AddEnvsCommand(CLI::App& app, Action* action);
void AddDoctorCommand(CLI::App& app, Action* action);
void AddDemoCommand(CLI::App& app, Action* action);
void AddInitCommand(CLI::App& app, Action* action);
void AddConfigCommand(CLI::App& app, Action* action);
void AddBenchCommand(CLI::App& app, Action* action);
void AddVersionCommand(CLI::App& app, Action* action);

}  // namespace troupe::services
