#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/base/clock.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"
#include "lib/learner/checkpoint.h"
#include "lib/run/learner/start_watch.h"
#include "lib/storage/run_folder.h"

namespace troupe::run {

/// The run that a learner is asked to train: its flags, as far as they are about the run. Plain value.
struct RunRequest {
  std::string config_path;             ///< empty only with `resume`
  std::vector<std::string> overrides;  ///< "a.b=c"
  int num_workers = -1;                ///< --workers; -1: as configured
  std::string name;                    ///< experiment_name; empty: as configured
  std::string directory;               ///< experiment.directory; empty: as configured
  std::string python;                  ///< env.python.interpreter; empty: as configured
  std::string resume;                  ///< a run folder, or a run's name inside experiment.directory
  bool resume_or_start = false;        ///< go on with the run of that name when it is there
  std::string start_over;              ///< the run of that name is moved away and begins anew
  std::string warm_start;              ///< a checkpoint directory or a run folder: weights alone
};

/// A run that is ready to be trained: its configuration, its folder (locked), and where it starts from.
struct RunSetup {
  config::ResolvedRun run;
  std::string name;  ///< of the run: the folder's last part
  std::unique_ptr<storage::RunFolder> folder;
  std::optional<learner::LearnerState> resumed;  ///< set when the run goes on from a checkpoint
  /// By policy slot: weights to begin with where they are not fresh, of a warm start or of class checkpoint.
  std::vector<std::optional<policy::PolicyState>> initial;
  std::string moved_to;                  ///< where --start-over moved the run that was here; empty: nowhere
  std::vector<std::string> quarantined;  ///< checkpoints that were damaged and set aside
  /// Of a finished run that goes on: why there is nothing to train, and what would change that. Empty: there is.
  std::string nothing_left;
};

/// Reads and checks the configuration, makes or takes the run folder, loads what a resume or a warm start needs. Every
/// error names its cause for the person at the command line. CANCELLED: `watch` stopped what the run tries in Python.
absl::StatusOr<RunSetup> SetUpRun(const RunRequest& request, const env::EnvRegistry& registry, base::Clock& clock,
                                  StartWatch* watch = nullptr);

/// A run in which nothing is left to do, as it is served for workers that come late: what is there stays as it is.
void LeaveAsItIs(config::ResolvedRun* run);
/// That nothing is left, for people.
std::string NothingLeftText(const RunSetup& setup);

}  // namespace troupe::run
