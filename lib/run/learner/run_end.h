#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "lib/learner/learner.h"
#include "lib/run/learner/checkpoint_loop.h"
#include "lib/run/learner/degradations.h"
#include "lib/run/learner/run_evaluator.h"
#include "lib/run/learner/run_reporter.h"
#include "lib/run/learner/run_summary.h"
#include "lib/run/learner/update_loop.h"

namespace troupe::run {

/// What a run whose training is over ends with. Made by the learner's process, used once, on the update thread. States:
/// made -> (Conclude) concluded -> (Tell) told.
class RunEnd {
 public:
  /// All of it outlives the object.
  struct Deps {
    learner::Learner* learner = nullptr;
    RunReporter* reporter = nullptr;
    RunEvaluator* evaluator = nullptr;
    UpdateLoop* updates = nullptr;
    const CheckpointLoop* checkpoints = nullptr;
    const Degradations* degradations = nullptr;
  };

  /// `name` and `directory`: of the run.
  RunEnd(const Deps& deps, const std::string& name, const std::string& directory);

  /// The last state for a checkpoint, then the last evaluation, where one is due (`evaluate`), while workers may still
  /// come. Errors are UpdateLoop::SaveState's.
  absl::Status Conclude(const learner::StepOutcome& outcome, bool evaluate);
  /// Once nobody is connected any more and checkpoints are written or not: the last line of progress, summary.json and
  /// the same for people on stdout. OK: the run has ended as it should; else why not, for the person at the command
  /// line.
  absl::Status Tell();

 private:
  const Deps deps_;
  learner::StepOutcome::Kind kind_ = learner::StepOutcome::Kind::kWaiting;
  double wall_clock_s_ = 0;
  RunSummary summary_;
};

/// The error of a run that ends because an update failed. `unsaved`: why its last checkpoint was not written; empty: it
/// was, at `env_steps`.
absl::Status UpdateFailed(const absl::Status& why, const std::string& unsaved, int64_t env_steps,
                          const std::string& directory);

}  // namespace troupe::run
