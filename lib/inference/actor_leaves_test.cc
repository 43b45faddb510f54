// Actors with encoders of leaves, against a plain implementation in double, for every back end.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/inference/testing/backends.h"
#include "lib/inference/testing/in_double.h"
#include "lib/policy/parameter_layout.h"
#include "lib/space/image.h"
#include "lib/space/observation_leaves.h"
#include <gtest/gtest.h>

namespace troupe::inference {
namespace {

constexpr int64_t kLeafActions = 5;
constexpr int64_t kLeafAgents = 3;
using Numbers = std::vector<double>;

base::PhiloxSequence LeafRandom(uint32_t n) {
  return base::PhiloxSequence(base::PhiloxKey::Make(31, base::RandomStream::kTest), {n, 0, 0, 0});
}

int64_t Pick(int64_t low, int64_t high, base::PhiloxSequence* random) {
  return low + static_cast<int64_t>(random->Below(static_cast<uint32_t>(high - low + 1)));
}

policy::PolicySpec LeavesSpecOf(const std::string& space, std::vector<policy::LeafEncoder> encoders) {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId("feels");
  spec.observation_space = *space::ParseSpace(space);
  spec.action_space = *space::Space::Discrete(kLeafActions);
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

std::shared_ptr<policy::WeightSnapshot> LeafWeights(const policy::PolicySpec& spec, uint32_t seed = 1) {
  auto weights = std::make_shared<policy::WeightSnapshot>();
  weights->id = spec.id;
  weights->version = {1, 5};
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  weights->actor.resize(static_cast<size_t>(layout.acting_size()));
  base::PhiloxSequence random = LeafRandom(seed);
  for (const policy::ParameterEntry& entry : layout.entries()) {
    if (entry.offset >= layout.acting_size()) continue;
    const double fan_in = entry.shape.size() > 1 ? static_cast<double>(entry.count / entry.shape[0]) : 4.0;
    for (int64_t i = 0; i < entry.count; ++i) {
      weights->actor[static_cast<size_t>(entry.offset + i)] = static_cast<float>(random.Normal() / std::sqrt(fan_in));
    }
  }
  return weights;
}

/// Rows of observations and whose they are.
struct LeafBatch {
  LeafBatch(const policy::PolicySpec& spec, int64_t rows_, uint32_t seed = 2)
      : rows(rows_), state(static_cast<size_t>(rows_ * spec.actor_state_size()), 0.0f) {
    base::PhiloxSequence random = LeafRandom(seed);
    floats.resize(static_cast<size_t>(rows * spec.observation_size()));
    for (int64_t r = 0; r < rows; ++r) {
      spec.observation_space.SampleFlat(random,
                                        absl::MakeSpan(floats).subspan(static_cast<size_t>(r * spec.observation_size()),
                                                                       static_cast<size_t>(spec.observation_size())));
      keys.push_back({base::EnvId(static_cast<uint32_t>(r)), 0, base::AgentSlot(static_cast<int32_t>(r % kLeafAgents)),
                      static_cast<uint32_t>(r)});
    }
  }
  ActInput Input() { return {rows, floats.data(), nullptr, keys.data(), false, state.data(), state.data()}; }

  const int64_t rows;
  std::vector<float> floats, state;
  std::vector<RowKey> keys;
};

/// The layers of the definition, by the names of their parameters.
class LeafDefinition {
 public:
  LeafDefinition(const policy::PolicySpec& spec, const policy::WeightSnapshot& weights)
      : spec_(spec), weights_(weights), layout_(policy::ParameterLayout::For(spec)) {}

  /// The last layer's outputs of row `r`.
  Numbers Outputs(const LeafBatch& batch, int64_t r) const {
    Numbers x;
    size_t next = 0;
    const std::vector<space::ObservationLeaf> leaves = space::ObservationLeaves(spec_.observation_space);
    for (size_t i = 0; i < leaves.size(); ++i) {
      const float* const first = batch.floats.data() + r * spec_.observation_size() + leaves[i].first;
      Numbers made(first, first + leaves[i].space.flat_size());
      if (next < spec_.actor.leaf_encoders.size() && spec_.actor.leaf_encoders[next].leaf == static_cast<int64_t>(i)) {
        made = EncodedLeaf(leaves[i].space, spec_.actor.leaf_encoders[next++], std::move(made));
      }
      x.insert(x.end(), made.begin(), made.end());
    }
    for (int64_t s = 0; s < spec_.agent_id_size; ++s) {
      x.push_back(s == batch.keys[static_cast<size_t>(r)].slot.value() ? 1 : 0);
    }
    for (size_t l = 0; l < spec_.actor.num_layers(); ++l) {
      x = Linear("", l, x, l + 1 < spec_.actor.num_layers());
    }
    return x;
  }

 private:
  const float* At(const std::string& name) const {
    return weights_.actor.data() + layout_.Find(absl::StrCat("actor.", name))->offset;
  }

  Numbers EncodedLeaf(const space::Space& leaf, const policy::LeafEncoder& encoder, Numbers x) const {
    const std::string stem = absl::StrCat("leaf.", encoder.leaf, ".");
    const bool of_bytes = leaf.kind() == space::SpaceKind::kBox && leaf.dtype() == tensor::DType::kUint8;
    for (double& value : x) value = of_bytes ? value / 255 : value;
    policy::ImageShape image = space::ImageOf(leaf);
    for (size_t l = 0; l < encoder.conv_layers.size(); ++l) {
      x = Convolved(absl::StrCat(stem, "conv.", l), encoder.conv_layers[l], image, x);
      image = encoder.conv_layers[l].OutputOf(image);
    }
    for (size_t l = 0; l < encoder.hidden_sizes.size(); ++l) x = Linear(stem, l, x, true);
    return x;
  }

  Numbers Convolved(const std::string& name, const policy::ConvLayer& layer, const policy::ImageShape& image,
                    const Numbers& x) const {
    const float* const weight = At(name + ".weight");
    const float* const bias = At(name + ".bias");
    const policy::ImageShape made = layer.OutputOf(image);
    Numbers y;
    for (int64_t place = 0; place < made.height * made.width * made.channels; ++place) {
      const int64_t o = place % made.channels;
      const int64_t column = place / made.channels % made.width;
      const int64_t row = place / made.channels / made.width;
      double sum = bias[o];
      for (int64_t k = 0; k < image.channels * layer.kernel * layer.kernel; ++k) {
        const int64_t c = k / (layer.kernel * layer.kernel);
        const int64_t ky = k / layer.kernel % layer.kernel;
        const int64_t kx = k % layer.kernel;
        const int64_t pixel = (row * layer.stride + ky) * image.width + column * layer.stride + kx;
        sum += x[static_cast<size_t>(pixel * image.channels + c)] *
               weight[o * image.channels * layer.kernel * layer.kernel + k];
      }
      y.push_back(ActivationInDouble(spec_.actor.activation, sum));
    }
    return y;
  }

  Numbers Linear(const std::string& stem, size_t layer, const Numbers& x, bool hidden) const {
    const float* const weight = At(absl::StrCat(stem, layer, ".weight"));
    const float* const bias = At(absl::StrCat(stem, layer, ".bias"));
    Numbers y;
    for (int64_t o = 0; o < layout_.Find(absl::StrCat("actor.", stem, layer, ".bias"))->count; ++o) {
      double sum = bias[o];
      for (size_t k = 0; k < x.size(); ++k) sum += x[k] * weight[static_cast<size_t>(o) * x.size() + k];
      y.push_back(sum);
    }
    if (!hidden) return y;
    if (spec_.actor.layer_norm) {
      double mean = 0, square = 0;
      for (const double value : y) mean += value / static_cast<double>(y.size());
      for (const double value : y) square += (value - mean) * (value - mean) / static_cast<double>(y.size());
      const float* const scale = At(absl::StrCat(stem, "norm.", layer, ".weight"));
      const float* const shift = At(absl::StrCat(stem, "norm.", layer, ".bias"));
      for (size_t o = 0; o < y.size(); ++o) y[o] = (y[o] - mean) / std::sqrt(square + 1e-5) * scale[o] + shift[o];
    }
    for (double& value : y) value = ActivationInDouble(spec_.actor.activation, value);
    return y;
  }

  const policy::PolicySpec& spec_;
  const policy::WeightSnapshot& weights_;
  const policy::ParameterLayout layout_;
};

class ActorLeavesTest : public BackendTest {
 protected:
  std::unique_ptr<Actor> MakeLeavesActor(const policy::PolicySpec& spec) const {
    auto actor = Actor::Create(spec, 3, GetParam());
    EXPECT_TRUE(actor.ok()) << actor.status();
    EXPECT_TRUE((*actor)->SetWeights(LeafWeights(spec)).ok());
    return *std::move(actor);
  }
  void ExpectTheDefinition(const policy::PolicySpec& spec, int64_t rows, uint32_t seed = 2) const {
    const auto actor = MakeLeavesActor(spec);
    LeafBatch batch(spec, rows, seed);
    std::vector<float> got(static_cast<size_t>(rows * kLeafActions));
    ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(got)).ok());
    const LeafDefinition definition(spec, *actor->weights());
    for (int64_t r = 0; r < rows; ++r) {
      const Numbers want = definition.Outputs(batch, r);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[static_cast<size_t>(r * kLeafActions) + i], want[i], 1e-5 * (1 + std::abs(want[i])))
            << "row " << r << " of " << rows << ", output " << i;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, ActorLeavesTest, kBackends, BackendCaseName);

TEST_P(ActorLeavesTest, RandomNetworksEqualTheDefinition) {
  base::PhiloxSequence random = LeafRandom(9);
  for (uint32_t n = 0; n < 60; ++n) {
    std::vector<space::Space> leaves;
    std::vector<policy::LeafEncoder> encoders;
    for (int64_t leaf = 0, count = Pick(1, 5, &random); leaf < count; ++leaf) {
      policy::LeafEncoder encoder{.leaf = leaf};
      const bool image = random.Below(2) == 0;
      if (image) {
        const std::vector<int64_t> shape = {Pick(1, 12, &random), Pick(1, 12, &random), Pick(1, 3, &random)};
        leaves.push_back(random.Below(2) == 0 ? *space::Space::Box(0, 255, shape, tensor::DType::kUint8)
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
    spec.actor.activation = static_cast<policy::Activation>(Pick(1, 7, &random));
    spec.actor.layer_norm = random.Below(3) == 0;
    if (random.Below(3) == 0) spec.actor.hidden_sizes = {};
    if (random.Below(2) == 0) spec.agent_id_size = kLeafAgents;
    SCOPED_TRACE(absl::StrCat(n, ": ", spec.ToString()));
    ExpectTheDefinition(spec, Pick(1, 60, &random), 100 + n);
  }
}

TEST_P(ActorLeavesTest, ARowDoesNotDependOnTheOthers) {
  const policy::PolicySpec spec = CameraAndArm();
  const auto actor = MakeLeavesActor(spec);
  LeafBatch batch(spec, 53);
  std::vector<float> all(53 * kLeafActions);
  ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(all)).ok());
  for (int64_t r = 0; r < batch.rows; ++r) {
    std::vector<float> alone(kLeafActions);
    const ActInput input = {1, batch.floats.data() + r * spec.observation_size(), nullptr, &batch.keys[r]};
    ASSERT_TRUE(actor->Forward(input, absl::MakeSpan(alone)).ok());
    for (size_t i = 0; i < alone.size(); ++i) {
      const float got = all[static_cast<size_t>(r * kLeafActions) + i];
      if (GetParam() == Backend::kEigen) {
        ASSERT_NEAR(alone[i], got, 1e-5f);
      } else {
        ASSERT_EQ(alone[i], got) << r;
      }
    }
  }
}

TEST_P(ActorLeavesTest, NormalizedObservationsAreNotDividedOnceMore) {
  policy::PolicySpec spec = CameraAndArm();
  spec.normalize_observations = true;
  auto weights = LeafWeights(spec);
  for (int64_t i = 0; i < spec.observation_size(); ++i) {
    weights->observation_mean.push_back(0.5f * static_cast<float>(i % 7));
    weights->observation_inverse_std.push_back(0.01f + 0.001f * static_cast<float>(i % 5));
  }
  auto actor = *Actor::Create(spec, 3, GetParam());
  ASSERT_TRUE(actor->SetWeights(weights).ok());
  LeafBatch batch(spec, 4);
  LeafBatch normalized = batch;
  for (size_t i = 0; i < batch.floats.size(); ++i) {
    const size_t at = i % static_cast<size_t>(spec.observation_size());
    normalized.floats[i] = (batch.floats[i] - weights->observation_mean[at]) * weights->observation_inverse_std[at];
    // What the definition divides by.
    if (at >= 3 && at < 3 + 144) normalized.floats[i] *= 255;
  }
  std::vector<float> got(4 * kLeafActions);
  ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(got)).ok());
  for (int64_t r = 0; r < 4; ++r) {
    const Numbers want = LeafDefinition(spec, *weights).Outputs(normalized, r);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[static_cast<size_t>(r * kLeafActions) + i], want[i], 2e-5);
  }
}

TEST_P(ActorLeavesTest, ACoreReadsWhatTheyMade) {
  // The same network without encoders, which is given what they make as an observation: arm and goal pass as they are.
  policy::PolicySpec spec = LeavesSpecOf("Tuple(Box(-5, 5, [3]), Discrete(4))", {{.leaf = 1, .hidden_sizes = {6}}});
  spec.actor.hidden_sizes = {};
  spec.actor.core = {policy::CoreKind::kLstm, 12, 1};
  spec.sequence_length = 4;
  spec.agent_id_size = kLeafAgents;
  const auto actor = MakeLeavesActor(spec);
  policy::PolicySpec flat = spec;
  flat.observation_space = *space::Space::Box(-9, 9, {3 + 6});
  flat.actor.encoder = policy::EncoderKind::kMlp;
  flat.actor.leaf_encoders = {};
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const policy::ParameterLayout flat_layout = policy::ParameterLayout::For(flat);
  auto weights = std::make_shared<policy::WeightSnapshot>();
  weights->id = flat.id;
  weights->actor.resize(static_cast<size_t>(flat_layout.acting_size()));
  for (const policy::ParameterEntry& entry : flat_layout.entries()) {
    if (entry.name.rfind("actor.", 0) != 0) continue;
    const policy::ParameterEntry& from = *layout.Find(entry.name);
    ASSERT_EQ(from.shape, entry.shape) << entry.name;
    std::copy_n(actor->weights()->actor.begin() + from.offset, entry.count, weights->actor.begin() + entry.offset);
  }
  auto reader = *Actor::Create(flat, 3, GetParam());
  ASSERT_EQ(reader->SetWeights(weights), absl::OkStatus());

  constexpr int64_t kRows = 53;
  LeafBatch batch(spec, kRows);
  std::vector<float> seen;
  const float* const weight = actor->weights()->actor.data() + layout.Find("actor.leaf.1.0.weight")->offset;
  const float* const bias = actor->weights()->actor.data() + layout.Find("actor.leaf.1.0.bias")->offset;
  for (int64_t r = 0; r < kRows; ++r) {
    const float* const row = batch.floats.data() + r * 7;
    seen.insert(seen.end(), row, row + 3);
    for (int64_t o = 0; o < 6; ++o) {
      double sum = bias[o];
      for (int64_t k = 0; k < 4; ++k) sum += row[3 + k] * weight[o * 4 + k];
      seen.push_back(static_cast<float>(std::tanh(sum)));
    }
  }
  std::vector<float> state(static_cast<size_t>(kRows * spec.actor_state_size()), 0.0f);
  for (int decision = 0; decision < 3; ++decision) {
    std::vector<float> got(kRows * kLeafActions), want(kRows * kLeafActions);
    ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(got)).ok());
    const ActInput input = {kRows, seen.data(), nullptr, batch.keys.data(), false, state.data(), state.data()};
    ASSERT_TRUE(reader->Forward(input, absl::MakeSpan(want)).ok());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << decision;
    for (size_t i = 0; i < state.size(); ++i) ASSERT_NEAR(batch.state[i], state[i], 2e-5) << decision;
  }
}

TEST_P(ActorLeavesTest, NewWeightsTakeEffect) {
  const policy::PolicySpec spec = CameraAndArm();
  const auto actor = MakeLeavesActor(spec);
  const auto next = LeafWeights(spec, 5);
  ASSERT_TRUE(actor->SetWeights(next).ok());
  LeafBatch batch(spec, 2);
  std::vector<float> got(2 * kLeafActions);
  ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(got)).ok());
  const Numbers want = LeafDefinition(spec, *next).Outputs(batch, 1);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[kLeafActions + i], want[i], 1e-5);
}

}  // namespace
}  // namespace troupe::inference
