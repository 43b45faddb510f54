// troupe: the thin program. Parses the command line and runs one subcommand; errors go to stderr, what was asked for to
// stdout.

#include <string>

#include "lib/base/log.h"
#include "lib/cli/programs.h"
#include "lib/run/memory_limit.h"
#include "services/cli/cli_command.h"
#include "services/cli/completion.h"
#include "services/cli/run_command_line.h"

namespace {

void AddCommands(CLI::App& app, troupe::services::Action* action) {
  troupe::services::AddTrainCommand(app, action);
  troupe::services::AddLearnerCommand(app, action);
  troupe::services::AddWorkerCommand(app, action);
  troupe::services::AddEvaluateCommand(app, action);
  troupe::services::AddWatchCommand(app, action);
  troupe::services::AddServeCommand(app, action);
  troupe::services::AddQueryCommand(app, action);
  troupe::services::AddStatusCommand(app, action);
  troupe::services::AddStopCommand(app, action);
  troupe::services::AddRunsCommand(app, action);
  troupe::services::AddPolicyCommand(app, action);
  troupe::services::AddMappingCommand(app, action);
  troupe::services::AddCheckpointCommand(app, action);
  troupe::services::AddExportCommand(app, action);
  troupe::services::AddEnvsCommand(app, action);
  troupe::services::AddDemoCommand(app, action);
  troupe::services::AddInitCommand(app, action);
  troupe::services::AddConfigCommand(app, action);
  troupe::services::AddDoctorCommand(app, action);
  troupe::services::AddBenchCommand(app, action);
  troupe::services::AddCompletionCommand(app, action);
  troupe::services::AddVersionCommand(app, action);
}

}  // namespace

int main(int argc, char** argv) {
  troupe::run::EndInWordsWhenOutOfMemory("troupe");
  troupe::base::InitLogging("troupe", "info");
  // The learner is another program with flags of its own; they are passed on as they are.
  if (argc >= 2 && std::string(argv[1]) == "learner") {
    const absl::Status status = troupe::cli::ExecLearner({argv + 2, argv + argc});
    return troupe::services::FailedWith("troupe", status);
  }
  return troupe::services::RunCommandLine(argc, argv, "troupe", &AddCommands);
}
