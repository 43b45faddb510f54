// troupe stop

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/status_macros.h"
#include "lib/cli/learner_target.h"
#include "lib/cli/output.h"
#include "lib/rpc/control/control_client.h"
#include "lib/storage/file_system.h"
#include "lib/storage/run_folder.h"
#include "lib/storage/run_lock.h"
#include "services/cli/cli_command.h"
#include <CLI/CLI.hpp>

namespace troupe::services {
namespace {

struct StopFlags {
  std::string target;
  std::string directory = "runs";
  double timeout_s = 60;
};

constexpr absl::Duration kLook = absl::Milliseconds(20);

/// The rest, for the end of a sentence.
std::string AfterText(const std::string& folder) {
  const auto entries = storage::ListCheckpoints(storage::FileSystem::Posix(), folder);
  if (!entries.ok() || entries->empty()) return ", without a checkpoint";
  return absl::StrCat("; its newest checkpoint is of ", cli::WithThousands(entries->back().env_steps),
                      " env steps, from which `troupe train --resume` goes on");
}

absl::StatusOr<int> Stop(const StopFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const cli::LearnerTarget target, cli::FindLearner(flags.target, flags.directory));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::ControlClient> client, cli::OpenControl(target, "stop"));
  const base::Deadline deadline = base::Deadline::After(absl::Seconds(flags.timeout_s));
  TROUPE_RETURN_IF_ERROR(client->Drain("troupe stop", deadline.left()));
  // A learner has its run until the process ends, when all is written.
  if (!base::AwaitPolling(kLook, deadline,
                          [&] { return !storage::RunLock::IsHeld(target.folder) && !cli::IsTrained(target); })) {
    return absl::DeadlineExceededError(
        absl::StrCat("the run in \"", target.folder, "\" was asked to end and has not ended within ", flags.timeout_s,
                     " s (--timeout); it still ends, or a second SIGTERM to its `troupe train` ends it at once"));
  }
  std::printf("the run has stopped%s\n", AfterText(target.folder).c_str());
  return 0;
}

}  // namespace

void AddStopCommand(CLI::App& app, Action* action) {
  const auto flags = std::make_shared<StopFlags>();
  CLI::App* stop = app.add_subcommand(
      "stop", "Have a run that trains end in order, as after SIGTERM: with a checkpoint. Returns when it has.");
  stop->add_option("target", flags->target, "run folder, or a run's name")->required();
  stop->add_option("--directory", flags->directory, "where runs are looked for by name")->capture_default_str();
  stop->add_option("--timeout", flags->timeout_s, "seconds to wait for the end")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  stop->footer("Example: troupe stop runs/my_run");
  stop->callback([=] { *action = [=] { return Stop(*flags); }; });
}

}  // namespace troupe::services
