// LibTorch on a device against LibTorch on the host's memory: one minibatch step from the same weights must give the
// same losses, gradients and values to 1e-4, relative to the largest number of a tensor, for every model. The device is
// $TROUPE_TEST_DEVICE ("cuda"); by default the CPU stands in for it, on the device's path.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lib/training/testing/test_device.h"
#include "lib/training/torch/torch_backend.h"
#include "tests/parity/one_step.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

constexpr double kTolerance = 1e-4;
/// Of bfloat16, whose fraction has 7 bits, through a few layers; of 1024 units 0.063 was seen.
constexpr double kBfloat16Tolerance = 0.1;

/// Those of the fused kernels and larger ones.
std::vector<ParityCase> Cases() {
  std::vector<ParityCase> cases = FusedParityCases();
  // More rows than one pass of values has, and sums over many rows.
  cases.push_back({"ManyRows", ParitySpec(18, {64, 64}, {64, 64}), {}, std::vector<int64_t>(2800, 25)});
  return cases;
}

OneStep OnTheHost(const ParityCase& test) {
  return TakeOneStep(test, [](const policy::PolicySpec& spec) {
    return MakeTorchBackend(spec, Device{}, TorchPath::kHost, std::make_shared<ThreadTeam>(1));
  });
}

OneStep OnTheDevice(const ParityCase& test, Precision precision = Precision::kFloat32) {
  const auto make = [&](const policy::PolicySpec& spec) {
    return MakeTorchBackend(spec, TestDevice(), TorchPath::kDevice, std::make_shared<ThreadTeam>(1), precision);
  };
  return TakeOneStep(test, make, BatchAllocator(TestDevice()));
}

class DeviceParityTest : public testing::TestWithParam<size_t> {};

TEST_P(DeviceParityTest, OneStepEqualsTheHosts) {
  const ParityCase test = Cases()[GetParam()];
  ExpectSameStep(test.spec, OnTheDevice(test), OnTheHost(test), kTolerance);
}

// In bfloat16 are the products of networks that remember nothing; all that follows them is not.
TEST_P(DeviceParityTest, OneStepInBfloat16IsNearTheHosts) {
  const ParityCase test = Cases()[GetParam()];
  const OneStep expected = OnTheHost(test);
  const OneStep got = OnTheDevice(test, Precision::kBfloat16);
  if (test.spec.actor.remembers() && test.spec.EncodingNetwork(test.spec.critic()).remembers()) {
    return ExpectSameStep(test.spec, got, expected, kTolerance);
  }
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  const double gradient = RelativeDifference(got.gradients, expected.gradients, 0, expected.gradients.size(), 1e-2);
  EXPECT_GT(gradient, 1e-6);
  EXPECT_LE(gradient, kBfloat16Tolerance);
  const double value = RelativeDifference(got.values, expected.values, 0, expected.values.size(), 1e-2);
  EXPECT_LE(value, kBfloat16Tolerance);
  for (size_t i = 0; i < expected.metrics.size(); ++i) {
    const double number = expected.metrics[i].second;
    EXPECT_NEAR(got.metrics[i].second, number, kBfloat16Tolerance * std::max(1.0, std::abs(number)))
        << expected.metrics[i].first;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceParityTest, testing::Range<size_t>(0, Cases().size()),
                         [](const testing::TestParamInfo<size_t>& info) { return Cases()[info.param].name; });

}  // namespace
}  // namespace troupe::training
