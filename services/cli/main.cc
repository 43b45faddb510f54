// troupe: the thin program. Parses the command line and runs one subcommand; errors go to stderr, what was asked for to
// stdout.

#include <cstdio>
#include <string>

#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/run/memory_limit.h"
#include "services/cli/cli_command.h"
#include "services/cli/programs.h"
#include "services/common/build_facts.h"
#include "services/common/usage_error.h"
#include <CLI/CLI.hpp>

namespace {

using troupe::base::ExitCode;

int Fail(const std::string& message, ExitCode code) {
  std::fflush(stdout);
  // It may quote what a peer said.
  std::fprintf(stderr, "troupe: error: %s\n",
               troupe::base::TerminalSafe(message, troupe::base::kMaxLogLineBytes, /*keep_lines=*/true).c_str());
  return static_cast<int>(code);
}

int Fail(const absl::Status& status) { return Fail(std::string(status.message()), troupe::base::ExitCodeOf(status)); }

}  // namespace

int main(int argc, char** argv) {
  troupe::run::EndInWordsWhenOutOfMemory("troupe");
  troupe::base::InitLogging("troupe", "info");
  // The learner is another program with flags of its own; they are passed on as they are.
  if (argc >= 2 && std::string(argv[1]) == "learner") {
    const absl::Status status = troupe::services::ExecLearner({argv + 2, argv + argc});
    return Fail(status);
  }

  CLI::App app{
      "Troupe trains many agents with many policies: rollout workers stream samples to a learner, which pushes weights "
      "back.",
      "troupe"};
  app.set_version_flag("--version", troupe::services::OwnBuildFacts().ToString(), "Print version, commit and build");
  app.footer(
      "Example: troupe train examples/simple_spread_mappo.yaml\n`troupe COMMAND --help` tells more about a command.");
  app.require_subcommand(1);
  troupe::services::Action action;
  troupe::services::AddTrainCommand(app, &action);
  troupe::services::AddLearnerCommand(app, &action);
  troupe::services::AddWorkerCommand(app, &action);
  troupe::services::AddEvaluateCommand(app, &action);
  troupe::services::AddServeCommand(app, &action);
  troupe::services::AddQueryCommand(app, &action);
  troupe::services::AddStatusCommand(app, &action);
  troupe::services::AddPolicyCommand(app, &action);
  troupe::services::AddMappingCommand(app, &action);
  troupe::services::AddCheckpointCommand(app, &action);
  troupe::services::AddEnvsCommand(app, &action);
  troupe::services::AddConfigCommand(app, &action);
  troupe::services::AddBenchCommand(app, &action);
  troupe::services::AddVersionCommand(app, &action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Fail(troupe::services::UsageError(app, error), ExitCode::kUsage);
  }
  const absl::StatusOr<int> code = action();
  if (!code.ok()) return Fail(code.status());
  return *code;
}
