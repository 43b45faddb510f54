#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "lib/tensor/buffer.h"
#include "lib/training/device_options.h"

namespace troupe::training {

/// The device that `name` (as ParseDevice takes it) stands for: kCpu or kCuda. libtorch_cuda.so is opened here, the
/// first time that a CUDA device is asked for and the driver has one: "auto" is the CPU when there is none.
/// INVALID_ARGUMENT for another name; UNAVAILABLE, with the driver's, the loader's or LibTorch's words, for a CUDA
/// device that cannot be used. May take seconds (loading CUDA). Not thread-safe.
///
/// Call it before LibTorch differentiates anything in this process, on the CPU too: with its first backward pass
/// LibTorch decides whether there is CUDA, for as long as the process lives.
absl::StatusOr<Device> ResolveDevice(std::string_view name);

/// Memory that copies to the device fastest: pinned for CUDA, else pageable. For the learner's training buffers. Where
/// no memory can be pinned it gives pageable memory, with a warning. Thread-safe; lives for ever.
tensor::TensorAllocator& BatchAllocator(const Device& device);

}  // namespace troupe::training
