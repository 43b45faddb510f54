#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/learner/train_batch.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::learner {

/// Where in the run an update stands; schedules and shuffles follow from it alone, so that a resumed run equals an
/// uninterrupted one.
struct UpdateContext {
  uint64_t seed = 0;
  int64_t iteration = 0;               ///< updates before this one
  int64_t env_steps = 0;               ///< trained env steps before this one
  policy::WeightVersion next_version;  ///< version that the updated weights get
};

/// What one update of one policy did.
struct PolicyUpdateReport {
  policy::PolicySlot policy;
  int64_t trained_rows = 0;     ///< active rows of the batch (each counted once, not once an epoch)
  int64_t minibatch_steps = 0;  ///< optimizer steps taken
  int64_t epochs = 0;           ///< begun; fewer than asked when target_kl stopped it
  double train_time_s = 0;      ///< from the batch to new weights; side by side with others where they train so
  int64_t skipped_steps = 0;    ///< minibatch steps refused for a non-finite loss or gradient
  std::vector<std::pair<std::string, double>> metrics;  ///< tag (docs/metrics.md, e.g. "Loss/Policy loss") and value
};

/// The learning algorithm behind the learner. Implemented in lib/training with LibTorch, by FakeTrainer in tests.
/// Used by the update thread only; may block as long as an update takes. Weights stay untouched by a failed update.
class Trainer {
 public:
  virtual ~Trainer() = default;

  /// One update from one train batch: values, advantages, epochs of minibatches. The context's next_version becomes the
  /// version of every policy.
  virtual absl::StatusOr<std::vector<PolicyUpdateReport>> Update(const TrainBatch& batch,
                                                                 const UpdateContext& context) = 0;
  /// The actor part as workers use it. The pointer is new after every Update.
  virtual absl::StatusOr<policy::WeightSnapshotPtr> Snapshot(policy::PolicySlot policy) = 0;
  /// Everything, for a checkpoint (copied). And back: INVALID_ARGUMENT when it does not fit the policy.
  virtual absl::StatusOr<policy::PolicyState> ExportState(policy::PolicySlot policy) = 0;
  virtual absl::Status ImportState(const policy::PolicyState& state, policy::PolicySlot policy) = 0;
  /// Of the trainer as a whole, by tag; reported with each update.
  virtual std::vector<std::pair<std::string, double>> Metrics() { return {}; }
};

}  // namespace troupe::learner
