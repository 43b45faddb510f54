#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/inference/backend.h"
#include "lib/inference/head_sampler.h"
#include "lib/inference/kernels.h"
#include "lib/inference/observation_input.h"
#include "lib/inference/packed_convolutions.h"
#include "lib/inference/packed_leaves.h"
#include "lib/inference/packed_network.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/tensor/buffer.h"

namespace troupe::inference {

/// Acts for one policy with networks: forward of its actor, then a sample (or the mode, of a Beta the mean) of every
/// leaf of its action space and its log-probability. Not the critic: values are the learner's. Of a core it computes
/// one decision: what is remembered goes in and out with each call (ActInput::state_in, state_out). Made and used by
/// one thread (the stepping thread); never blocks.
///
/// Invariants: 1. without weights it refuses to act; 2. a row's result depends on no other row of its batch (with Eigen
/// its last bits do); 3. no heap allocation in Act once it has seen a batch as large (SetWeights allocates only the
/// first time).
class Actor final : public PolicyActor {
 public:
  /// `seed` is the run's; samples are drawn from its stream kAction. INVALID_ARGUMENT for an invalid spec
  /// or a class without weights, UNIMPLEMENTED for a backend that is not there.
  static absl::StatusOr<std::unique_ptr<Actor>> Create(const policy::PolicySpec& spec, uint64_t seed,
                                                       Backend backend = Backend::kAuto);

  /// Takes new weights and packs them. INVALID_ARGUMENT when they do not fit; the old ones stay then.
  absl::Status SetWeights(policy::WeightSnapshotPtr weights) override;
  bool TakeOver(const policy::PolicySpec& spec) override;

  /// Writes actions [rows, action_words] as sampled (before bounding; discrete words include `start`) and their
  /// log-probabilities [rows], and of a core the state [rows, actor_state_size]. FAILED_PRECONDITION without weights;
  /// INVALID_ARGUMENT names the first row whose mask forbids every category of a leaf, and is what a core without
  /// state_in or state_out gives; INTERNAL when the network's output or the new state is not finite, the state that it
  /// was made from perhaps. After an error the new state is not to be used. Without a core states are ignored.
  absl::Status Act(const ActInput& input, space::ActionWord* actions, float* logp) override;

  /// The actor's last layer, [rows, actor_output_size]: for tests and evaluation of distributions. Writes the state of
  /// a core, as Act does. Errors are Act's, but it does not look whether numbers are finite or masks allow anything.
  absl::Status Forward(const ActInput& input, absl::Span<float> output);

  const policy::PolicySpec& spec() const { return spec_; }
  /// nullptr before SetWeights.
  const policy::WeightSnapshotPtr& weights() const { return weights_; }
  std::string_view backend_name() const { return kernels_->name; }

 private:
  Actor(const policy::PolicySpec& spec, uint64_t seed, const KernelTable* kernels);

  /// Fully connected layers, normalized where the actor's are.
  void RunLayers(const MlpCall& call) const { (spec_.actor.layer_norm ? kernels_->normed_mlp : kernels_->mlp)(call); }
  /// Computes output_, and the state of a core.
  absl::Status RunNetwork(const ActInput& input);
  absl::Status CheckInput(const ActInput& input) const;
  /// The same with convolutions, encoders of leaves or a core, a chunk of rows at a time. `whole` is the head's call,
  /// but for its input, the network's; nullptr: images of bytes, input.obs.
  void RunChunks(const ActInput& input, const MlpCall& whole);
  void EnsureRows(int64_t rows);

  policy::PolicySpec spec_;
  const KernelTable* const kernels_;
  int64_t acting_size_ = 0;  ///< of the layout: what weights have
  int64_t obs_size_ = 0;
  int64_t output_size_ = 0;
  HeadSampler sampler_;
  ObservationInput observations_;
  bool uint8_obs_ = false;

  policy::WeightSnapshotPtr weights_;
  PackedConvolutions convolutions_;
  PackedNetwork network_;
  PackedLeaves observed_leaves_;
  int64_t output_stride_ = 0;  // of output_

  int64_t capacity_rows_ = 0;
  tensor::Buffer scratch_[2], output_;
  tensor::Buffer between_[2], core_scratch_;  // of cores alone: a chunk's outputs of encoder and core
};

}  // namespace troupe::inference
