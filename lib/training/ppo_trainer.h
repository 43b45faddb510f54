#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/learner/trainer.h"
#include "lib/policy/policy_spec.h"
#include "lib/tensor/buffer.h"
#include "lib/training/parameters.h"
#include "lib/training/ppo_backend.h"
#include "lib/training/ppo_options.h"
#include "lib/training/prepared_batch.h"

namespace troupe::training {

/// INVALID_ARGUMENT, naming the option, what it is and what is expected, for a value that PPO cannot work with.
absl::Status ValidatePpoOptions(const PpoOptions& options);

/// IPPO and MAPPO as one PPO over flat parameters: values, advantages, epochs of minibatches; which critic input a
/// policy has stands in its PolicySpec. Made by MakePpoTrainer; confined to the update thread. The arithmetic of
/// networks is a PpoBackend's.
///
/// Policies of classes that are not trained are kept, without a back end and an optimizer: their weights are what
/// ImportState gave (checkpoint), or there are none.
///
/// Invariants: 1. Parameters and optimizer are finite at all times. 2. A failed Update leaves every policy as it
/// was. 3. An update is a function of (state, batch, context): nothing else is remembered, so a resumed run equals an
/// uninterrupted one.
class PpoTrainer final : public learner::Trainer {
 public:
  /// Makes a policy's back end; INVALID_ARGUMENT or UNAVAILABLE when it cannot.
  using BackendFactory = std::function<absl::StatusOr<std::unique_ptr<PpoBackend>>(const policy::PolicySpec&)>;

  /// Policies with fresh weights of version (0, 0). INVALID_ARGUMENT for an invalid spec or option. `allocator` is for
  /// what back ends copy to their device; it must outlive the trainer.
  static absl::StatusOr<std::unique_ptr<PpoTrainer>> Make(
      std::vector<policy::PolicySpec> specs, const PpoOptions& options, uint64_t seed,
      const BackendFactory& make_backend, tensor::TensorAllocator& allocator = tensor::TensorAllocator::Pageable());

  /// One PPO update of every policy in `batch` that trains and has an active row; every policy gets
  /// context.next_version. INVALID_ARGUMENT for a batch that does not fit its policy, or trains one of a class that is
  /// not.
  absl::StatusOr<std::vector<learner::PolicyUpdateReport>> Update(const learner::TrainBatch& batch,
                                                                  const learner::UpdateContext& context) override;
  /// NOT_FOUND for an unknown slot, here and below.
  absl::StatusOr<policy::WeightSnapshotPtr> Snapshot(policy::PolicySlot policy) override;
  absl::StatusOr<policy::PolicyState> ExportState(policy::PolicySlot policy) override;
  /// A state without Adam's moments starts the optimizer afresh (warm start from weights alone).
  absl::Status ImportState(const policy::PolicyState& state, policy::PolicySlot policy) override;

 private:
  struct Policy {
    policy::PolicySpec spec;
    FlatParameters parameters;
    std::unique_ptr<PpoBackend> backend;  // nullptr for a class that is not trained
    policy::WeightVersion version;
    policy::RunningMoments observation_moments;
    policy::RunningMoments value_moments;
    int64_t trained_rows = 0;
    int64_t skipped_updates = 0;
    int64_t consecutive_skips = 0;
    int64_t partly_skipped_updates = 0;  // of this process, to log them ever more rarely
  };

  PpoTrainer(const PpoOptions& options, std::vector<Policy> policies, tensor::TensorAllocator& allocator);

  absl::StatusOr<Policy*> Find(policy::PolicySlot slot);
  policy::PolicyState StateOf(const Policy& policy) const;
  void Restore(const policy::PolicyState& state, Policy* policy) const;

  absl::StatusOr<learner::PolicyUpdateReport> UpdatePolicy(const learner::PolicyTrainBatch& batch,
                                                           const learner::UpdateContext& context, Policy* policy);
  struct ValueReport {
    double explained_variance = 0;
  };
  absl::StatusOr<ValueReport> PrepareTargets(const learner::PolicyTrainBatch& batch, Policy* policy);
  struct EpochsReport {
    StepTotals totals;
    double last_kl = 0;
    int64_t epochs = 0;
  };
  absl::StatusOr<EpochsReport> RunEpochs(const learner::PolicyTrainBatch& batch, const learner::UpdateContext& context,
                                         const StepSettings& settings, Policy* policy);
  void UpdateObservationMoments(const learner::PolicyTrainBatch& batch, Policy* policy) const;
  void BookSkips(const StepTotals& totals, Policy* policy) const;
  StepSettings SettingsAt(int64_t env_steps) const;

  const PpoOptions options_;
  std::vector<Policy> policies_;
  PreparedBatch prepared_;
  std::vector<int32_t> order_;
};

}  // namespace troupe::training
