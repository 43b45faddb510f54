#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
#include "lib/training/policy_updater.h"
#include "lib/training/ppo_options.h"
#include "lib/training/thread_team.h"

namespace troupe::training {

/// INVALID_ARGUMENT, naming the option, what it is and what is expected, for a value that PPO cannot work with.
absl::Status ValidatePpoOptions(const PpoOptions& options);

/// IPPO and MAPPO as one PPO over flat parameters; which critic input a policy has stands in its PolicySpec. Made by
/// MakePpoTrainer; confined to the update thread. The arithmetic of networks is a PpoBackend's.
///
/// Policies of classes that are not trained are kept, without a back end and an optimizer: their weights are what
/// ImportState gave (checkpoint), or there are none.
///
/// Small policies train stacked: side by side, each wholly on one thread of the team, which so never waits inside an
/// update; large ones one after another, each by the whole team (ADR 0012). Which way follows from the batch, the
/// options and the size of the team alone.
///
/// Invariants: 1. Parameters and optimizer are finite at all times. 2. A failed Update leaves every policy as it
/// was. 3. An update is a function of (state, batch, context, team's size): nothing else is remembered, so a resumed
/// run equals an uninterrupted one. 4. Every policy with an active row is trained in every update.
class PpoTrainer final : public learner::Trainer {
 public:
  using BackendFactory = PolicyStore::BackendFactory;

  /// Policies with fresh weights of version (0, 0); `options` by slot. INVALID_ARGUMENT for an invalid spec or option.
  /// `make_backend` is kept: policies that are not resident get their back end when they are. `team` is the back ends';
  /// nullptr: policies train one after another.
  /// `allocator` is for what back ends copy to their device; it must outlive the trainer, and so must `store_deps`.
  static absl::StatusOr<std::unique_ptr<PpoTrainer>> Make(
      std::vector<policy::PolicySpec> specs, std::vector<PpoOptions> options, uint64_t seed,
      BackendFactory make_backend, std::shared_ptr<ThreadTeam> team = nullptr,
      tensor::TensorAllocator& allocator = tensor::TensorAllocator::Pageable(),
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
  /// See PolicyStore::Add and Remove.
  absl::Status AddPolicy(policy::PolicySlot slot, const policy::PolicySpec& spec, policy::PolicyState state,
                         policy::PolicySlot like) override;
  absl::Status RemovePolicy(policy::PolicySlot slot) override { return policies_->Remove(slot); }
  /// Of the policy map; empty where all policies are resident.
  std::vector<std::pair<std::string, double>> Metrics() override { return policies_->Metrics(); }

  const PolicyStore& policies() const { return *policies_; }

 private:
  /// One policy's part of an update.
  struct Part {
    policy::PolicySlot slot;
    std::vector<size_t> entries;  ///< of the batch
    int64_t rows = 0;
    ResidentPolicy* resident = nullptr;         ///< in its turn
    std::optional<policy::PolicyState> former;  ///< from when it began to change
    absl::Status status;
  };

  PpoTrainer(std::unique_ptr<PolicyStore> policies, tensor::TensorAllocator& allocator,
             std::shared_ptr<ThreadTeam> team);

  bool TrainsAlone(const Part& part, int64_t all_rows) const;
  /// `thread` as PpoBackend::Begin has it.
  void TrainPart(const learner::TrainBatch& batch, const learner::UpdateContext& context, int thread, Part* part,
                 std::vector<learner::PolicyUpdateReport>* reports);
  /// Parts that are resident together.
  absl::Status TrainTurn(const learner::TrainBatch& batch, const learner::UpdateContext& context, int64_t all_rows,
                         absl::Span<Part* const> turn, std::vector<learner::PolicyUpdateReport>* reports);

  const std::unique_ptr<PolicyStore> policies_;
  std::vector<int64_t> partly_skipped_updates_;  // by slot
  const std::shared_ptr<ThreadTeam> team_;
  std::vector<std::unique_ptr<PolicyUpdater>> updaters_;  // by thread
};

}  // namespace troupe::training
