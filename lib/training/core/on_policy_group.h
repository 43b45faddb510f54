#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/learner/trainer.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/policy/policy_fwd.h"
#include "lib/training/core/advantages.h"
#include "lib/training/core/algorithm.h"
#include "lib/training/core/critic_values.h"
#include "lib/training/core/group_trainer.h"
#include "lib/training/core/kl_control.h"
#include "lib/training/core/network_backend.h"
#include "lib/training/core/on_policy_options.h"
#include "lib/training/core/policy_store.h"
#include "lib/training/core/prepared_batch.h"
#include "lib/training/core/schedule.h"

namespace troupe::training {

/// One on-policy algorithm at a time, beside OnPolicyOptions: its loss and how often it passes over a batch. Plain
/// value.
struct OnPolicyPlan {
  OnPolicyOptions options;
  int64_t num_epochs = 1;
  int64_t minibatch_size = 0;  ///< rows of a policy; 0: all that it has in the batch
  RowLossCall loss;
  /// `loss` with the coefficient of `penalty`; absent: it has none.
  std::function<RowLossCall(double kl_coeff)> loss_with = {};

  /// A metric that is the mean over rows of one of the loss's statistics (RowLoss).
  struct Statistic {
    std::string tag;          ///< docs/metrics.md
    bool last_epoch = false;  ///< of the last epoch alone
  };
  std::vector<Statistic> statistics = {};            ///< in the loss's order
  std::optional<VtraceClips> vtrace = std::nullopt;  ///< in the place of GAE
  /// With `vtrace`: a slower copy of the actor (policy::NetworkSpec::has_target), which V-trace takes for the policy
  /// that learns, and which the ratio of the loss is to (Luo et al. 2020, arXiv 1912.00167, section 3.2). After every
  /// `interval`-th update it moves by `share` of the way to the actor; 1: it is copied.
  struct ActorTarget {
    int64_t interval = 1;
    double share = 1;
  };
  std::optional<ActorTarget> target = std::nullopt;
  double stop_above = 0;  ///< > 0: no further epoch once the mean of the first statistic passes it in one
  /// What follows the mean of the first statistic, a KL divergence. The policy's numbers kLearningRate, where the rate
  /// is on, and kKlCoeff, where the penalty adapts, are theirs.
  KlAdaptiveRate rate = {};
  KlPenalty penalty = {};
  std::vector<ParameterRange> frozen = {};  ///< FrozenRanges
  bool values_are_frozen = false;           ///< ValuesAreFrozen: the moments of returns stay
};

/// A learn group of one policy that is trained on-policy: values, advantages, epochs of shuffled minibatches, and the
/// moments of returns and observations. An algorithm is a plan of it.
class OnPolicyGroup final : public GroupTrainer {
 public:
  /// The plan of a policy at a time.
  using PlanAt = absl::StatusOr<OnPolicyPlan> (*)(const policy::PolicySpec& policy,
                                                  const policy::AlgorithmSpec& algorithm, const ScheduleTime& now);

  /// Algorithm::CheckPolicy of an on-policy algorithm.
  static absl::Status Check(const policy::PolicySpec& policy, const policy::AlgorithmSpec& algorithm);
  /// Asks for the plan once, or for each update where a schedule of the algorithm moves. Errors are `plan_at`'s at 0.
  static absl::StatusOr<std::unique_ptr<GroupTrainer>> Make(const GroupMember& member, PlanAt plan_at);

  int64_t MinibatchRows(int64_t rows) const override;
  /// INVALID_ARGUMENT for a batch that does not fit the policy, before anything has changed. The report of a batch
  /// without an active row says so.
  absl::StatusOr<std::vector<learner::PolicyUpdateReport>> Update(const GroupUpdate& update) override;
  void Commit() override { carry_.Commit(); }
  void Follow(GroupTrainer& before) override;

 private:
  /// The policy's update from one of the batches.
  struct Work {
    const learner::PolicyTrainBatch& batch;
    const learner::UpdateContext& context;
    const policy::PolicySpec& spec;
    ResidentPolicy& resident;
    PreparedBatch& prepared;
    TrainingMemory& memory;
    int thread;
  };
  struct ValueReport {
    double explained_variance = 0;
    int64_t broken_streams = 0;
    double mean_ratio = 0;     ///< of V-trace, over the rows that count
    double clipped_share = 0;  ///< of these rows, those with a ratio beyond rho-bar
  };
  /// V-trace's ratios, [rows]: 1 of dead agents, whose actions do nothing. With a target, prepared.old_logp is then
  /// that of the policy that the loss's ratio is to.
  absl::StatusOr<std::vector<float>> Ratios(const Work& work, ValueReport* report) const;
  /// Moves the actor's target, where it is its turn.
  void MoveTarget(const Work& work) const;
  struct EpochsReport {
    StepTotals totals;
    double last_statistics[kLossStatistics] = {};  ///< means over the rows of the last epoch
    int64_t last_rows = 0;  ///< of the last epoch's steps; 0 where it took none, of which nothing follows
    int64_t epochs = 0;
    double kl_coeff = 0;  ///< of the plan's penalty, as it was used
  };

  absl::StatusOr<learner::PolicyUpdateReport> UpdateFrom(const Work& work);
  StepSettings SettingsOf(ResidentPolicy* resident) const;
  /// The rate of the next epoch, after one with a mean divergence of `kl`.
  void AdaptRate(double kl, ResidentPolicy* resident, StepSettings* settings) const;
  absl::StatusOr<ValueReport> PrepareTargets(const Work& work);
  /// The units of minibatches that have a row that counts: the rows themselves, RowUnits, or of one that remembers
  /// sequences.
  static void TakeUnits(const PreparedBatch& prepared, std::vector<int32_t>* units);
  /// Where minibatches of `units` end, one after another. Of rows: with each `minibatch`-th. Of sequences: with the
  /// first that reaches as many rows that count, from where the minibatch began. Of RowUnits: with the first that
  /// reaches a multiple of it, from where the epoch began, so that there are as many minibatches as of rows, or one
  /// less where the remainder is less than a unit.
  static std::vector<int64_t> MinibatchEnds(const PreparedBatch& prepared, absl::Span<const int32_t> units,
                                            int64_t minibatch);
  /// `settings` follow the plan's rate from epoch to epoch.
  absl::StatusOr<EpochsReport> RunEpochs(const Work& work, StepSettings* settings) const;
  void AddMetrics(const EpochsReport& epochs, const ValueReport& values, const StepSettings& settings, const Work& work,
                  learner::PolicyUpdateReport* report) const;

  OnPolicyGroup(OnPolicyPlan plan, policy::AlgorithmSpec algorithm, PlanAt plan_at)
      : plan_(std::move(plan)), algorithm_(std::move(algorithm)), plan_at_(plan_at) {}

  OnPolicyPlan plan_;
  const policy::AlgorithmSpec algorithm_;
  const PlanAt plan_at_;  ///< nullptr: plan_ never moves
  CriticCarry carry_;
  int64_t partly_skipped_updates_ = 0;  // of this process, to log them ever more rarely
};

}  // namespace troupe::training
