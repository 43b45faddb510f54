#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::training {

/// What the driver says of a CUDA device. Plain value.
struct CudaDevice {
  std::string name;
  int capability_major = 0;
  int capability_minor = 0;
  uint64_t memory_bytes = 0;
  int driver_cuda_version = 0;  ///< newest CUDA that the driver runs: 13000 is 13.0

  /// "NVIDIA H100 80GB HBM3 (compute capability 9.0, 79.1 GiB, driver for CUDA 13.0)".
  std::string ToString() const;
};

/// Asks the driver itself, which takes milliseconds; LibTorch's CUDA part takes seconds to load. `library`: what is
/// loaded as the driver. NOT_FOUND where there is no driver; UNAVAILABLE, with the reason in words, where it does not
/// start, or has no device `index`. Thread-safe.
absl::StatusOr<CudaDevice> AskCudaDriver(int index, const char* library = "libcuda.so.1");

/// `error`, which LibTorch gave when it first used `device`, in words that say what to do: a device too old for this
/// LibTorch, a driver too old for its CUDA. UNAVAILABLE.
absl::Status ExplainFirstUse(const CudaDevice& device, const absl::Status& error);

}  // namespace troupe::training
