#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "lib/policy/parameter_layout.h"
#include "lib/training/core/optimizer_options.h"
#include "lib/training/core/parameters.h"
#include "lib/training/torch/device_memory.h"
#include <torch/torch.h>

namespace troupe::training {

/// FlatParameters where LibTorch computes: tensors that are views of one flat tensor, their gradients views of one flat
/// gradient. Each trained section has an optimizer of its own. On a device the flat tensors stay where they are from
/// update to update, so that captured steps go on reading them. Used by one thread; its functions raise what LibTorch
/// raises.
class TorchParameters {
 public:
  /// `memory` outlives this.
  explicit TorchParameters(const DeviceMemory& memory) : memory_(memory) {}

  /// Takes the numbers of `parameters`, and the steps of its trained sections. True: tensors of before are other ones
  /// now. Both stay until Store.
  bool Load(FlatParameters* parameters, absl::Span<int64_t> steps);
  /// Hands them back; from a CUDA device they are there after Finish.
  void Store();
  /// After DeviceMemory::Await.
  void Finish();

  const policy::ParameterLayout& layout() const { return parameters_->layout(); }
  /// The parameter of that name; one of a trained section is a leaf with a gradient.
  torch::Tensor Find(const std::string& name) const;
  /// The parameters of a trained section; `block` numbers these.
  const std::vector<torch::Tensor>& Leaves(size_t block) const { return blocks_[block].leaves; }
  /// The trained section of that role; -1: there is none.
  int64_t FindBlock(std::string_view role) const;

  void ZeroGradients(size_t block);
  /// Sum of squares of the block's gradient, a scalar.
  torch::Tensor SquaredNorm(size_t block) const;
  /// The optimizer's step of a block, where `ok`, a scalar bool, is true; else nothing changes. The gradient is clipped
  /// by `norm`, a scalar, to options.max_grad_norm. `learning_rate` is a scalar float64.
  void Step(size_t block, const OptimizerOptions& options, const torch::Tensor& learning_rate,
            const torch::Tensor& norm, const torch::Tensor& ok);
  /// Moves the section "ROLE.target" by `share` of the way to the section ROLE; 1: it becomes a copy.
  void MoveTarget(std::string_view role, double share);

 private:
  struct Block {
    std::string role;
    int64_t first = 0;
    int64_t size = 0;
    std::vector<torch::Tensor> leaves;
  };

  void MakeBlocks();

  const DeviceMemory& memory_;
  FlatParameters* parameters_ = nullptr;
  absl::Span<int64_t> host_steps_;
  torch::Tensor values_, gradients_, exp_avg_, exp_avg_sq_;
  torch::Tensor steps_;  ///< [blocks] float64, on a device
  std::vector<torch::Tensor> entries_;
  std::vector<Block> blocks_;
  struct {
    torch::Tensor values, exp_avg, exp_avg_sq, steps;
  } stored_;  ///< on the host, from Store to Finish
};

}  // namespace troupe::training
