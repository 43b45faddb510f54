// Actors with convolutions, against a plain implementation in double, for every back end.

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/inference/testing/backends.h"
#include "lib/inference/testing/network_in_double.h"
#include <gtest/gtest.h>

namespace troupe::inference {
namespace {

policy::PolicySpec CnnSpec(policy::ImageShape image, std::vector<policy::ConvLayer> layers, bool bytes = true) {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId("sees");
  const std::vector<int64_t> shape = {image.height, image.width, image.channels};
  spec.observation_space =
      bytes ? *space::Space::Box(0, 255, shape, tensor::DType::kUint8) : *space::Space::Box(-2, 2, shape);
  spec.action_space = *space::Space::Discrete(kActionsInTest);
  spec.actor.encoder = policy::EncoderKind::kCnn;
  spec.actor.conv_layers = std::move(layers);
  spec.actor.hidden_sizes = {16};
  return spec;
}

/// An image with other bounds than 0 and 255.
space::Space BytesWithin(const policy::ImageShape& image, bool by_element) {
  const std::vector<int64_t> shape = {image.height, image.width, image.channels};
  if (!by_element) return *space::Space::Box(1, 3, shape, tensor::DType::kUint8);
  std::vector<double> low, high;
  for (int64_t i = 0; i < image.size(); ++i) {
    low.push_back(static_cast<double>(i % 4));
    high.push_back(static_cast<double>(i % 4 + i % 7 * 20));
  }
  return *space::Space::Box(low, high, shape, tensor::DType::kUint8);
}

using ActorCnnTest = EncodedActorTest;
INSTANTIATE_TEST_SUITE_P(Convolutions, ActorCnnTest, kBackends, BackendCaseName);

TEST_P(ActorCnnTest, RandomNetworksEqualTheDefinition) {
  base::PhiloxSequence random = RandomInTest(9);
  const auto pick = [&random](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random.Below(static_cast<uint32_t>(high - low + 1)));
  };
  for (int n = 0; n < 60; ++n) {
    const policy::ImageShape image = {pick(1, 24), pick(1, 24), pick(1, 5)};
    std::vector<policy::ConvLayer> layers;
    policy::ImageShape left = image;
    for (int64_t l = pick(1, 3); l > 0; --l) {
      const int64_t kernel = pick(1, std::min<int64_t>(std::min(left.height, left.width), 6));
      layers.push_back({pick(1, 40), kernel, pick(1, 3)});
      left = layers.back().OutputOf(left);
    }
    const bool bytes = random.Below(2) == 0;
    policy::PolicySpec spec = CnnSpec(image, layers, bytes);
    if (bytes && n % 3 > 0) spec.observation_space = BytesWithin(image, /*by_element=*/n % 3 == 1);
    spec.actor.activation = static_cast<policy::Activation>(pick(1, 7));
    if (random.Below(3) == 0) spec.actor.hidden_sizes = {};
    if (random.Below(2) == 0) spec.agent_id_size = kAgentsInTest;
    const int64_t rows = pick(1, 20);
    SCOPED_TRACE(absl::StrCat(n, ": ", image.height, " x ", image.width, " x ", image.channels, ", ",
                              policy::ConvText(spec.actor), ", activation ", static_cast<int>(spec.actor.activation)));
    ExpectTheDefinition(spec, rows, 100 + static_cast<uint32_t>(n));
  }
}

TEST_P(ActorCnnTest, AKernelThatCoversTheImageEqualsTheDefinition) {
  // The second one reads all of 4 x 3; the third one begins at a whole image of bytes.
  ExpectTheDefinition(CnnSpec({10, 9, 2}, {{7, 3, 2}, {24, 4, 1}}), 19);
  ExpectTheDefinition(CnnSpec({9, 7, 2}, {{7, 3, 2}, {33, 3, 9}}), 19);
  ExpectTheDefinition(CnnSpec({6, 6, 3}, {{20, 6, 1}}), 19);
  ExpectTheDefinition(CnnSpec({7, 6, 3}, {{20, 6, 4}}, /*bytes=*/false), 19);
}

TEST_P(ActorCnnTest, DqnsLayersEqualTheDefinition) {
  policy::PolicySpec spec = CnnSpec({84, 84, 4}, {{32, 8, 4}, {64, 4, 2}, {64, 3, 1}});
  spec.SetActivation(policy::Activation::kRelu);
  spec.actor.hidden_sizes = {32};
  ExpectTheDefinition(spec, 3);
}

TEST_P(ActorCnnTest, BytesAndTheFloatsThatTheyMeanAreTheSame) {
  const policy::PolicySpec of_bytes = CnnSpec({12, 11, 3}, {{8, 3, 2}, {16, 3, 1}});
  policy::PolicySpec of_floats = of_bytes;
  of_floats.observation_space = *space::Space::Box(0, 1, {12, 11, 3});
  RowsInTest bytes(of_bytes, 7);
  RowsInTest floats(of_floats, 7);
  for (size_t i = 0; i < bytes.bytes.size(); ++i) {
    floats.floats[i] = static_cast<float>(bytes.bytes[i]) * (1.0f / 255.0f);
  }
  EXPECT_EQ(OutputsOf(MakeActor(of_bytes).get(), bytes.Input()), OutputsOf(MakeActor(of_floats).get(), floats.Input()));
}

TEST_P(ActorCnnTest, ARowDoesNotDependOnTheOthers) {
  ExpectARowDoesNotDependOnTheOthers(CnnSpec({14, 13, 3}, {{20, 3, 2}, {17, 3, 1}}), 21);
}

TEST_P(ActorCnnTest, FloatsAreNormalizedBeforeTheConvolutions) {
  policy::PolicySpec spec = CnnSpec({6, 5, 2}, {{8, 3, 1}}, /*bytes=*/false);
  spec.normalize_observations = true;
  auto weights = WeightsInTest(spec);
  for (int64_t i = 0; i < spec.observation_size(); ++i) {
    weights->observation_mean.push_back(0.01f * static_cast<float>(i));
    weights->observation_inverse_std.push_back(0.5f + 0.01f * static_cast<float>(i));
  }
  const RowsInTest batch(spec, 4);
  RowsInTest normalized = batch;
  for (size_t i = 0; i < batch.floats.size(); ++i) {
    const size_t at = i % static_cast<size_t>(batch.size);
    normalized.floats[i] = (batch.floats[i] - weights->observation_mean[at]) * weights->observation_inverse_std[at];
  }
  ExpectTheDefinition(MakeActor(spec, weights).get(), batch, normalized, 2e-5, 0);
}

TEST_P(ActorCnnTest, ACoreReadsWhatConvolutionsMade) {
  policy::PolicySpec spec = CnnSpec({9, 8, 2}, {{6, 3, 2}});
  spec.actor.hidden_sizes = {};
  spec.actor.core = {policy::CoreKind::kGru, 12, 1};
  spec.sequence_length = 4;
  spec.agent_id_size = kAgentsInTest;
  ExpectACoreReadsWhatWasMade(spec, 4 * 3 * 6);
}

TEST_P(ActorCnnTest, NewWeightsTakeEffect) { ExpectNewWeightsTakeEffect(CnnSpec({12, 12, 1}, {{8, 3, 2}})); }

TEST_P(ActorCnnTest, ActsAndSaysTheLogProbabilityOfWhatItDid) {
  const policy::PolicySpec spec = CnnSpec({12, 12, 1}, {{8, 3, 2}});
  const auto actor = MakeActor(spec);
  RowsInTest batch(spec, 30);
  std::vector<space::ActionWord> actions(30);
  std::vector<float> logp(30), logits(30 * kActionsInTest);
  ASSERT_TRUE(actor->Act(batch.Input(), actions.data(), logp.data()).ok());
  ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(logits)).ok());
  for (size_t r = 0; r < 30; ++r) {
    double total = 0;
    for (size_t i = 0; i < kActionsInTest; ++i) total += std::exp(static_cast<double>(logits[r * kActionsInTest + i]));
    const double chosen = logits[r * kActionsInTest + static_cast<size_t>(actions[r].i32)];
    EXPECT_NEAR(logp[r], chosen - std::log(total), 1e-5);
  }
}

}  // namespace
}  // namespace troupe::inference
