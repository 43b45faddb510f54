// The fused kernels against LibTorch's autograd over the models, heads and sizes that both serve: one minibatch step
// from the same weights must give the same losses, gradients and values to 1e-5, relative to the largest number of a
// tensor.

#include <memory>
#include <string>
#include <tuple>

#include "lib/base/testing/processor.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/torch/torch_backend.h"
#include "tests/parity/one_step.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

constexpr double kTolerance = 1e-5;

class FusedParityTest : public testing::TestWithParam<std::tuple<size_t, VectorUnit, int>> {};

TEST_P(FusedParityTest, OneStepEqualsAutograd) {
  const ParityCase test = FusedParityCases()[std::get<0>(GetParam())];
  const VectorUnit unit = std::get<1>(GetParam());
  const int threads = std::get<2>(GetParam());
  const auto fused = [=](const policy::PolicySpec& spec) {
    return MakeFusedBackend(spec, std::make_shared<ThreadTeam>(threads), unit);
  };
  if (unit == VectorUnit::kAvx2 && !base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  if (unit == VectorUnit::kAvx512 && !base::ProcessorHasAvx512()) GTEST_SKIP() << base::kNoAvx512;
  const auto backend = fused(test.spec);
  ASSERT_TRUE(backend.ok()) << backend.status();
  ASSERT_EQ((*backend)->name(), unit == VectorUnit::kAvx2 ? "fused/avx2" : "fused/avx512");
  const OneStep expected = TakeOneStep(test, [](const policy::PolicySpec& spec) {
    return MakeTorchBackend(spec, Device{}, TorchPath::kHost, std::make_shared<ThreadTeam>(1));
  });
  ExpectSameStep(test.spec, TakeOneStep(test, fused), expected, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, FusedParityTest,
                         testing::Combine(testing::Range<size_t>(0, FusedParityCases().size()),
                                          testing::Values(VectorUnit::kAvx2, VectorUnit::kAvx512),
                                          testing::Values(1, 3)),
                         [](const testing::TestParamInfo<FusedParityTest::ParamType>& info) {
                           return FusedParityCases()[std::get<0>(info.param)].name +
                                  (std::get<1>(info.param) == VectorUnit::kAvx2 ? "_Avx2_" : "_Avx512_") +
                                  std::to_string(std::get<2>(info.param));
                         });

}  // namespace
}  // namespace troupe::training
