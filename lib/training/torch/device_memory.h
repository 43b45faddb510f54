#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/learner/train_batch.h"
#include "lib/training/core/prepared_batch.h"
#include "lib/training/torch/cuda_graph.h"
#include "lib/training/torch/torch_backend.h"
#include "lib/training/torch/torch_status.h"
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

namespace troupe::training {

/// How numbers come to where networks compute, and back. Its functions raise what LibTorch raises.
class DeviceMemory {
 public:
  DeviceMemory(const torch::Device& device, TorchPath path) : device_(device), path_(path) {}

  const torch::Device& device() const { return device_; }
  /// True if it is the host's own memory, borrowed.
  bool borrows() const { return path_ == TorchPath::kHost; }

  /// Host memory as a tensor: borrowed, else a copy on the device. To a CUDA device all copies are out of pinned memory
  /// and none is waited for, so `data` stays as it is until the next Await.
  torch::Tensor Load(const void* data, torch::IntArrayRef sizes, torch::ScalarType dtype) const {
    return Load(torch::from_blob(const_cast<void*>(data), sizes, dtype));
  }
  torch::Tensor Load(const torch::Tensor& host) const {
    if (borrows()) return host;
    if (!device_.is_cuda()) return host.clone();
    return (host.is_pinned() ? host : host.pin_memory()).to(device_, /*non_blocking=*/true);
  }
  torch::Tensor Load(absl::Span<float> values) const {
    return Load(values.data(), {static_cast<int64_t>(values.size())}, torch::kFloat32);
  }
  torch::Tensor Load(const MatrixView& matrix) const {
    if (matrix.columns == 0) return torch::empty({matrix.rows, 0}, torch::TensorOptions().device(device_));
    return Load(matrix.data, {matrix.rows, matrix.stride}, torch::kFloat32).narrow(1, 0, matrix.columns);
  }
  /// Undefined without rows.
  torch::Tensor Load(const learner::ByteMatrix& matrix) const {
    return matrix.rows == 0 ? torch::Tensor() : Load(matrix.data, {matrix.rows, matrix.columns}, torch::kUInt8);
  }
  /// As int64.
  torch::Tensor LoadIndex(absl::Span<const int32_t> numbers) const {
    return Load(numbers.data(), {static_cast<int64_t>(numbers.size())}, torch::kInt32).to(torch::kInt64);
  }
  torch::Tensor LoadIndex(const std::vector<int64_t>& numbers) const {
    const torch::Tensor host = torch::tensor(numbers, torch::kInt64);
    return borrows() ? host : host.to(device_);
  }
  /// A copy on the host; from a CUDA device it is there after Await.
  torch::Tensor ToHost(const torch::Tensor& tensor) const {
    return tensor.contiguous().to(torch::kCPU, /*non_blocking=*/device_.is_cuda());
  }
  /// Returns when all that was handed over is done.
  void Await() const {
    if (device_.is_cuda()) c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).synchronize();
  }

  /// CatchTorch with the device and its stream as the current ones: pinned memory belongs to them. After an error
  /// nothing is at work any more.
  template <typename Body>
  absl::Status Guarded(std::string_view doing, Body&& body) const {
    absl::Status status = CatchTorch(doing, [&]() -> absl::Status {
      c10::OptionalStreamGuard guard;
      if (device_.is_cuda()) guard.reset_stream(UpdateStream(device_));
      return body();
    });
    if (!status.ok() && device_.is_cuda()) {
      (void)CatchTorch("waiting", [&] { return AwaitUpdates(device_), absl::OkStatus(); });
    }
    return status;
  }

 private:
  const torch::Device device_;
  const TorchPath path_;
};

}  // namespace troupe::training
