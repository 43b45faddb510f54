#pragma once

#include "lib/training/device_options.h"
#include <c10/core/Device.h>

namespace troupe::training {

/// As LibTorch names it.
inline c10::Device ToTorch(const Device& device) {
  if (!device.is_cuda()) return c10::Device(c10::DeviceType::CPU);
  return c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device.index));
}

}  // namespace troupe::training
