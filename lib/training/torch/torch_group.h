#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/training/core/algorithm.h"
#include "lib/training/core/group_trainer.h"
#include "lib/training/core/group_units.h"
#include "lib/training/core/optimizer_options.h"
#include "lib/training/torch/captured_steps.h"
#include "lib/training/torch/device_memory.h"
#include "lib/training/torch/torch_epoch.h"
#include "lib/training/torch/torch_member.h"
#include "lib/training/torch/torch_parameters.h"
#include <torch/torch.h>

namespace troupe::training {

/// A step of a TorchGroup, as its algorithm sees it. Used during Train.
class TorchStep {
 public:
  /// Those with rows in the batch, or in the minibatch, ascending.
  absl::Span<const TorchMember* const> members() const { return members_; }
  /// The tensors that TorchGroup::Inputs made, where the networks compute.
  const torch::Tensor& input(size_t i) const { return inputs_[i]; }
  /// TorchGroup::Variant's answer.
  int64_t variant() const { return variant_; }
  /// A parameter of TorchGroup::own.
  torch::Tensor Own(const std::string& name) const { return own_->Find(name); }

  /// Differentiates `loss`, a scalar, by the named sections of parameters alone: roles and learner numbers of every
  /// member that has them, sections of TorchGroup::own. Clips their gradient by its norm over all of them, and takes a
  /// step of each one's optimizer (TorchGroup::Optimizer). Where loss or norm is not finite nothing changes and the
  /// step counts as skipped. `learning_rate` is a scalar float64. Returns the norm before clipping, a scalar. At least
  /// one section is there.
  torch::Tensor Minimize(const torch::Tensor& loss, const std::vector<std::string>& sections,
                         const torch::Tensor& learning_rate);
  /// In a minibatch of a group that joins steps: from the members' numbers of each row, [rows] each, those of the
  /// agents at each joint step, [joint steps, most agents], 0 where there are fewer. The first is an agent's.
  torch::Tensor AtJointSteps(std::vector<torch::Tensor> of_rows) const;
  /// A number of the step's report, a scalar, by its tag (docs/metrics.md); at most kMostReports. The update's report
  /// has the mean over its steps in which it was finite.
  void Report(std::string_view tag, const torch::Tensor& value);

  static constexpr size_t kMostReports = 30;

 private:
  friend class TorchGroup;

  std::vector<const TorchMember*> members_;
  std::vector<TorchParameters*> parameters_;  ///< of members_, then own_
  TorchParameters* own_ = nullptr;
  void AddReports();

  torch::Tensor joint_;  ///< GroupMinibatch::joint
  std::vector<torch::Tensor> inputs_;
  int64_t variant_ = 0;
  OptimizerOptions optimizer_;
  /// [2 + 2 kMostReports] float64: steps that were taken, that were skipped, reports' sums, and how many were finite
  torch::Tensor numbers_;
  std::vector<torch::Tensor> reports_;
  std::vector<std::string>* tags_ = nullptr;
};

/// How a group goes through a batch in minibatches.
struct MinibatchPlan {
  int64_t num_epochs = 1;      ///< each shuffles anew
  int64_t minibatch_size = 1;  ///< rows of the policy that has the most (GroupUnits)
  bool joins_steps = false;    ///< agents at a joint step stay together: Algorithm::reads_joint_steps
};

/// A member with rows that count in the batch, as TorchGroup::RowTargets sees it.
struct TorchGroupRows {
  const TorchMember& member;
  const learner::PolicyTrainBatch& batch;
  const RowUses& uses;
};

/// A target that follows its network: after every `interval`-th update it moves by `share` of the way; 1: it is copied.
struct TargetRule {
  std::string role;
  double share = 1;
  int64_t interval = 1;
};

/// A learn group whose loss is over tensors: what an algorithm of LossOver::kTensors derives from. It writes Train, one
/// step from one batch, or from each minibatch of several epochs (Minibatches); this brings rows and parameters to
/// where networks compute, runs users' modules, cores and images of bytes, steps each section's optimizer, moves
/// targets, captures steps on a CUDA device, and hands everything back. On the CPU it works on the host's memory.
/// Members and own parameters move and are saved with their policies and the group. Confined to the update thread.
///
/// A step on a CUDA device is captured and done again: Train must not look at a tensor's numbers, and numbers that
/// change from step to step must be inputs (a C++ number would be that of the first step), or follow from the variant.
class TorchGroup : public GroupTrainer {
 public:
  /// `group` with what it needs before the first update. Errors of users' modules are LoadScript's.
  static absl::StatusOr<std::unique_ptr<GroupTrainer>> Make(std::unique_ptr<TorchGroup> group);

  int64_t MinibatchRows(int64_t rows) const override { return rows; }
  absl::StatusOr<std::vector<learner::PolicyUpdateReport>> Update(const GroupUpdate& update) final;
  std::vector<policy::StateBlock> Export() const override;
  absl::Status Import(const std::vector<policy::StateBlock>& blocks) override;

  /// Steps that a captured one was done again for.
  int64_t replays_for_testing() const { return steps_.replays_for_testing(); }

 protected:
  /// `path`: kHost on the CPU; kDevice to test there what a CUDA device does.
  TorchGroup(absl::Span<const GroupMember> members, const TrainingContext& context);
  TorchGroup(absl::Span<const GroupMember> members, const TrainingContext& context, TorchPath path);

  /// One step from one batch: losses, and TorchStep::Minimize of each.
  virtual void Train(TorchStep* step) = 0;
  /// Numbers that a step reads beside its rows, made on the host: rates and coefficients by schedule, noise, tables of
  /// joint steps. As many and of the same types each time. Called before Optimizer, Variant and Targets. Options by
  /// schedule are parsed here, at ScheduleTime{context.env_steps, context.iteration}.
  virtual absl::StatusOr<std::vector<torch::Tensor>> Inputs(const GroupUpdate& /*update*/) {
    return std::vector<torch::Tensor>();
  }
  /// How the step's gradients change parameters; clip_grad_norm_by has no effect.
  virtual OptimizerOptions Optimizer() const { return {}; }
  /// The kind of update number `update` (from 0), where Train does different work by turns.
  virtual int64_t Variant(int64_t /*update*/) const { return 0; }
  virtual std::vector<TargetRule> Targets() const { return {}; }
  /// nullopt: one step from all of the batch. Called after Inputs. Shuffles follow from (seed, iteration, epoch, slot
  /// of the first member) alone. Networks that read actions or a critic's input are not run over minibatches.
  virtual std::optional<MinibatchPlan> Minibatches() const { return std::nullopt; }
  /// With minibatches: what rows learn from (TorchRows::targets), [rows, any] on the host, of each in `all`. Made once
  /// a batch before its first step, without gradients; networks run At::kPlaces.
  virtual absl::StatusOr<std::vector<torch::Tensor>> RowTargets(const GroupUpdate& /*update*/,
                                                                absl::Span<const TorchGroupRows> /*all*/) {
    return std::vector<torch::Tensor>();
  }
  /// Dead agents' rows count in losses, too (RowUses).
  virtual bool counts_dead_rows() const { return false; }
  /// A copy on the host, which is awaited.
  torch::Tensor ToHost(const torch::Tensor& tensor) const;

  /// Parameters of the group itself (a mixer), to be made by the constructor; their first numbers as they are then.
  void SetOwn(FlatParameters own);

 private:
  /// Steps with equal keys are the same work, if what they read has the same shapes.
  struct StepKey {
    std::vector<policy::PolicySlot> members;
    std::vector<int64_t> lengths;  ///< of packed sequences, by member
    int64_t variant = 0;
    OptimizerOptions optimizer;

    bool operator==(const StepKey& other) const = default;
  };
  struct Member {
    policy::PolicySlot slot;
    TorchMember networks;
    TorchParameters parameters;
    MemberRows batch = {};  ///< during an update
  };

  Member& MemberOf(policy::PolicySlot slot);
  absl::Status LoadBatch(const GroupUpdate& update);
  void LoadParameters(const GroupUpdate& update);
  absl::Status RunSteps(const GroupUpdate& update);
  /// `joint`: GroupMinibatch::joint, or undefined.
  void RunStep(const std::vector<Member*>& members, const torch::Tensor& joint);
  absl::Status RunEpochs(const GroupUpdate& update, const MinibatchPlan& plan);
  void MoveTargets(int64_t updates);
  std::vector<learner::PolicyUpdateReport> Finish(const GroupUpdate& update);

  const Device place_;
  const DeviceMemory memory_;
  std::vector<std::unique_ptr<Member>> members_;
  std::unique_ptr<FlatParameters> own_;
  std::vector<int64_t> own_steps_;
  std::unique_ptr<TorchParameters> own_on_device_;
  bool has_scripts_ = false;
  torch::Tensor numbers_;
  std::map<int64_t, std::vector<std::string>> tags_;  ///< of reports, by variant
  std::vector<Member*> at_work_;                      ///< with rows in the batch
  GroupUnits units_;
  // For the steps of an update:
  int64_t variant_ = 0;
  int64_t epochs_ = 1;
  OptimizerOptions optimizer_;
  std::vector<torch::Tensor> inputs_;
  CapturedSteps<StepKey> steps_;
  int64_t partly_skipped_ = 0;
};

}  // namespace troupe::training
