#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/inference/head_sampler.h"
#include "lib/inference/observation_input.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/script/script_network.h"

namespace troupe::training {

/// Acts for a policy whose actor is a user's module: forward with LibTorch, then a sample as inference::Actor draws it,
/// from the same random words. Allocates in every Act, as LibTorch does; else as PolicyActor. Made and used by one
/// thread.
class ScriptActor final : public inference::PolicyActor {
 public:
  /// Errors as LoadScript; INVALID_ARGUMENT for an invalid spec.
  static absl::StatusOr<std::unique_ptr<inference::PolicyActor>> Create(const policy::PolicySpec& spec, uint64_t seed);

  absl::Status SetWeights(policy::WeightSnapshotPtr weights) override;
  bool TakeOver(const policy::PolicySpec& spec) override;
  /// INTERNAL, too, where the module fails.
  absl::Status Act(const inference::ActInput& input, space::ActionWord* actions, float* logp) override;

 private:
  ScriptActor(const policy::PolicySpec& spec, uint64_t seed, const inference::KernelTable* kernels,
              std::unique_ptr<ScriptNetwork> script);

  /// Copies the module's outputs into outputs_, whose rows are stride_ apart, and its state to input.state_out.
  void Forward(const inference::ActInput& input);

  policy::PolicySpec spec_;
  const policy::ParameterLayout layout_;
  const std::unique_ptr<ScriptNetwork> script_;
  const int64_t stride_;
  inference::HeadSampler sampler_;
  inference::ObservationInput observations_;
  policy::WeightSnapshotPtr weights_;
  torch::Tensor values_;  // [acting_size], of which the module's tensors are views
  tensor::Buffer outputs_;
};

}  // namespace troupe::training
