#include "lib/training/core/popart.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "lib/base/testing/processor.h"
#include "lib/policy/testing.h"
#include "lib/training/core/moments.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/testing/random_batch.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::CoreKind;

absl::Span<float> TensorOf(FlatParameters* parameters, const char* name) {
  const policy::ParameterEntry& entry = *parameters->layout().Find(name);
  return parameters->values().subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.count));
}

TEST(PopArtTest, RescalesTheCriticsLastLayerAndNothingElse) {
  const policy::PolicySpec spec = policy::SmallSpecForTesting();
  FlatParameters parameters = InitialParameters(spec, 3);
  const absl::Span<float> weight = TensorOf(&parameters, "critic.1.weight");
  ASSERT_EQ(weight.size(), 4u);
  for (size_t i = 0; i < 4; ++i) weight[i] = static_cast<float>(i) - 1;
  TensorOf(&parameters, "critic.1.bias")[0] = 6;
  const std::vector<float> before(parameters.values().begin(), parameters.values().end());
  // Deviations 2 and 8, means -1.5 and 2.5.
  PreserveValues(spec, {10, {-1.5}, {4.0}}, {20, {2.5}, {64.0}}, &parameters);
  EXPECT_EQ(std::vector<float>(weight.begin(), weight.end()), (std::vector<float>{-0.25f, 0, 0.25f, 0.5f}));
  EXPECT_EQ(TensorOf(&parameters, "critic.1.bias")[0], 1.0f);  // (6 * 2 - 1.5 - 2.5) / 8
  int64_t changed = 0;
  for (size_t i = 0; i < before.size(); ++i) changed += before[i] != parameters.values()[i] ? 1 : 0;
  EXPECT_EQ(changed, 3 + 1);  // a weight was 0
}

/// What the critic says of the rows of a batch, in the units of the rewards.
std::vector<double> Values(NetworkBackend* backend, const policy::RunningMoments& moments) {
  const absl::StatusOr<std::vector<float>> values = backend->Values();
  EXPECT_TRUE(values.ok()) << values.status();
  std::vector<double> result;
  for (const float value : *values) result.push_back(value * std::sqrt(moments.variance[0]) + moments.mean[0]);
  return result;
}

TEST(PopArtTest, KeepsEveryValueThroughMomentsThatGrowAThousandfold) {
  if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.SetCriticInput(policy::NetworkInput::kJointObservation, 12);
  RandomBatch batch(spec, {7, 9, 5}, 1);
  FlatParameters parameters = InitialParameters(spec, 3);
  PreparedBatch prepared;
  ASSERT_TRUE(prepared.Prepare(spec, {}, batch.rows()).ok());
  const auto backend = *MakeFusedBackend(spec, std::make_shared<ThreadTeam>(1));
  ASSERT_TRUE(backend->Begin(prepared, &parameters, NetworkBackend::kWholeTeam).ok());
  policy::RunningMoments moments = InitialMoments(1);
  const std::vector<double> first = Values(backend.get(), moments);
  for (const policy::RunningMoments& next :
       {policy::RunningMoments{5, {-3}, {0.5}}, {50, {120}, {1e6}}, {90, {-0.25}, {2.0}}}) {
    PreserveValues(spec, moments, next, &parameters);
    ASSERT_TRUE(backend->ParametersChanged().ok());
    moments = next;
    const std::vector<double> again = Values(backend.get(), moments);
    ASSERT_EQ(again.size(), first.size());
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_NEAR(again[i], first[i], 1e-5 * std::max(1.0, std::sqrt(next.variance[0]))) << i;
    }
  }
  ASSERT_TRUE(backend->End().ok());
}

TEST(PopArtTest, FindsTheLastLayerBehindACoreAndAHead) {
  policy::PolicySpec spec = policy::SmallSpecWithCoresForTesting(CoreKind::kGru, CoreKind::kLstm);
  spec.mutable_critic()->head_hidden_sizes = {5};
  FlatParameters parameters = InitialParameters(spec, 3);
  const float weight = TensorOf(&parameters, "critic.1.weight")[0];
  const float hidden = TensorOf(&parameters, "critic.0.weight")[0];
  PreserveValues(spec, InitialMoments(1), {20, {0}, {4.0}}, &parameters);
  EXPECT_EQ(TensorOf(&parameters, "critic.1.weight")[0], weight / 2);
  EXPECT_EQ(TensorOf(&parameters, "critic.0.weight")[0], hidden);
}

}  // namespace
}  // namespace troupe::training
