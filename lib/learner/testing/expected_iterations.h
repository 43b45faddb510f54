#pragma once

#include <cstdint>

#include "lib/learner/feed.h"
#include "lib/learner/learner_options.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

/// The iteration that a model expects an accepted fragment to be of: in rounds the one that was granted, in a
/// free-running plan the one that its arrival falls into.
class ExpectedIterations {
 public:
  explicit ExpectedIterations(const LearnerOptions& options) : options_(options) {}

  bool free_running() const { return options_.max_policy_lag >= kFreeRunning; }
  /// Fragments come in the order in which they are accepted.
  int64_t Next(const sample::MultiAgentBatch& fragment) {
    if (!free_running()) return fragment.iteration;
    const int64_t iteration = iteration_;
    const bool by_agents = options_.count_steps_by == CountStepsBy::kAgentSteps;
    counted_ += by_agents ? fragment.num_agent_steps : fragment.num_env_steps;
    if (counted_ >= options_.train_batch_size) {
      counted_ = 0;
      ++iteration_;
    }
    return iteration;
  }

 private:
  const LearnerOptions options_;
  int64_t iteration_ = 0;
  int64_t counted_ = 0;
};

}  // namespace troupe::learner
