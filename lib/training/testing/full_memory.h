#pragma once

#include <memory>
#include <vector>

#include "lib/training/device_options.h"

namespace troupe::training {

/// While it lives, LibTorch has no memory on a device. On CUDA the memory is taken, all of it, so that the
/// first allocation fails, and `allocations` is not used; on the CPU the allocation after the next `allocations` fails
/// with what a full GPU throws, and so does each one after it.
class FullMemory {
 public:
  FullMemory(const Device& device, int allocations);
  ~FullMemory();
  FullMemory(const FullMemory&) = delete;
  FullMemory& operator=(const FullMemory&) = delete;

 private:
  struct Taken;
  std::unique_ptr<Taken> taken_;
};

}  // namespace troupe::training
