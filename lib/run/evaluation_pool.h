#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/env/env_spec.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/rollout/evaluator.h"

namespace troupe::run {

/// Plays evaluations with several threads. Episode i is the same whatever the number of threads. Made by whoever
/// evaluates, used by one thread at a time.
class EvaluationPool {
 public:
  /// `num_threads` evaluators of `num_envs` environments each. Errors as Evaluator::Create.
  static absl::StatusOr<std::unique_ptr<EvaluationPool>> Create(const rollout::RolloutConfig& config, int num_threads,
                                                                int num_envs = 64);

  /// Blocks until all episodes are played. Errors as Evaluator::Run.
  absl::StatusOr<rollout::EvaluationResult> Run(const rollout::EvaluationRequest& request,
                                                absl::Span<const policy::WeightSnapshotPtr> weights);

 private:
  explicit EvaluationPool(env::EnvSpec env_spec) : env_spec_(std::move(env_spec)) {}

  const env::EnvSpec env_spec_;
  std::vector<std::unique_ptr<rollout::Evaluator>> evaluators_;
};

}  // namespace troupe::run
