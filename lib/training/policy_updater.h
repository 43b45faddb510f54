#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/learner/trainer.h"
#include "lib/policy/policy_spec.h"
#include "lib/tensor/buffer.h"
#include "lib/training/policy_store.h"
#include "lib/training/ppo_backend.h"
#include "lib/training/ppo_options.h"
#include "lib/training/prepared_batch.h"

namespace troupe::training {

/// A policy at work: where it lives, and what it is.
struct PolicyAtWork {
  policy::PolicySlot slot;
  const policy::PolicySpec& spec;
  const PpoOptions& options;
  ResidentPolicy& resident;
  int64_t* partly_skipped_updates;  ///< of this process, to log them ever more rarely
};

/// One policy's PPO update: values, advantages, epochs of minibatches. Made and owned by PpoTrainer, one for each of
/// its threads; used by one thread at a time. Nothing of a policy stays in it but memory. May block as the policy's
/// PpoBackend does.
class PolicyUpdater {
 public:
  /// `allocator` as PreparedBatch has it. `team`: whose threads a policy's update shares where it has all of them;
  /// nullptr: there is none. It outlives this.
  explicit PolicyUpdater(tensor::TensorAllocator& allocator, ThreadTeam* team = nullptr)
      : prepared_(allocator), team_(team) {}

  /// `thread` as PpoBackend::Begin has it. INVALID_ARGUMENT for a batch that does not fit the policy, or a policy of a
  /// class that is not trained, before anything has changed. The report of a batch without an active row says so.
  absl::StatusOr<learner::PolicyUpdateReport> Update(const learner::PolicyTrainBatch& batch,
                                                     const learner::UpdateContext& context, const PolicyAtWork& policy,
                                                     int thread);

 private:
  struct ValueReport {
    double explained_variance = 0;
  };
  absl::StatusOr<ValueReport> PrepareTargets(const learner::PolicyTrainBatch& batch, const PolicyAtWork& policy);
  struct EpochsReport {
    StepTotals totals;
    double last_kl = 0;
    int64_t epochs = 0;
  };
  absl::StatusOr<EpochsReport> RunEpochs(const learner::PolicyTrainBatch& batch, const learner::UpdateContext& context,
                                         const StepSettings& settings, const PolicyAtWork& policy);
  void UpdateObservationMoments(const learner::PolicyTrainBatch& batch, const PolicyAtWork& policy) const;
  static void BookSkips(const StepTotals& totals, const PolicyAtWork& policy);

  PreparedBatch prepared_;
  ThreadTeam* const team_;
  std::vector<int32_t> order_;
};

}  // namespace troupe::training
