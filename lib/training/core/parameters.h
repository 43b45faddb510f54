#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_fwd.h"
#include "lib/tensor/buffer.h"

namespace troupe::training {

/// A named part of a policy's trained numbers, which one optimizer's step changes as a whole. Borrowed.
struct ParameterBlock {
  std::string_view name;  ///< "actor", "critic"
  absl::Span<float> values;
  absl::Span<float> gradients;
  absl::Span<float> exp_avg;
  absl::Span<float> exp_avg_sq;
};

/// Numbers [first, end) of the flat buffers, whole entries with the gaps behind them.
struct ParameterRange {
  int64_t first = 0;
  int64_t end = 0;

  bool operator==(const ParameterRange& other) const = default;
};

/// A policy's trained numbers on the host: flat parameters, their gradient and the optimizer's two rows of moments
/// (what they mean: StepBlock, optimizer.h), one 64-byte aligned buffer each, all with the same ParameterLayout. Owned
/// by the trainer's update thread; movable. The gaps of the layout are zero and stay zero.
class FlatParameters {
 public:
  explicit FlatParameters(policy::ParameterLayout layout);

  const policy::ParameterLayout& layout() const { return layout_; }
  int64_t size() const { return layout_.size(); }
  int64_t acting_size() const { return layout_.acting_size(); }

  absl::Span<float> values() { return Row(0); }
  absl::Span<float> gradients() { return Row(1); }  ///< of the last minibatch, before clipping
  absl::Span<float> exp_avg() { return Row(2); }
  absl::Span<float> exp_avg_sq() { return Row(3); }
  absl::Span<const float> values() const { return Row(0); }
  absl::Span<const float> exp_avg() const { return Row(2); }
  absl::Span<const float> exp_avg_sq() const { return Row(3); }

  /// One of each trained section of the layout, in its order: each network's gradient is clipped by itself.
  std::vector<ParameterBlock> blocks();
  /// Numbers [first, end) of all buffers.
  ParameterBlock Part(int64_t first, int64_t end);

  int64_t adam_steps = 0;  ///< optimizer steps taken

 private:
  absl::Span<float> Row(int row);
  absl::Span<const float> Row(int row) const;

  policy::ParameterLayout layout_;
  size_t row_bytes_ = 0;
  tensor::Buffer buffer_;
};

/// Fresh weights, by each network's initializer. Orthogonal (Saxe et al. 2014) or Xavier's uniform (Glorot & Bengio
/// 2010): every layer with NetworkSpec::hidden_gain or the activation's gain (tanh 5/3, relu sqrt 2, as
/// torch.nn.init.calculate_gain), each network's last layer with NetworkSpec::output_gain, the matrices of cores with 1
/// (all gates' rows of one together, as MAPPO's authors); biases 0. Torch: uniform within 1 / sqrt(inputs of an
/// output), of cores within 1 / sqrt(units), biases too. Scales of layer normalization 1, shifts 0; log_std, and what
/// is added to the biases of outputs that say it, as PolicySpec::initial_log_std says. A pure function of the spec and
/// `seed` (stream kInit, one counter space per policy id).
FlatParameters InitialParameters(const policy::PolicySpec& spec, uint64_t seed);

/// Writes what the files of users' modules have, of which InitialParameters leaves zeros. Errors as
/// policy::ModuleReader::WriteFirstValues; FAILED_PRECONDITION: there is a module, and the program has no LibTorch.
absl::Status AddModuleValues(const policy::PolicySpec& spec, FlatParameters* parameters);

}  // namespace troupe::training
