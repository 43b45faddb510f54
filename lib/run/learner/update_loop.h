#pragma once

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/config/resolved_run.h"
#include "lib/learner/learner.h"
#include "lib/rollout/evaluator.h"
#include "lib/run/learner/callback_host.h"
#include "lib/run/learner/checkpoint_loop.h"
#include "lib/run/learner/checkpoint_schedule.h"
#include "lib/run/learner/control_handler.h"
#include "lib/run/learner/degradations.h"
#include "lib/run/learner/policy_desk.h"
#include "lib/run/learner/run_evaluator.h"
#include "lib/run/learner/run_reporter.h"
#include <nlohmann/json.hpp>

namespace troupe::run {

/// What an update thread does: a step of the learner, then what is due before the next one, which is evaluations,
/// checkpoints, and what was asked of the control handler. Callbacks are told of it, each after what it is told of.
/// Made by the learner's process, confined to the update thread.
class UpdateLoop {
 public:
  /// All of it outlives the loop.
  struct Deps {
    const config::ResolvedRun* run = nullptr;
    learner::Learner* learner = nullptr;
    RunReporter* reporter = nullptr;
    RunEvaluator* evaluator = nullptr;
    CheckpointLoop* checkpoints = nullptr;
    ControlHandler* control = nullptr;
    PolicyDesk* policies = nullptr;
    Degradations* degradations = nullptr;
    CallbackHost* callbacks = nullptr;  ///< absent: none
    const base::Clock* clock = &base::Clock::Real();
  };

  /// `resumed_env_steps`: trained before this process.
  UpdateLoop(const Deps& deps, int64_t resumed_env_steps)
      : deps_(deps),
        resumed_env_steps_(resumed_env_steps),
        seen_env_steps_(resumed_env_steps),
        schedule_(deps.run->experiment, deps.clock) {}

  /// One step of the learner and what follows from it, which is nothing where that is kFailed. Errors are those of
  /// SaveState.
  absl::StatusOr<learner::StepOutcome> Step(absl::Duration timeout);
  /// SaveState for the last checkpoint, where the configuration wants one. `always`: also if it is not the best so far.
  absl::Status SaveFinal(bool always);
  /// Hands the state to who writes checkpoints if it is the best so far, or `always`. Errors are the trainer's.
  absl::Status SaveState(bool always, CheckpointLoop::Done done);
  /// Evaluates the weights of now. Errors are RunEvaluator::Evaluate's, and Tell's.
  absl::StatusOr<rollout::EvaluationResult> Evaluate();
  /// Callbacks hear of it, where one wants to. While they are behind by a full queue this waits, and does what is asked
  /// of the control handler meanwhile, since it may be they who ask. Errors are those of SaveState.
  absl::Status Tell(Hook hook, absl::FunctionRef<nlohmann::json()> facts);
  /// After the last update: saves the state if callbacks still have to be called, since the process may be killed
  /// while it waits for them, and waits as AwaitCallbacks does.
  absl::Status EndUpdates();
  /// Waits in the same way until callbacks have been called for all that they were told.
  absl::Status AwaitCallbacks();
  /// Trained, of the whole run.
  int64_t env_steps() const;

 private:
  absl::Status AfterUpdate();
  absl::Status Serve(ControlHandler::CheckpointRequest request);
  /// What was asked of the control handler.
  absl::Status ServeControl();
  /// Writes the line of the last update, before a state is saved from which a run may go on, or once callbacks have
  /// said what belongs to it. The last line of a run waits for the end: for the evaluation of the last weights.
  void SettleUnlessLast();
  /// Whether it succeeded; a failure is a degradation.
  bool EvaluateInTraining();
  /// evaluation.parallel: takes the result of the evaluation that is played, and begins one that is due.
  absl::Status EvaluateBeside(bool due);
  /// The result, where there is one; `wait` waits for it. The state that it played is saved where it is the best so
  /// far.
  void TakeEvaluation(bool wait);
  void TellEvaluation(const absl::StatusOr<rollout::EvaluationResult>& result, int64_t env_steps);
  /// True if it succeeded.
  bool NoteEvaluation(const absl::Status& status, int64_t env_steps);

  const Deps deps_;
  const int64_t resumed_env_steps_;
  int64_t seen_env_steps_;  ///< after the last update that was looked at
  CheckpointSchedule schedule_;
  bool evaluation_due_ = false;                   ///< while another one is played
  std::optional<learner::LearnerState> playing_;  ///< of the evaluation that is played
};

}  // namespace troupe::run
