#include <cstdio>
#include <string>

#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/env/registry.h"
#include "lib/envs/register_all.h"
#include "lib/run/memory_limit.h"
#include "lib/training/script/script_modules.h"
#include "services/cli/cli_command.h"
#include "services/cli/run_command_line.h"
#include "services/common/signals.h"
#include "services/learner/learner_flags.h"
#include "services/learner/learner_process.h"
#include "services/torch_launcher/library_path.h"

namespace {

// For the threads of gRPC and LibTorch, the policies and a batch of a small run. A larger one may run out later.
constexpr int64_t kNeededBytes = int64_t{256} << 20;

absl::Status Run(const troupe::services::LearnerFlags& flags) {
  const absl::Status fits = troupe::run::FitIntoMemoryLimit(kNeededBytes);
  if (!fits.ok()) return fits;
  troupe::env::EnvRegistry registry;
  troupe::envs::RegisterAllEnvs(registry);
  return troupe::services::RunLearner(flags, registry);
}

/// The commands of `troupe` that act with policies, where those are users' modules.
void AddActingCommands(CLI::App& app, troupe::services::Action* action) {
  troupe::services::AddWorkerCommand(app, action);
  troupe::services::AddEvaluateCommand(app, action);
  troupe::services::AddWatchCommand(app, action);
  troupe::services::AddServeCommand(app, action);
  troupe::services::AddQueryCommand(app, action);
}

bool IsActingCommand(const std::string& word) {
  return word == "worker" || word == "evaluate" || word == "watch" || word == "serve" || word == "query";
}

}  // namespace

int main(int argc, char** argv) {
  troupe::run::EndInWordsWhenOutOfMemory("troupe-learner");
  troupe::services::RestoreLibraryPath();
  troupe::training::InstallScriptModules();
  if (argc >= 2 && IsActingCommand(argv[1])) {
    troupe::base::InitLogging("troupe", "info");
    troupe::training::ActWithOneThread();
    return troupe::services::RunCommandLine(argc, argv, "troupe-learner", &AddActingCommands);
  }
  const absl::StatusOr<troupe::services::LearnerFlags> flags = troupe::services::ParseLearnerFlags(argc, argv);
  if (flags.status().code() == absl::StatusCode::kOutOfRange) {
    std::fputs(std::string(flags.status().message()).c_str(), stdout);
    return 0;
  }
  if (!flags.ok()) {
    std::fprintf(stderr, "troupe-learner: error: %s\n", std::string(flags.status().message()).c_str());
    return static_cast<int>(troupe::base::ExitCode::kUsage);
  }
  troupe::base::InitLogging("learner", flags->log_level);
  troupe::services::DrainSignals::Install();
  const absl::Status status = Run(*flags);
  if (status.ok()) return static_cast<int>(troupe::services::DrainSignals::CodeInOrder());
  std::fprintf(
      stderr, "troupe-learner: error: %s\n",
      troupe::base::TerminalSafe(std::string(status.message()), troupe::base::kMaxLogLineBytes, /*keep_lines=*/true)
          .c_str());
  return static_cast<int>(troupe::base::ExitCodeOf(status));
}
