#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "lib/tensor/buffer.h"

namespace troupe::training {

enum class DeviceKind : uint8_t {
  kCpu = 1,
  kCuda = 2,  ///< the first visible CUDA device
};
std::string_view DeviceName(DeviceKind device);

/// The device of "auto", "cpu" or "cuda". libtorch_cuda.so is opened here, the first time that a CUDA device is asked
/// for and the driver has one: "auto" is the CPU when there is none. INVALID_ARGUMENT for another name; UNAVAILABLE,
/// with the loader's or driver's words, for "cuda" where it cannot be used. May take seconds (loading CUDA). Not
/// thread-safe.
absl::StatusOr<DeviceKind> ResolveDevice(std::string_view name);

/// Memory that copies to the device fastest: pinned for CUDA, else pageable. For the learner's training buffers.
/// Thread-safe; lives for ever.
tensor::TensorAllocator& BatchAllocator(DeviceKind device);

}  // namespace troupe::training
