#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/learner/trainer.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/policy/policy_spec.h"
#include "lib/tensor/buffer.h"
#include "lib/training/core/algorithm.h"
#include "lib/training/core/group_trainer.h"
#include "lib/training/core/policy_store.h"
#include "lib/training/core/spare_states.h"
#include "lib/training/core/thread_team.h"
#include "lib/training/core/training_memory.h"

namespace troupe::training {

/// The trainer of a run: it keeps policies in a PolicyStore, and gives each learn group to the GroupTrainer that its
/// algorithm made. Made by MakeTrainer; confined to the update thread. What an update is, the algorithms know; the
/// arithmetic of networks is a NetworkBackend's.
///
/// Policies of classes that are not trained, and those without an algorithm, are kept and are in no group: their
/// weights are what ImportState gave (checkpoint), or there are none.
///
/// Small groups train stacked: side by side, each wholly on one thread of the team, which so never waits inside an
/// update; large ones one after another, each by the whole team (ADR 0012). Which way follows from the batch, the
/// options and the size of the team alone.
///
/// Invariants: 1. Parameters and optimizer are finite at all times. 2. A failed Update leaves every policy and group as
/// it was. 3. An update is a function of (state, batch, context, team's size) and of what critics remember
/// of the episodes in progress: nothing else is remembered, so a resumed run equals one that began new episodes
/// there. 4. Every group with an active row is trained in every update. 5. All policies of a group are resident while
/// it trains.
class TrainerHost final : public learner::Trainer {
 public:
  using BackendFactory = PolicyStore::BackendFactory;
  /// The algorithm of that name, which lives for ever; INVALID_ARGUMENT when there is none.
  using AlgorithmFinder = std::function<absl::StatusOr<const Algorithm*>(std::string_view name)>;

  /// Policies with fresh weights of version (0, 0); `algorithms` by slot, without a name where the policy is not
  /// trained. INVALID_ARGUMENT for an invalid spec or option, and for a group that the store's capacity does not hold.
  /// `make_backend` is kept: policies that are not resident get their back end when they are, whose threads are
  /// context.team.
  /// `allocator` is for what back ends copy to their device; it must outlive the trainer, and so must `store_deps`.
  static absl::StatusOr<std::unique_ptr<TrainerHost>> Make(
      std::vector<policy::PolicySpec> specs, std::vector<policy::AlgorithmSpec> algorithms, TrainingContext context,
      AlgorithmFinder find, BackendFactory make_backend,
      tensor::TensorAllocator& allocator = tensor::TensorAllocator::Pageable(),
      const PolicyStoreOptions& store_options = {}, PolicyStore::Deps store_deps = {});

  /// One update of every group of which `batch` trains a policy; every policy gets context.next_version. More policies
  /// than fit are trained in turns; until the last one is through, a copy of each one's former state is held. A group
  /// of which a state is lost (DATA_LOSS) is left out. INVALID_ARGUMENT for a batch that does not fit its policy, or
  /// trains one that is not trained.
  absl::StatusOr<std::vector<learner::PolicyUpdateReport>> Update(const learner::TrainBatch& batch,
                                                                  const learner::UpdateContext& context) override;
  void SetTime(int64_t env_steps, int64_t updates) override;
  /// NOT_FOUND for an unknown slot, here and below.
  absl::StatusOr<policy::WeightSnapshotPtr> Snapshot(policy::PolicySlot policy) override;
  absl::StatusOr<policy::PolicyState> ExportState(policy::PolicySlot policy) override;
  /// A state without an optimizer's moments starts the optimizer afresh (warm start from weights alone).
  absl::Status ImportState(const policy::PolicyState& state, policy::PolicySlot policy) override;
  /// See PolicyStore::Add and Remove. FAILED_PRECONDITION, naming the group, where `like`, or the policy, learns
  /// together with others: such a group is as it was made.
  absl::Status AddPolicy(policy::PolicySlot slot, const policy::PolicySpec& spec, policy::PolicyState state,
                         policy::PolicySlot like) override;
  absl::Status SetAlgorithm(policy::PolicySlot policy, const policy::AlgorithmSpec& algorithm) override;
  absl::Status RemovePolicy(policy::PolicySlot slot) override;
  std::vector<policy::LearnGroup> Groups() const override;
  std::vector<learner::FeedSpec> Feeds() const override;
  absl::StatusOr<std::vector<policy::GroupState>> ExportGroups() override;
  absl::Status ImportGroup(const policy::GroupState& state) override;
  /// Of the policy map; empty where all policies are resident.
  std::vector<std::pair<std::string, double>> Metrics() override { return policies_->Metrics(); }

  const PolicyStore& policies() const { return *policies_; }

 private:
  /// Of the former states of an update, for the next one's. A thousand small policies, or none of a large one.
  static constexpr int64_t kMaxSpareBytes = int64_t{64} << 20;

  struct Group {
    policy::LearnGroup told;
    std::optional<learner::FeedSpec> feed;  ///< without groups
    std::unique_ptr<GroupTrainer> trainer;
    ScheduleTime now = {};  ///< after its last update
  };
  /// By the first member's slot.
  using GroupMap = std::map<int32_t, Group>;
  /// One group's part of an update.
  struct Part {
    Group* group = nullptr;
    std::vector<size_t> entries;  ///< of the batch
    int64_t rows = 0;
    // From its turn on:
    std::vector<ResidentPolicy*> residents = {};         ///< of the members
    std::vector<policy::PolicyState> spares = {};        ///< memory for `former`
    std::vector<policy::PolicyState> former = {};        ///< of the members, from when they began to change
    std::vector<policy::StateBlock> former_blocks = {};  ///< of the group
    absl::Status status = {};
  };

  TrainerHost(std::unique_ptr<PolicyStore> policies, std::vector<policy::AlgorithmSpec> algorithms,
              TrainingContext context, AlgorithmFinder find, tensor::TensorAllocator& allocator);

  bool is_trained(policy::PolicySlot slot) const;
  /// The groups of these policies, which train with `algorithm`, in no map yet.
  absl::StatusOr<std::vector<Group>> MakeGroups(const Algorithm& algorithm,
                                                absl::Span<const GroupMember> members) const;
  /// Of all policies, at the start.
  absl::Status MakeAllGroups(int64_t capacity);
  void Keep(Group group);
  /// nullptr when the policy is in none.
  Group* GroupOf(policy::PolicySlot slot);
  /// FAILED_PRECONDITION when `slot` is in a group of several.
  absl::Status CheckAlone(policy::PolicySlot slot, std::string_view doing);

  bool TrainsAlone(const Part& part, int64_t all_rows) const;
  /// `thread` as NetworkBackend::Begin has it.
  void TrainPart(const learner::TrainBatch& batch, const learner::UpdateContext& context, int thread, Part* part,
                 std::vector<learner::PolicyUpdateReport>* reports);
  /// Parts that are resident together.
  absl::Status TrainTurn(const learner::TrainBatch& batch, const learner::UpdateContext& context, int64_t all_rows,
                         absl::Span<Part* const> turn, std::vector<learner::PolicyUpdateReport>* reports);
  /// Undoes what TrainPart did.
  void Restore(Part* part);

  const std::unique_ptr<PolicyStore> policies_;
  std::vector<policy::AlgorithmSpec> algorithms_;  // by slot
  const TrainingContext context_;
  const AlgorithmFinder find_;
  GroupMap groups_;
  std::vector<int32_t> group_of_;                          // by slot: its group's first member, or -1
  std::vector<std::unique_ptr<TrainingMemory>> memories_;  // by thread
  SpareStates spares_{kMaxSpareBytes};                     // of former states
};

}  // namespace troupe::training
