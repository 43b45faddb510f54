#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/learner/feed.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/state_form.h"
#include "lib/training/core/training_context.h"

namespace troupe::training {

/// Policies of one algorithm that may become one learn group, or several.
struct GroupMember {
  policy::PolicySlot slot;
  const policy::PolicySpec* spec = nullptr;          ///< during the call
  const policy::AlgorithmSpec* algorithm = nullptr;  ///< during the call
};

/// A learning algorithm: what its folder of lib/training registers (registry.inc). Stateless, lives for ever,
/// thread-safe. What it says of an AlgorithmSpec is of its own name; only it knows what the options mean.
class Algorithm {
 public:
  virtual ~Algorithm() = default;

  /// AlgorithmSpec::name.
  virtual std::string_view name() const = 0;
  /// What a policy's state has for it beside networks and optimizer. INVALID_ARGUMENT, naming the option, what it is
  /// and what is expected, for options that it cannot work with.
  virtual absl::StatusOr<StateForm> FormOf(const policy::AlgorithmSpec& spec) const = 0;
  /// Gives the policy the networks that it trains: their roles, inputs and outputs, targets and numbers. `policy` has
  /// an actor and a critic, as the keys of the model say. INVALID_ARGUMENT, naming the key, where they cannot be its.
  /// As it stands: the two.
  virtual absl::Status SetNetworks(const policy::AlgorithmSpec& /*spec*/, policy::PolicySpec* /*policy*/) const {
    return absl::OkStatus();
  }
  /// INVALID_ARGUMENT, naming the option, for those that do not fit the policy, which trains; FormOf takes them.
  virtual absl::Status CheckPolicy(const policy::PolicySpec& /*policy*/, const policy::AlgorithmSpec& /*spec*/) const {
    return absl::OkStatus();
  }
  /// Which of `members` (ascending, all of them that train so) form a learn group; each is in one. As it stands: each
  /// is a group by itself, as for all algorithms whose policies learn without each other.
  virtual std::vector<std::vector<policy::PolicySlot>> Groups(absl::Span<const GroupMember> members) const {
    std::vector<std::vector<policy::PolicySlot>> groups;
    for (const GroupMember& member : members) groups.push_back({member.slot});
    return groups;
  }
  /// How its groups are sampled and trained, without the groups; those of one name share rows and clock. nullopt: each
  /// iteration of the run once and whole, as on-policy algorithms do.
  virtual std::optional<learner::FeedSpec> Feed(const policy::AlgorithmSpec& /*spec*/) const { return std::nullopt; }
  /// Each row counts by how likely the policy of now would take its action, so that rows of older policies do no harm:
  /// where all policies of a run train so, max_policy_lag is by itself as large as slow workers need it.
  virtual bool corrects_lag() const { return false; }
  /// A group trained so reads learner::TrainBatch::joint.
  virtual bool reads_joint_steps(const policy::AlgorithmSpec& /*spec*/) const { return false; }
  /// Makes the trainer of a group of these members, with fresh state of its own where it keeps some. INVALID_ARGUMENT
  /// as FormOf, and for members that do not fit each other. As it stands: what its TorchParts make; FAILED_PRECONDITION
  /// in a program without LibTorch.
  virtual absl::StatusOr<std::unique_ptr<GroupTrainer>> MakeGroup(absl::Span<const GroupMember> members,
                                                                  const TrainingContext& context) const;
};

}  // namespace troupe::training
