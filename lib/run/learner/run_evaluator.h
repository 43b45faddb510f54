#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"
#include "lib/learner/learner.h"
#include "lib/learner/trainer.h"
#include "lib/policy/policy_table.h"
#include "lib/rollout/evaluator.h"
#include "lib/run/evaluation_pool.h"
#include "lib/run/learner/film_loop.h"
#include "lib/run/learner/run_reporter.h"

namespace troupe::run {

/// Evaluates the policies of a learner as they are now, and tells the reporter and the learner what came of it. Made by
/// the learner's process, used on the update thread.
class RunEvaluator {
 public:
  /// Of why an evaluation failed, where that is told.
  static constexpr size_t kMaxErrorChars = 1000;

  /// All of it outlives the evaluator.
  struct Deps {
    const config::ResolvedRun* run = nullptr;  ///< as it began, with the environment of evaluations
    const env::EnvRegistry* registry = nullptr;
    learner::Learner* learner = nullptr;
    learner::Trainer* trainer = nullptr;  ///< the learner's
    RunReporter* reporter = nullptr;
    FilmLoop* films = nullptr;                    ///< nullptr: no evaluation is filmed
    std::function<bool()> interrupted = nullptr;  ///< whether somebody wants the process to end; may be absent
  };

  explicit RunEvaluator(const Deps& deps) : deps_(deps) {}

  /// Makes what plays the episodes, anew if the policies have changed. Errors as EvaluationPool::Create.
  absl::Status Prepare();
  /// Plays the episodes that `evaluation` of the configuration asks for, with the weights after `env_steps`. Blocks as
  /// long as they take. Errors of Prepare, of the trainer, of EvaluationPool::Run and of PlayWatched.
  absl::StatusOr<rollout::EvaluationResult> Evaluate(int64_t env_steps);
  /// CutText of one of its results.
  std::string CutTextOf(const rollout::EvaluationResult& result) const;
  /// The policies of the last evaluation; nullptr before Prepare.
  const policy::PolicyTablePtr& evaluated() const { return evaluated_; }

 private:
  /// Orders a film of the best episode, where it is time for one.
  void MaybeFilm(const rollout::EvaluationRequest& request, const rollout::EvaluationResult& result,
                 std::vector<policy::WeightSnapshotPtr> weights, int64_t env_steps);

  const Deps deps_;
  int64_t evaluations_ = 0;           ///< of this learner's life
  bool told_no_end_ = false;          ///< that no episode ends
  policy::PolicyTablePtr evaluated_;  ///< what pool_ was made for
  std::unique_ptr<EvaluationPool> pool_;
  const std::shared_ptr<std::atomic<bool>> abandoned_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace troupe::run
