#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/inference/kernels.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/tensor/buffer.h"

namespace troupe::inference {

/// Which kernels compute. Values are not stored anywhere.
enum class Backend : uint8_t {
  kAuto = 0,    ///< the fastest this processor has
  kEigen = 1,   ///< Eigen and plain C++
  kAvx2 = 2,    ///< AVX2 and FMA
  kAvx512 = 3,  ///< AVX-512 F, VL, BW, DQ
};
/// UNIMPLEMENTED when this build or processor has no such kernels.
absl::StatusOr<const KernelTable*> FindKernels(Backend backend);

/// Acts for one policy with networks: forward of its actor, then a sample (or the mode) of every leaf of its action
/// space and its log-probability. Not the critic: values are the learner's. Made and used by one thread (the stepping
/// thread); never blocks.
///
/// Invariants: 1. without weights it refuses to act; 2. a row's result depends on no other row of its batch; 3. no heap
/// allocation in Act once it has seen a batch as large (SetWeights allocates only the first time).
class Actor final : public PolicyActor {
 public:
  /// `seed` is the run's; samples are drawn from its stream kAction. INVALID_ARGUMENT for an invalid spec
  /// or a class without weights, UNIMPLEMENTED for a kind of network that it does not compute and a backend that is not
  /// there.
  static absl::StatusOr<std::unique_ptr<Actor>> Create(const policy::PolicySpec& spec, uint64_t seed,
                                                       Backend backend = Backend::kAuto);

  /// Takes new weights and packs them. INVALID_ARGUMENT when they do not fit; the old ones stay then.
  absl::Status SetWeights(policy::WeightSnapshotPtr weights) override;
  bool TakeOver(const policy::PolicySpec& spec) override;

  /// Writes actions [rows, action_words] as sampled (before bounding; discrete words include `start`) and their
  /// log-probabilities [rows]. FAILED_PRECONDITION without weights; INVALID_ARGUMENT names the first row whose mask
  /// forbids every category of a leaf; INTERNAL when the network's output is not finite.
  absl::Status Act(const ActInput& input, space::ActionWord* actions, float* logp) override;

  /// The actor's last layer, [rows, actor_output_size]: for tests and evaluation of distributions.
  absl::Status Forward(const ActInput& input, absl::Span<float> output);

  const policy::PolicySpec& spec() const { return spec_; }
  /// nullptr before SetWeights.
  const policy::WeightSnapshotPtr& weights() const { return weights_; }
  std::string_view backend_name() const { return kernels_->name; }

 private:
  struct Leaf {
    space::ActionLeaf space;
    int64_t output = 0;   // first column of the last layer
    int64_t log_std = 0;  // first of actor.log_std
    int64_t random = 0;   // first random word of the row
  };

  Actor(const policy::PolicySpec& spec, uint64_t seed, const KernelTable* kernels);

  void PackLayer(size_t index);
  absl::Status RunMlp(const ActInput& input);
  /// The observations as the first layer reads them: in place when they are plain floats.
  const float* PrepareInput(const ActInput& input);
  void SampleGaussian(const Leaf& leaf, const ActInput& input, space::ActionWord* actions, float* logp) const;
  void EnsureRows(int64_t rows);

  policy::PolicySpec spec_;
  const KernelTable* const kernels_;
  const uint64_t seed_;
  int64_t obs_size_ = 0;
  int64_t action_words_ = 0;
  int64_t mask_size_ = 0;
  int64_t output_size_ = 0;
  bool uint8_obs_ = false;
  std::vector<Leaf> leaves_;
  int64_t random_blocks_ = 0;  // of four words, a row

  policy::WeightSnapshotPtr weights_;
  std::vector<DenseLayer> layers_;
  std::vector<int64_t> weight_offset_, bias_offset_;  // in the flat parameters
  int64_t log_std_offset_ = 0;
  tensor::Buffer packed_;  // weights and biases of all layers: with many policies, one stream from far memory each
  std::vector<int64_t> weight_place_, bias_place_;  // in packed_, in floats
  std::vector<float> std_;                          // exp(log_std)

  int64_t capacity_rows_ = 0;
  tensor::Buffer input_, scratch_[2], output_, random_, weights_of_row_;
};

}  // namespace troupe::inference
