#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/learner/trainer.h"
#include "lib/policy/policy_spec.h"
#include "lib/tensor/buffer.h"
#include "lib/training/policy_store.h"
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
  using BackendFactory = PolicyStore::BackendFactory;

  /// Policies with fresh weights of version (0, 0); `options` by slot. INVALID_ARGUMENT for an invalid spec or option.
  /// `make_backend` is kept: policies that are not resident get their back end when they are. `allocator` is for what
  /// back ends copy to their device; it must outlive the trainer, and so must `store_deps`.
  static absl::StatusOr<std::unique_ptr<PpoTrainer>> Make(
      std::vector<policy::PolicySpec> specs, std::vector<PpoOptions> options, uint64_t seed,
      BackendFactory make_backend, tensor::TensorAllocator& allocator = tensor::TensorAllocator::Pageable(),
      const PolicyStoreOptions& store_options = {}, PolicyStore::Deps store_deps = {});

  /// One PPO update of every policy in `batch` that trains and has an active row; every policy gets
  /// context.next_version. More policies than fit are trained in turns; until the last one is through, a copy of each
  /// one's former state is held. One whose state is lost (DATA_LOSS) is left out. INVALID_ARGUMENT for a batch that
  /// does not fit its policy, or trains one of a class that is not.
  absl::StatusOr<std::vector<learner::PolicyUpdateReport>> Update(const learner::TrainBatch& batch,
                                                                  const learner::UpdateContext& context) override;
  /// NOT_FOUND for an unknown slot, here and below.
  absl::StatusOr<policy::WeightSnapshotPtr> Snapshot(policy::PolicySlot policy) override;
  absl::StatusOr<policy::PolicyState> ExportState(policy::PolicySlot policy) override;
  /// A state without Adam's moments starts the optimizer afresh (warm start from weights alone).
  absl::Status ImportState(const policy::PolicyState& state, policy::PolicySlot policy) override;
  /// Of the policy map; empty where all policies are resident.
  std::vector<std::pair<std::string, double>> Metrics() override { return policies_->Metrics(); }

  const PolicyStore& policies() const { return *policies_; }

 private:
  /// The policy at work: where it lives, and what it is.
  struct Policy {
    policy::PolicySlot slot;
    const policy::PolicySpec& spec;
    const PpoOptions& options;
    ResidentPolicy& resident;
  };

  PpoTrainer(std::unique_ptr<PolicyStore> policies, tensor::TensorAllocator& allocator);

  /// One policy's part of an update: its entries of the batch into their reports.
  absl::Status Train(policy::PolicySlot slot, const learner::TrainBatch& batch, const learner::UpdateContext& context,
                     absl::Span<const size_t> entries, std::vector<learner::PolicyUpdateReport>* reports,
                     std::vector<std::pair<policy::PolicySlot, policy::PolicyState>>* before);
  absl::StatusOr<learner::PolicyUpdateReport> UpdatePolicy(const learner::PolicyTrainBatch& batch,
                                                           const learner::UpdateContext& context, const Policy& policy);
  struct ValueReport {
    double explained_variance = 0;
  };
  absl::StatusOr<ValueReport> PrepareTargets(const learner::PolicyTrainBatch& batch, const Policy& policy);
  struct EpochsReport {
    StepTotals totals;
    double last_kl = 0;
    int64_t epochs = 0;
  };
  absl::StatusOr<EpochsReport> RunEpochs(const learner::PolicyTrainBatch& batch, const learner::UpdateContext& context,
                                         const StepSettings& settings, const Policy& policy);
  void UpdateObservationMoments(const learner::PolicyTrainBatch& batch, const Policy& policy) const;
  void BookSkips(const StepTotals& totals, const Policy& policy);

  const std::unique_ptr<PolicyStore> policies_;
  std::vector<int64_t> partly_skipped_updates_;  // by slot, of this process, to log them ever more rarely
  PreparedBatch prepared_;
  std::vector<int32_t> order_;
};

}  // namespace troupe::training
