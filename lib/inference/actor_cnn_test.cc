// Actors with convolutions, against a plain implementation in double, for every back end.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/inference/testing/backends.h"
#include "lib/inference/testing/in_double.h"
#include "lib/policy/parameter_layout.h"
#include <gtest/gtest.h>

namespace troupe::inference {
namespace {

constexpr int64_t kCnnActions = 5;
constexpr int64_t kCnnAgents = 3;

base::PhiloxSequence CnnRandom(uint32_t n) {
  return base::PhiloxSequence(base::PhiloxKey::Make(23, base::RandomStream::kTest), {n, 0, 0, 0});
}

policy::PolicySpec CnnSpec(policy::ImageShape image, std::vector<policy::ConvLayer> layers, bool bytes = true) {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId("sees");
  const std::vector<int64_t> shape = {image.height, image.width, image.channels};
  spec.observation_space =
      bytes ? *space::Space::Box(0, 255, shape, tensor::DType::kUint8) : *space::Space::Box(-5, 5, shape);
  spec.action_space = *space::Space::Discrete(kCnnActions);
  spec.actor.encoder = policy::EncoderKind::kCnn;
  spec.actor.conv_layers = std::move(layers);
  spec.actor.hidden_sizes = {16};
  return spec;
}

std::shared_ptr<policy::WeightSnapshot> CnnWeights(const policy::PolicySpec& spec, uint32_t seed = 1) {
  auto weights = std::make_shared<policy::WeightSnapshot>();
  weights->id = spec.id;
  weights->version = {1, 5};
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  weights->actor.resize(static_cast<size_t>(layout.acting_size()));
  base::PhiloxSequence random = CnnRandom(seed);
  for (const policy::ParameterEntry& entry : layout.entries()) {
    if (entry.offset >= layout.acting_size()) continue;
    const double fan_in = entry.shape.size() > 1 ? static_cast<double>(entry.count / entry.shape[0]) : 4.0;
    for (int64_t i = 0; i < entry.count; ++i) {
      weights->actor[static_cast<size_t>(entry.offset + i)] = static_cast<float>(random.Normal() / std::sqrt(fan_in));
    }
  }
  return weights;
}

/// Rows of images and whose they are.
struct CnnBatch {
  CnnBatch(const policy::PolicySpec& spec, int64_t rows_, uint32_t seed = 2) : rows(rows_) {
    base::PhiloxSequence random = CnnRandom(seed);
    const bool of_bytes = spec.observation_space.flat_dtype() == tensor::DType::kUint8;
    for (int64_t i = 0; i < rows * spec.observation_size(); ++i) {
      if (of_bytes) {
        bytes.push_back(static_cast<uint8_t>(random.Below(256)));
      } else {
        floats.push_back(static_cast<float>(random.Uniform(-2, 2)));
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      keys.push_back({base::EnvId(static_cast<uint32_t>(r)), 0, base::AgentSlot(static_cast<int32_t>(r % kCnnAgents)),
                      static_cast<uint32_t>(r)});
    }
    state.resize(static_cast<size_t>(rows * spec.actor_state_size()), 0.0f);
  }
  const void* obs() const { return bytes.empty() ? static_cast<const void*>(floats.data()) : bytes.data(); }
  double At(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return bytes.empty() ? static_cast<double>(floats[at]) : bytes[at] / 255.0;
  }
  ActInput Input() { return {rows, obs(), nullptr, keys.data(), false, state.data(), state.data()}; }

  const int64_t rows;
  std::vector<uint8_t> bytes;
  std::vector<float> floats, state;
  std::vector<RowKey> keys;
};

/// The last layer's outputs of row `r` by the definition of torch.nn.Conv2d and Linear.
std::vector<double> CnnInDouble(const policy::PolicySpec& spec, const policy::WeightSnapshot& weights,
                                const CnnBatch& batch, int64_t r) {
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const policy::NetworkSpec& network = spec.actor;
  const auto parameter = [&](const std::string& name) {
    return weights.actor.data() + layout.Find(absl::StrCat("actor.", name))->offset;
  };
  policy::ImageShape image = spec.image();
  std::vector<double> x;
  for (int64_t i = 0; i < image.size(); ++i) x.push_back(batch.At(r * image.size() + i));
  for (size_t l = 0; l < network.conv_layers.size(); ++l) {
    const policy::ConvLayer& layer = network.conv_layers[l];
    const float* const weight = parameter(absl::StrCat("conv.", l, ".weight"));
    const float* const bias = parameter(absl::StrCat("conv.", l, ".bias"));
    const policy::ImageShape made = layer.OutputOf(image);
    std::vector<double> y;
    for (int64_t row = 0; row < made.height; ++row) {
      for (int64_t column = 0; column < made.width; ++column) {
        for (int64_t o = 0; o < made.channels; ++o) {
          double sum = bias[o];
          for (int64_t c = 0; c < image.channels; ++c) {
            for (int64_t ky = 0; ky < layer.kernel; ++ky) {
              for (int64_t kx = 0; kx < layer.kernel; ++kx) {
                const int64_t at =
                    ((row * layer.stride + ky) * image.width + column * layer.stride + kx) * image.channels + c;
                sum += x[static_cast<size_t>(at)] *
                       weight[((o * image.channels + c) * layer.kernel + ky) * layer.kernel + kx];
              }
            }
          }
          y.push_back(ActivationInDouble(network.activation, sum));
        }
      }
    }
    x = std::move(y);
    image = made;
  }
  for (int64_t s = 0; s < spec.agent_id_size; ++s) {
    x.push_back(s == batch.keys[static_cast<size_t>(r)].slot.value() ? 1 : 0);
  }
  for (size_t l = 0; l < network.num_layers(); ++l) {
    const float* const weight = parameter(absl::StrCat(l, ".weight"));
    const float* const bias = parameter(absl::StrCat(l, ".bias"));
    std::vector<double> y;
    for (int64_t o = 0; o < layout.Find(absl::StrCat("actor.", l, ".bias"))->count; ++o) {
      double sum = bias[o];
      for (size_t k = 0; k < x.size(); ++k) sum += x[k] * weight[static_cast<size_t>(o) * x.size() + k];
      y.push_back(l + 1 < network.num_layers() ? ActivationInDouble(network.activation, sum) : sum);
    }
    x = std::move(y);
  }
  return x;
}

class ActorCnnTest : public BackendTest {
 protected:
  std::unique_ptr<Actor> MakeCnnActor(const policy::PolicySpec& spec) const {
    auto actor = Actor::Create(spec, 3, GetParam());
    EXPECT_TRUE(actor.ok()) << actor.status();
    EXPECT_TRUE((*actor)->SetWeights(CnnWeights(spec)).ok());
    return *std::move(actor);
  }
  void ExpectTheDefinition(const policy::PolicySpec& spec, int64_t rows, uint32_t seed = 2) const {
    const auto actor = MakeCnnActor(spec);
    CnnBatch batch(spec, rows, seed);
    std::vector<float> got(static_cast<size_t>(rows * kCnnActions));
    ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(got)).ok());
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<double> want = CnnInDouble(spec, *actor->weights(), batch, r);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[static_cast<size_t>(r * kCnnActions) + i], want[i], 1e-5 * (1 + std::abs(want[i])))
            << "row " << r << " of " << rows << ", output " << i;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, ActorCnnTest, kBackends, BackendCaseName);

TEST_P(ActorCnnTest, RandomNetworksEqualTheDefinition) {
  base::PhiloxSequence random = CnnRandom(9);
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
    policy::PolicySpec spec = CnnSpec(image, layers, random.Below(2) == 0);
    spec.actor.activation = static_cast<policy::Activation>(pick(1, 7));
    if (random.Below(3) == 0) spec.actor.hidden_sizes = {};
    if (random.Below(2) == 0) spec.agent_id_size = kCnnAgents;
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
  CnnBatch bytes(of_bytes, 7);
  CnnBatch floats(of_floats, 7);
  for (size_t i = 0; i < bytes.bytes.size(); ++i) {
    floats.floats[i] = static_cast<float>(bytes.bytes[i]) * (1.0f / 255.0f);
  }
  std::vector<float> one(7 * kCnnActions), other(7 * kCnnActions);
  ASSERT_TRUE(MakeCnnActor(of_bytes)->Forward(bytes.Input(), absl::MakeSpan(one)).ok());
  ASSERT_TRUE(MakeCnnActor(of_floats)->Forward(floats.Input(), absl::MakeSpan(other)).ok());
  EXPECT_EQ(one, other);
}

TEST_P(ActorCnnTest, ARowDoesNotDependOnTheOthers) {
  const policy::PolicySpec spec = CnnSpec({14, 13, 3}, {{20, 3, 2}, {17, 3, 1}});
  const auto actor = MakeCnnActor(spec);
  CnnBatch batch(spec, 21);
  std::vector<float> all(21 * kCnnActions);
  ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(all)).ok());
  for (int64_t r = 0; r < batch.rows; ++r) {
    std::vector<float> alone(kCnnActions);
    const ActInput input = {1, batch.bytes.data() + r * spec.observation_size(), nullptr, &batch.keys[r]};
    ASSERT_TRUE(actor->Forward(input, absl::MakeSpan(alone)).ok());
    for (size_t i = 0; i < alone.size(); ++i) {
      const float got = all[static_cast<size_t>(r * kCnnActions) + i];
      if (GetParam() == Backend::kEigen) {
        ASSERT_NEAR(alone[i], got, 1e-5f);
      } else {
        ASSERT_EQ(alone[i], got) << r;
      }
    }
  }
}

TEST_P(ActorCnnTest, FloatsAreNormalizedBeforeTheConvolutions) {
  policy::PolicySpec spec = CnnSpec({6, 5, 2}, {{8, 3, 1}}, /*bytes=*/false);
  spec.normalize_observations = true;
  auto weights = CnnWeights(spec);
  for (int64_t i = 0; i < spec.observation_size(); ++i) {
    weights->observation_mean.push_back(0.01f * static_cast<float>(i));
    weights->observation_inverse_std.push_back(0.5f + 0.01f * static_cast<float>(i));
  }
  auto actor = *Actor::Create(spec, 3, GetParam());
  ASSERT_TRUE(actor->SetWeights(weights).ok());
  CnnBatch batch(spec, 4);
  CnnBatch normalized = batch;
  for (size_t i = 0; i < batch.floats.size(); ++i) {
    const size_t at = i % static_cast<size_t>(spec.observation_size());
    normalized.floats[i] = (batch.floats[i] - weights->observation_mean[at]) * weights->observation_inverse_std[at];
  }
  std::vector<float> got(4 * kCnnActions);
  ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(got)).ok());
  for (int64_t r = 0; r < 4; ++r) {
    const std::vector<double> want = CnnInDouble(spec, *weights, normalized, r);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[static_cast<size_t>(r * kCnnActions) + i], want[i], 2e-5);
  }
}

TEST_P(ActorCnnTest, ACoreReadsWhatConvolutionsMade) {
  // The same network without convolutions, which is given what they make as an observation.
  policy::PolicySpec spec = CnnSpec({9, 8, 2}, {{6, 3, 2}});
  spec.actor.hidden_sizes = {};
  spec.actor.core = {policy::CoreKind::kGru, 12, 1};
  spec.sequence_length = 4;
  spec.agent_id_size = kCnnAgents;
  const auto actor = MakeCnnActor(spec);
  policy::PolicySpec flat = spec;
  flat.observation_space = *space::Space::Box(-9, 9, {4 * 3 * 6});
  flat.actor.encoder = policy::EncoderKind::kMlp;
  flat.actor.conv_layers = {};
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  auto weights = std::make_shared<policy::WeightSnapshot>();
  weights->id = flat.id;
  const policy::ParameterLayout flat_layout = policy::ParameterLayout::For(flat);
  weights->actor.resize(static_cast<size_t>(flat_layout.acting_size()));
  for (const policy::ParameterEntry& entry : flat_layout.entries()) {
    if (entry.name.rfind("actor.", 0) != 0) continue;
    const policy::ParameterEntry& from = *layout.Find(entry.name);
    ASSERT_EQ(from.shape, entry.shape) << entry.name;
    std::copy_n(actor->weights()->actor.begin() + from.offset, entry.count, weights->actor.begin() + entry.offset);
  }
  auto reader = *Actor::Create(flat, 3, GetParam());
  ASSERT_EQ(reader->SetWeights(weights), absl::OkStatus());

  // What the convolutions make, by their definition.
  constexpr int64_t kRows = 53;
  CnnBatch batch(spec, kRows);
  std::vector<float> seen;
  const float* const weight = actor->weights()->actor.data() + layout.Find("actor.conv.0.weight")->offset;
  const float* const bias = actor->weights()->actor.data() + layout.Find("actor.conv.0.bias")->offset;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t row = 0; row < 4; ++row) {
      for (int64_t column = 0; column < 3; ++column) {
        for (int64_t o = 0; o < 6; ++o) {
          double sum = bias[o];
          for (int64_t c = 0; c < 2; ++c) {
            for (int64_t k = 0; k < 9; ++k) {
              sum += batch.At(r * 144 + ((row * 2 + k / 3) * 8 + column * 2 + k % 3) * 2 + c) *
                     weight[(o * 2 + c) * 9 + k];
            }
          }
          seen.push_back(static_cast<float>(std::tanh(sum)));
        }
      }
    }
  }
  std::vector<float> state(static_cast<size_t>(kRows * 12), 0.0f);
  for (int decision = 0; decision < 3; ++decision) {
    std::vector<float> got(kRows * kCnnActions), want(kRows * kCnnActions);
    ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(got)).ok());
    const ActInput input = {kRows, seen.data(), nullptr, batch.keys.data(), false, state.data(), state.data()};
    ASSERT_TRUE(reader->Forward(input, absl::MakeSpan(want)).ok());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << decision;
    for (size_t i = 0; i < state.size(); ++i) ASSERT_NEAR(batch.state[i], state[i], 2e-5) << decision;
  }
}

TEST_P(ActorCnnTest, NewWeightsTakeEffect) {
  const policy::PolicySpec spec = CnnSpec({12, 12, 1}, {{8, 3, 2}});
  const auto actor = MakeCnnActor(spec);
  const auto next = CnnWeights(spec, 5);
  ASSERT_TRUE(actor->SetWeights(next).ok());
  CnnBatch batch(spec, 2);
  std::vector<float> got(2 * kCnnActions);
  ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(got)).ok());
  const std::vector<double> want = CnnInDouble(spec, *next, batch, 1);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[kCnnActions + i], want[i], 1e-5);
}

TEST_P(ActorCnnTest, ActsAndSaysTheLogProbabilityOfWhatItDid) {
  const policy::PolicySpec spec = CnnSpec({12, 12, 1}, {{8, 3, 2}});
  const auto actor = MakeCnnActor(spec);
  CnnBatch batch(spec, 30);
  std::vector<space::ActionWord> actions(30);
  std::vector<float> logp(30), logits(30 * kCnnActions);
  ASSERT_TRUE(actor->Act(batch.Input(), actions.data(), logp.data()).ok());
  ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(logits)).ok());
  for (size_t r = 0; r < 30; ++r) {
    double total = 0;
    for (size_t i = 0; i < kCnnActions; ++i) total += std::exp(static_cast<double>(logits[r * kCnnActions + i]));
    const double chosen = logits[r * kCnnActions + static_cast<size_t>(actions[r].i32)];
    EXPECT_NEAR(logp[r], chosen - std::log(total), 1e-5);
  }
}

}  // namespace
}  // namespace troupe::inference
