// troupe learner: becomes troupe-learner. main does so before the command line is parsed; this is for `troupe --help`.

#include "lib/cli/programs.h"
#include "services/cli/cli_command.h"
#include <CLI/CLI.hpp>

namespace troupe::services {

void AddLearnerCommand(CLI::App& app, Action* action) {
  CLI::App* learner =
      app.add_subcommand("learner", "Serve a run to workers on other machines (starts troupe-learner).");
  learner->allow_extras();
  learner->footer(
      "Example: troupe learner examples/simple_spread_mappo.yaml --listen 0.0.0.0:50051 --insecure-plaintext-network");
  learner->callback([=] { *action = [=]() -> absl::StatusOr<int> { return cli::ExecLearner(learner->remaining()); }; });
}

}  // namespace troupe::services
