#pragma once

#include <cstdlib>
#include <string>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/training/torch/device.h"
#include <gtest/gtest.h>

namespace troupe::training {

/// The device that tests of the device's path use: $TROUPE_TEST_DEVICE ("cuda", "cuda:1"), by default the CPU in its
/// place. One that is asked for and cannot be used ends the test program: a test that ran elsewhere would say nothing.
inline Device TestDevice() {
  static const Device device = [] {
    const char* const name = std::getenv("TROUPE_TEST_DEVICE");
    const absl::StatusOr<Device> resolved = ResolveDevice(name == nullptr || *name == '\0' ? "cpu" : name);
    if (!resolved.ok()) TROUPE_ERROR("TROUPE_TEST_DEVICE: {}", std::string(resolved.status().message()));
    TROUPE_CHECK(resolved.ok());
    return *resolved;
  }();
  return device;
}

/// LibTorch decides with its first backward pass, on any device, whether there is CUDA: the device is opened before any
/// test.
class OpenTestDevice : public testing::Environment {
 public:
  void SetUp() override { TestDevice(); }
};
inline testing::Environment* const kOpenTestDevice = testing::AddGlobalTestEnvironment(new OpenTestDevice);

}  // namespace troupe::training
