#pragma once

#include <cstdint>

#include "lib/training/core/network_backend.h"
#include <torch/torch.h>

namespace troupe::training {

/// One network's loss of a minibatch.
struct NetworkLoss {
  torch::Tensor mean;  ///< what is differentiated
  torch::Tensor sums;  ///< [n] over rows, in the order of StepTotals, without a graph
  int64_t rows = 0;
};
/// The loss of two parts of a minibatch, whose means are of all its rows; without a graph.
inline NetworkLoss Together(const NetworkLoss& one, const NetworkLoss& other) {
  return {(one.mean + other.mean).detach(), one.sums + other.sums, one.rows + other.rows};
}

/// StepTotals in a device's memory, to which steps add without ever asking the device for a number.
class DeviceTotals {
 public:
  void Begin(c10::Device device);
  /// A step, skipped where `ok`, a scalar bool of the device, is false. Norms are scalars, before clipping.
  void Add(const NetworkLoss& actor, const NetworkLoss& critic, const torch::Tensor& actor_norm,
           const torch::Tensor& critic_norm, const torch::Tensor& ok);
  void Release() { numbers_.reset(); }

  /// [n], float64, which `Read` understands on the host and `Clear` makes zero.
  const torch::Tensor& numbers() const { return numbers_; }
  static StepTotals Read(const torch::Tensor& host);
  void Clear() { numbers_.zero_(); }

 private:
  // [steps, skipped, rows, value rows, value loss, actor norm, critic norm, policy loss, entropy, the loss's
  // statistics]
  torch::Tensor numbers_;
};

}  // namespace troupe::training
