// LibTorch on a device against LibTorch on the host's memory: one minibatch step from the same weights must give the
// same losses, gradients and values to 1e-4, relative to the largest number of a tensor, for every model. The device is
// $TROUPE_TEST_DEVICE ("cuda"); by default the CPU stands in for it, on the device's path.

#include <memory>
#include <string>
#include <vector>

#include "lib/training/core/torch_backend.h"
#include "lib/training/testing/test_device.h"
#include "tests/parity/one_step.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

constexpr double kTolerance = 1e-4;

/// Those of the fused kernels and larger ones.
std::vector<ParityCase> Cases() {
  std::vector<ParityCase> cases = FusedParityCases();
  // More rows than one pass of values has, and sums over many rows.
  cases.push_back({"ManyRows", ParitySpec(18, {64, 64}, {64, 64}), {}, std::vector<int64_t>(2800, 25)});
  return cases;
}

class DeviceParityTest : public testing::TestWithParam<size_t> {};

TEST_P(DeviceParityTest, OneStepEqualsTheHosts) {
  const ParityCase test = Cases()[GetParam()];
  const auto team = std::make_shared<ThreadTeam>(1);
  const OneStep expected = TakeOneStep(
      test, [&](const policy::PolicySpec& spec) { return MakeTorchBackend(spec, Device{}, TorchPath::kHost, team); });
  const OneStep got = TakeOneStep(
      test,
      [&](const policy::PolicySpec& spec) { return MakeTorchBackend(spec, TestDevice(), TorchPath::kDevice, team); },
      BatchAllocator(TestDevice()));
  ExpectSameStep(test.spec, got, expected, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, DeviceParityTest, testing::Range<size_t>(0, Cases().size()),
                         [](const testing::TestParamInfo<size_t>& info) { return Cases()[info.param].name; });

}  // namespace
}  // namespace troupe::training
