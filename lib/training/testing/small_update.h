#pragma once

#include <cstdint>
#include <vector>

#include "lib/learner/trainer.h"
#include "lib/training/ppo/ppo_options.h"

namespace troupe::training {

/// Segments of a RandomBatch of 55 rows: with SmallUpdateOptions an update of it has 12 minibatch steps.
inline const std::vector<int64_t> kSmallUpdateSegments = {7, 9, 5, 12, 4, 8, 10};

inline PpoOptions SmallUpdateOptions() {
  PpoOptions options;
  options.learning_rate = 1e-3;
  options.num_epochs = 3;
  options.minibatch_size = 16;
  options.use_value_clip = true;
  return options;
}

inline learner::UpdateContext SmallUpdateContext(int64_t iteration) {
  return {.seed = 3, .iteration = iteration, .env_steps = 0, .next_version = {1, iteration + 1}};
}

}  // namespace troupe::training
