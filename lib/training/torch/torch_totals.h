#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/training/core/network_backend.h"
#include "lib/training/torch/device_memory.h"
#include <torch/torch.h>

namespace troupe::training {

/// One network's loss of a minibatch.
struct NetworkLoss {
  torch::Tensor mean;  ///< what is differentiated
  torch::Tensor sums;  ///< [n] over rows, in the order of StepTotals, without a graph
  int64_t rows = 0;
};
/// The loss of two parts of a minibatch, whose means are of all its rows; without a graph.
NetworkLoss Together(const NetworkLoss& one, const NetworkLoss& other);

/// Losses of both networks.
struct Losses {
  NetworkLoss actor, critic;
};
/// One loss for both, without a graph, which has no sums over rows but `entropy`: of `rows` rows in the policy's part
/// of it and of `value_rows` in the critic's.
Losses OfBoth(const torch::Tensor& loss, const torch::Tensor& entropy, int64_t rows, int64_t value_rows);

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

/// Sums of a user's loss's metrics (ModuleLoss) where the networks are, without ever asking the device for a number.
class MetricSums {
 public:
  /// Adds those of a step, skipped where `ok`, a scalar bool, is false. Raises where names are others than at an
  /// update's first step.
  void Add(const std::vector<std::pair<std::string, torch::Tensor>>& metrics, const torch::Tensor& ok);
  /// The sums since the last call; none before the first step. Blocks on the device.
  std::vector<std::pair<std::string, double>> Take(const DeviceMemory& memory);
  void Release();

 private:
  std::vector<std::string> names_;
  torch::Tensor sums_;  ///< [names], float64
};

}  // namespace troupe::training
