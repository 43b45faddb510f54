// troupe stop

#include <cstdio>
#include <memory>

#include "lib/base/status_macros.h"
#include "lib/rpc/control_client.h"
#include "services/cli/cli_command.h"
#include "services/cli/learner_target.h"
#include <CLI/CLI.hpp>

namespace troupe::services {
namespace {

struct StopFlags {
  std::string target;
  std::string directory = "runs";
  double timeout_s = 60;
};

absl::StatusOr<int> Stop(const StopFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const LearnerTarget target, FindLearner(flags.target, flags.directory));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::ControlClient> client, OpenControl(target, "stop"));
  TROUPE_RETURN_IF_ERROR(client->Drain("troupe stop", absl::Seconds(flags.timeout_s)));
  std::printf("the run ends, with a checkpoint; `troupe train --resume` goes on\n");
  return 0;
}

}  // namespace

void AddStopCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<StopFlags>();
  CLI::App* stop = app.add_subcommand(
      "stop", "Have a run that trains end in order, as after SIGTERM: with a checkpoint. Returns at once.");
  stop->add_option("target", flags->target, "run folder, or a run's name")->required();
  stop->add_option("--directory", flags->directory, "where runs are looked for by name")->capture_default_str();
  stop->add_option("--timeout", flags->timeout_s, "seconds to wait for an answer")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  stop->footer("Example: troupe stop runs/my_run");
  stop->callback([=] { *action = [=] { return Stop(*flags); }; });
}

}  // namespace troupe::services
