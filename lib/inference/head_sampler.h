#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "lib/inference/continuous_head.h"
#include "lib/inference/kernels.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/space/space.h"
#include "lib/tensor/buffer.h"

namespace troupe::inference {

/// What every actor with networks does with its last layer: a sample (or the mode, of a Beta the mean) of every leaf of
/// the action space, and its log-probability. Made and used by its actor; not thread-safe.
class HeadSampler {
 public:
  /// `seed` is the run's; samples are drawn from its stream kAction.
  HeadSampler(const policy::PolicySpec& spec, uint64_t seed, const KernelTable* kernels);

  /// The free log standard deviations of `weights`, which fit the spec, and how they explore.
  void SetWeights(const policy::WeightSnapshot& weights);
  /// Batches of so many rows allocate nothing from now on.
  void EnsureCapacity(int64_t rows);
  /// `output`: [rows, actor_output_size], rows `stride` apart, a multiple of the kernels' lanes; finite, and so is what
  /// is between them. Writes actions [rows, action_words] and log-probabilities [rows] as PolicyActor::Act, and
  /// ActInput::outputs.
  /// INVALID_ARGUMENT names the first row whose mask forbids every category of a leaf.
  absl::Status Sample(const policy::PolicySpec& spec, const ActInput& input, const float* output, int64_t stride,
                      space::ActionWord* actions, float* logp);

 private:
  struct Leaf {
    space::ActionLeaf space;
    int64_t output = 0;   // first column of the last layer
    int64_t log_std = 0;  // first of actor.log_std
    int64_t random = 0;   // first random word of the row
  };

  /// The first leaf of the rows, of which the mode was taken: some actions are others, drawn evenly. `logp` as Act.
  void ExploreEvenly(const CategoricalCall& mode, const uint32_t* random, float* logp) const;
  uint64_t SeedOf(const ActInput& input) const { return input.seed == nullptr ? seed_ : *input.seed; }
  void SampleContinuous(const Leaf& leaf, const ActInput& input, const float* output, int64_t stride,
                        space::ActionWord* actions, float* logp) const;

  const KernelTable* const kernels_;
  const uint64_t seed_;
  const int64_t action_words_;
  const int64_t mask_size_;
  const bool takes_largest_;  // NetworkSpec::action_values
  ContinuousHead continuous_;
  std::vector<Leaf> leaves_;
  int64_t random_blocks_ = 0;  // of four words, a row
  int64_t log_std_offset_ = 0;
  std::optional<double> epsilon_;  // WeightSnapshot::kEpsilon
  bool has_noise_ = false;         // WeightSnapshot::kNoise stands in the place of the policy's deviations
  tensor::Buffer random_, weights_of_row_, greedy_logp_;
};

/// The network's output is not: INTERNAL.
absl::Status OutputNotFinite(const policy::PolicySpec& spec, const policy::WeightSnapshot& weights);
/// What the network remembers is not: INTERNAL.
absl::Status StateNotFinite(const policy::PolicySpec& spec, const policy::WeightSnapshot& weights);

}  // namespace troupe::inference
