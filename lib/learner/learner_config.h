#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/base/clock.h"
#include "lib/base/metric_sink.h"
#include "lib/learner/checkpoint.h"
#include "lib/learner/learner_options.h"
#include "lib/learner/ports.h"
#include "lib/learner/progress.h"
#include "lib/learner/score.h"
#include "lib/learner/trainer.h"
#include "lib/policy/policy_table.h"
#include "lib/sample/batch_schema.h"
#include "lib/tensor/buffer.h"

namespace troupe::learner {

class TrainChooser;

/// What a learner is made for. Plain value.
struct LearnerConfig {
  LearnerOptions options;
  StopOptions stop;
  sample::BatchSchema schema;
  sample::BatchLimits limits;
  /// The policies that the run begins or goes on with: their specs instead of the schema's, their `trains` instead of
  /// the options'. nullptr: the schema's policies, for ever.
  policy::PolicyTablePtr policies;
  uint64_t learner_epoch = 1;             ///< durable boot counter of the run, from 1
  std::vector<std::string> info_columns;  ///< EnvSpec::info_columns
  bool episode_callbacks = false;         ///< workers have callbacks: what they track is taken from no others
  bool strangers_play = false;  ///< clients over TCP play the episodes: what any worker reports is a stranger's word
  /// Evaluations decide `best` and stop.episode_return; else the means of 100 episodes in training.
  bool best_by_evaluation = false;
  std::optional<Score> best_by;  ///< nullopt: the sum, until agents' rewards differ, and nothing from then on
};

/// What a learner works with; everything must outlive it.
struct LearnerDeps {
  Trainer* trainer = nullptr;
  WeightPublisher* publisher = nullptr;
  base::MetricSink* metrics = nullptr;   ///< may be nullptr; called on the update thread
  ProgressListener* progress = nullptr;  ///< may be nullptr; called on the update thread
  base::Clock* clock = &base::Clock::Real();
  tensor::TensorAllocator* allocator = &tensor::TensorAllocator::Pageable();  ///< of the training buffers
  TrainChooser* chooser = nullptr;  ///< of the policies that an update changes; nullptr: all that train
};

/// What a Step did.
struct StepOutcome {
  enum class Kind {
    kWaiting,     ///< the timeout passed without a complete train batch
    kUpdated,     ///< one update, published
    kStopped,     ///< a stop condition holds: there will be no further update
    kDrained,     ///< a drain was asked for and nothing complete is left to train on
    kEnvsFailed,  ///< as kDrained, since environments fail: `reason` says where and why
    /// As kDrained, since a policy that trains lost all its rows: `reason` names it and the remedy (AgingWatch).
    kNothingTrained,
    kFailed,  ///< the trainer failed or the run cannot go on: see `status`
  };
  Kind kind = Kind::kWaiting;
  std::string reason;   ///< of kStopped, kDrained, kEnvsFailed and kNothingTrained
  absl::Status status;  ///< of kFailed
  /// Of kFailed: policies and counters are as before what failed, so that SnapshotState may be saved.
  bool state_is_whole = false;
};

/// A state to save, and whether it is the best so far.
struct LearnerSnapshot {
  LearnerState state;
  bool is_best = false;
};

}  // namespace troupe::learner
