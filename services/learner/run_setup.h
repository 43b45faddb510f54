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
#include "lib/storage/run_folder.h"
#include "services/learner/learner_flags.h"

namespace troupe::services {

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
/// error names its cause for the person at the command line.
absl::StatusOr<RunSetup> SetUpRun(const LearnerFlags& flags, const env::EnvRegistry& registry, base::Clock& clock);

}  // namespace troupe::services
