// Actors with encoders of leaves, against a plain implementation in double, for every back end.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/inference/testing/backends.h"
#include "lib/inference/testing/network_in_double.h"
#include "lib/space/image.h"
#include <gtest/gtest.h>

namespace troupe::inference {
namespace {

int64_t Pick(int64_t low, int64_t high, base::PhiloxSequence* random) {
  return low + static_cast<int64_t>(random->Below(static_cast<uint32_t>(high - low + 1)));
}

policy::PolicySpec LeavesSpecOf(const std::string& space, std::vector<policy::LeafEncoder> encoders) {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId("feels");
  spec.observation_space = *space::ParseSpace(space);
  spec.action_space = *space::Space::Discrete(kActionsInTest);
  spec.actor.encoder = policy::EncoderKind::kLeaves;
  spec.actor.leaf_encoders = std::move(encoders);
  spec.actor.hidden_sizes = {16};
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  return spec;
}

policy::PolicySpec CameraAndArm() {
  return LeavesSpecOf(
      "Dict{arm: Box(-5, 5, [3]), camera: Box(0, 255, [9, 8, 2], uint8), goal: Discrete(4)}",
      {{.leaf = 0, .hidden_sizes = {11, 6}}, {.leaf = 1, .conv_layers = {{6, 3, 2}, {5, 2, 1}}, .hidden_sizes = {7}}});
}

using ActorLeavesTest = EncodedActorTest;
INSTANTIATE_TEST_SUITE_P(Leaves, ActorLeavesTest, kBackends, BackendCaseName);

TEST_P(ActorLeavesTest, RandomNetworksEqualTheDefinition) {
  base::PhiloxSequence random = RandomInTest(9);
  for (uint32_t n = 0; n < 60; ++n) {
    std::vector<space::Space> leaves;
    std::vector<policy::LeafEncoder> encoders;
    for (int64_t leaf = 0, count = Pick(1, 5, &random); leaf < count; ++leaf) {
      policy::LeafEncoder encoder{.leaf = leaf};
      const bool image = random.Below(2) == 0;
      if (image) {
        const std::vector<int64_t> shape = {Pick(1, 12, &random), Pick(1, 12, &random), Pick(1, 3, &random)};
        leaves.push_back(random.Below(2) == 0
                             ? *space::Space::Box(n % 3, n % 2 == 0 ? 255 : 6, shape, tensor::DType::kUint8)
                             : *space::Space::Box(-2, 2, shape));
        policy::ImageShape left = space::ImageOf(leaves.back());
        for (int64_t l = Pick(0, 2, &random); l > 0; --l) {
          encoder.conv_layers.push_back({Pick(1, 20, &random),
                                         Pick(1, std::min<int64_t>({left.height, left.width, 4}), &random),
                                         Pick(1, 2, &random)});
          left = encoder.conv_layers.back().OutputOf(left);
        }
      } else {
        leaves.push_back(random.Below(2) == 0 ? *space::Space::Discrete(Pick(1, 5, &random))
                                              : *space::Space::Box(-2, 2, {Pick(1, 20, &random)}));
      }
      for (int64_t l = Pick(0, 2, &random); l > 0; --l) encoder.hidden_sizes.push_back(Pick(1, 40, &random));
      if (!encoder.conv_layers.empty() || !encoder.hidden_sizes.empty()) encoders.push_back(std::move(encoder));
    }
    if (encoders.empty()) encoders.push_back({.leaf = 0, .hidden_sizes = {Pick(1, 40, &random)}});
    policy::PolicySpec spec = LeavesSpecOf((*space::Space::Tuple(leaves)).ToString(), encoders);
    spec.bytes_by_255 = n % 4 == 0 && spec.bytes_have_bounds();
    spec.actor.activation = static_cast<policy::Activation>(Pick(1, 7, &random));
    spec.actor.layer_norm = random.Below(3) == 0;
    if (random.Below(3) == 0) spec.actor.hidden_sizes = {};
    if (random.Below(2) == 0) spec.agent_id_size = kAgentsInTest;
    SCOPED_TRACE(absl::StrCat(n, ": ", spec.ToString()));
    ExpectTheDefinition(spec, Pick(1, 60, &random), 100 + n);
  }
}

TEST_P(ActorLeavesTest, ARowDoesNotDependOnTheOthers) { ExpectARowDoesNotDependOnTheOthers(CameraAndArm(), 53); }

TEST_P(ActorLeavesTest, NormalizedObservationsAreNotDividedOnceMore) {
  policy::PolicySpec spec = CameraAndArm();
  spec.bytes_by_255 = true;  // whose encoders divide
  spec.normalize_observations = true;
  auto weights = WeightsInTest(spec);
  for (int64_t i = 0; i < spec.observation_size(); ++i) {
    weights->observation_mean.push_back(0.5f * static_cast<float>(i % 7));
    weights->observation_inverse_std.push_back(0.01f + 0.001f * static_cast<float>(i % 5));
  }
  const RowsInTest batch(spec, 4);
  RowsInTest normalized = batch;
  for (size_t i = 0; i < batch.floats.size(); ++i) {
    const size_t at = i % static_cast<size_t>(batch.size);
    normalized.floats[i] = (batch.floats[i] - weights->observation_mean[at]) * weights->observation_inverse_std[at];
  }
  ExpectTheDefinition(MakeActor(spec, weights).get(), batch, normalized, 2e-5, 0);
}

TEST_P(ActorLeavesTest, ACoreReadsWhatTheyMade) {
  // The arm passes as it is.
  policy::PolicySpec spec = LeavesSpecOf("Tuple(Box(-5, 5, [3]), Discrete(4))", {{.leaf = 1, .hidden_sizes = {6}}});
  spec.actor.hidden_sizes = {};
  spec.actor.core = {policy::CoreKind::kLstm, 12, 1};
  spec.sequence_length = 4;
  spec.agent_id_size = kAgentsInTest;
  ExpectACoreReadsWhatWasMade(spec, 3 + 6);
}

TEST_P(ActorLeavesTest, NewWeightsTakeEffect) { ExpectNewWeightsTakeEffect(CameraAndArm()); }

}  // namespace
}  // namespace troupe::inference
