#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/inference/policy_actor.h"
#include "lib/inference/scripted_policy.h"
#include "lib/policy/policy_spec.h"

namespace troupe::inference {

/// Acts for a policy without weights, random or scripted: its function for every row. A row's random numbers are of the
/// run's stream kAction and follow from its key alone; `deterministic` changes nothing. Recorded actions are the
/// environment's own: such policies have no action bounding.
class ScriptedActor final : public PolicyActor {
 public:
  /// INVALID_ARGUMENT for an invalid spec, a class with weights, or one that cannot play the spec; NOT_FOUND for an
  /// unknown function.
  static absl::StatusOr<std::unique_ptr<ScriptedActor>> Create(const policy::PolicySpec& spec, uint64_t seed);
  /// `policy` must outlive it.
  ScriptedActor(const policy::PolicySpec& spec, const ScriptedPolicy& policy, uint64_t seed);

  absl::Status SetWeights(policy::WeightSnapshotPtr weights) override;
  absl::Status Act(const ActInput& input, space::ActionWord* actions, float* logp) override;

 private:
  /// Whether the mask allows something in every leaf.
  bool AllowsSomething(absl::Span<const uint8_t> mask) const;

  const policy::PolicySpec spec_;
  const ScriptedPolicy& policy_;
  const base::PhiloxKey key_;
  const size_t obs_size_;
  const size_t action_words_;
  const size_t mask_size_;
  const bool uint8_obs_;
  std::vector<space::ActionLeaf> leaves_;
};

}  // namespace troupe::inference
