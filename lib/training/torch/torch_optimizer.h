#pragma once

#include <cstdint>

#include "lib/training/core/network_backend.h"
#include <torch/torch.h>

namespace troupe::training {

/// What an optimizer works on in a device's memory: flat, as FlatParameters. Plain value.
struct DeviceNumbers {
  torch::Tensor values;
  torch::Tensor gradients;
  torch::Tensor exp_avg;
  torch::Tensor exp_avg_sq;
  torch::Tensor steps;      ///< scalar float64, steps taken
  int64_t acting_size = 0;  ///< of the actor, which comes first
};

/// A block on a device. Plain value.
struct DeviceBlock {
  torch::Tensor values, gradients, exp_avg, exp_avg_sq;  ///< [numbers]
  torch::Tensor steps;                                   ///< scalar float64, steps taken
};

/// StepBlock (optimizer.h), likewise: `learning_rate` a scalar float64, `norm` a scalar that the gradient is clipped
/// by.
void StepBlockOnDevice(const OptimizerOptions& options, const torch::Tensor& learning_rate, const torch::Tensor& norm,
                       const torch::Tensor& ok, const DeviceBlock& block);

/// StepNetworks (optimizer.h) without ever asking the device for a number: where `ok`, a scalar bool of the device, is
/// false everything stays as it is, and no step is counted. Norms are scalars before clipping; frozen gradients are
/// zero. Raises what LibTorch raises.
void StepOnDevice(const StepSettings& settings, const torch::Tensor& actor_norm, const torch::Tensor& critic_norm,
                  const torch::Tensor& ok, const DeviceNumbers& numbers);

/// Frozen parameters have the gradient zero.
void ZeroFrozenOnDevice(const StepSettings& settings, const torch::Tensor& gradients);

}  // namespace troupe::training
