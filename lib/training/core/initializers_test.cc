// First weights by each initializer: ranges and moments of what it draws from.

#include <algorithm>
#include <cmath>
#include <string>

#include "lib/policy/testing.h"
#include "lib/training/core/parameters.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::Initializer;

/// Layers that are large enough for moments.
policy::PolicySpec WideSpec(Initializer initializer) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.observation_space = *space::Space::Box(-1, 1, {100});
  spec.action_space = *space::Space::Box(-1, 1, {60});
  spec.actor.hidden_sizes = {300};
  spec.actor.core = {policy::CoreKind::kGru, 64, 1};
  spec.actor.head_hidden_sizes = {80};
  spec.mutable_critic()->hidden_sizes = {200};
  spec.mutable_critic()->core = {policy::CoreKind::kLstm, 50, 1};
  spec.sequence_length = 5;
  spec.initial_log_std = -0.5;
  spec.actor.initializer = spec.mutable_critic()->initializer = initializer;
  spec.actor.output_gain = 0.25;
  return spec;
}

struct Numbers {
  double least = 1e9, most = -1e9, mean = 0, variance = 0;
};
Numbers NumbersOf(const FlatParameters& parameters, const std::string& name) {
  const policy::ParameterEntry* const entry = parameters.layout().Find(name);
  Numbers numbers;
  if (entry == nullptr) {
    ADD_FAILURE() << name;
    return numbers;
  }
  for (int64_t i = entry->offset; i < entry->offset + entry->count; ++i) {
    const double value = parameters.values()[static_cast<size_t>(i)];
    numbers.least = std::min(numbers.least, value);
    numbers.most = std::max(numbers.most, value);
    numbers.mean += value / static_cast<double>(entry->count);
    numbers.variance += value * value / static_cast<double>(entry->count);
  }
  return numbers;
}

/// That the entry's numbers are uniform on [-bound, bound]: they fill it, with its mean and variance.
void ExpectUniform(const FlatParameters& parameters, const std::string& name, double bound) {
  const Numbers numbers = NumbersOf(parameters, name);
  const auto count = static_cast<double>(parameters.layout().Find(name)->count);
  EXPECT_LE(numbers.most, bound) << name;
  EXPECT_GE(numbers.least, -bound) << name;
  // One in ten thousand draws of `count` numbers leaves a larger gap at an end.
  const double gap = 2 * bound * std::min(0.9, 10 / count);
  EXPECT_GE(numbers.most, bound - gap) << name;
  EXPECT_LE(numbers.least, -bound + gap) << name;
  EXPECT_NEAR(numbers.mean, 0, 4.5 * bound / std::sqrt(3 * count)) << name;
  // The variance of x^2 is 4/45 bound^4.
  EXPECT_NEAR(numbers.variance, bound * bound / 3, 4.5 * bound * bound * std::sqrt(4.0 / 45 / count)) << name;
}
void ExpectAll(const FlatParameters& parameters, const std::string& name, double value) {
  const Numbers numbers = NumbersOf(parameters, name);
  EXPECT_EQ(numbers.least, static_cast<float>(value)) << name;
  EXPECT_EQ(numbers.most, static_cast<float>(value)) << name;
}

// torch.nn.Linear: kaiming_uniform_ with a = sqrt(5), which is 1 / sqrt(inputs), for weights and biases; torch.nn.GRU
// and LSTM: 1 / sqrt(units) for all of it.
TEST(InitializersTest, TorchIsUniformByInputsAndOfCoresByUnits) {
  const FlatParameters parameters = InitialParameters(WideSpec(Initializer::kTorch), 7);
  for (const char* part : {".weight", ".bias"}) {
    ExpectUniform(parameters, std::string("actor.0") + part, 1 / std::sqrt(100.0));
    ExpectUniform(parameters, std::string("actor.1") + part, 1 / std::sqrt(64.0));
    ExpectUniform(parameters, std::string("actor.2") + part, 1 / std::sqrt(80.0));
    ExpectUniform(parameters, std::string("critic.0") + part, 1 / std::sqrt(100.0));
  }
  ExpectUniform(parameters, "critic.1.weight", 1 / std::sqrt(50.0));
  for (const char* part : {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"}) {
    ExpectUniform(parameters, std::string("actor.core.") + part, 1 / std::sqrt(64.0));
    ExpectUniform(parameters, std::string("critic.core.") + part, 1 / std::sqrt(50.0));
  }
  ExpectAll(parameters, "actor.log_std", -0.5);
}

// torch.nn.init.xavier_uniform_: gain sqrt(6 / (inputs + outputs)).
TEST(InitializersTest, XavierIsUniformByInputsAndOutputs) {
  policy::PolicySpec spec = WideSpec(Initializer::kXavier);
  spec.mutable_critic()->activation = policy::Activation::kRelu;
  const FlatParameters parameters = InitialParameters(spec, 7);
  ExpectUniform(parameters, "actor.0.weight", 5.0 / 3 * std::sqrt(6.0 / 400));
  ExpectUniform(parameters, "actor.1.weight", 5.0 / 3 * std::sqrt(6.0 / (64 + 80)));
  ExpectUniform(parameters, "actor.2.weight", 0.25 * std::sqrt(6.0 / (80 + 60)));
  ExpectUniform(parameters, "critic.0.weight", std::sqrt(2.0) * std::sqrt(6.0 / 300));
  ExpectUniform(parameters, "actor.core.weight_ih_l0", std::sqrt(6.0 / (3 * 64 + 300)));
  ExpectUniform(parameters, "critic.core.weight_hh_l0", std::sqrt(6.0 / (4 * 50 + 50)));
  for (const char* name : {"actor.0.bias", "actor.2.bias", "critic.core.bias_ih_l0", "critic.1.bias"}) {
    ExpectAll(parameters, name, 0);
  }
  ExpectAll(parameters, "actor.log_std", -0.5);
}

// Encoders of leaves are hidden layers and convolutions as others.
TEST(InitializersTest, EncodersOfLeavesBeginAsHiddenLayersDo) {
  policy::PolicySpec spec = WideSpec(Initializer::kXavier);
  spec.observation_space = *space::ParseSpace("Tuple(Box(0, 1, [12, 12, 3]), Box(-1, 1, [70]))");
  spec.actor.encoder = policy::EncoderKind::kLeaves;
  spec.actor.leaf_encoders = {{.leaf = 0, .conv_layers = {{20, 4, 2}}}, {.leaf = 1, .hidden_sizes = {50, 40}}};
  spec.actor.layer_norm = true;
  FlatParameters parameters = InitialParameters(spec, 7);
  ExpectUniform(parameters, "actor.leaf.0.conv.0.weight", 5.0 / 3 * std::sqrt(6.0 / (16 * (3 + 20))));
  ExpectUniform(parameters, "actor.leaf.1.0.weight", 5.0 / 3 * std::sqrt(6.0 / (70 + 50)));
  ExpectUniform(parameters, "actor.leaf.1.1.weight", 5.0 / 3 * std::sqrt(6.0 / (50 + 40)));
  ExpectAll(parameters, "actor.leaf.1.1.bias", 0);
  ExpectAll(parameters, "actor.leaf.1.norm.0.weight", 1);
  spec.actor.initializer = Initializer::kTorch;
  parameters = InitialParameters(spec, 7);
  ExpectUniform(parameters, "actor.leaf.0.conv.0.weight", 1 / std::sqrt(48.0));
  ExpectUniform(parameters, "actor.leaf.0.conv.0.bias", 1 / std::sqrt(48.0));
  ExpectUniform(parameters, "actor.leaf.1.1.weight", 1 / std::sqrt(50.0));
  ExpectUniform(parameters, "actor.leaf.1.1.bias", 1 / std::sqrt(50.0));
  ExpectAll(parameters, "actor.leaf.1.norm.1.bias", 0);
}

TEST(InitializersTest, NetworksHaveTheirOwnGainsAndInitializers) {
  policy::PolicySpec spec = WideSpec(Initializer::kXavier);
  spec.actor.hidden_gain = 0.5;
  spec.mutable_critic()->initializer = Initializer::kTorch;
  spec.mutable_critic()->hidden_gain = 7;
  spec.mutable_critic()->output_gain = 9;
  const FlatParameters parameters = InitialParameters(spec, 7);
  ExpectUniform(parameters, "actor.0.weight", 0.5 * std::sqrt(6.0 / 400));
  ExpectUniform(parameters, "actor.2.weight", 0.25 * std::sqrt(6.0 / (80 + 60)));
  ExpectUniform(parameters, "actor.core.weight_ih_l0", std::sqrt(6.0 / (3 * 64 + 300)));
  ExpectUniform(parameters, "critic.0.weight", 1 / std::sqrt(100.0));
  ExpectUniform(parameters, "critic.1.weight", 1 / std::sqrt(50.0));
  spec.mutable_critic()->initializer = Initializer::kXavier;
  ExpectUniform(InitialParameters(spec, 7), "critic.1.weight", 9 * std::sqrt(6.0 / 51));
}

// torch.nn.MultiheadAttention: xavier_uniform_ of all that projects in, out_proj as torch.nn.Linear, biases zero. Else
// the projections, which have no activation, have gain 1, and an embedding's layer that of hidden ones.
TEST(InitializersTest, AttentionBeginsAsTorchsOrWithGainOne) {
  policy::PolicySpec spec = policy::AttendingSpecForTesting();
  spec.joint_observation_size += 97;
  policy::NetworkSpec* const critic = spec.mutable_critic();
  critic->attention.observation_sizes = {3, 102};
  critic->attention.size = 60;
  critic->initializer = Initializer::kTorch;
  critic->hidden_gain = 0.5;
  ASSERT_TRUE(spec.Validate().ok()) << spec.Validate();
  FlatParameters parameters = InitialParameters(spec, 7);
  ExpectUniform(parameters, "critic.embedding.1.weight", 1 / std::sqrt(102.0));
  ExpectUniform(parameters, "critic.embedding.0.bias", 1 / std::sqrt(3.0));
  ExpectUniform(parameters, "critic.attention.in_proj_weight", std::sqrt(6.0 / (60 + 180)));
  ExpectUniform(parameters, "critic.attention.out_proj.weight", 1 / std::sqrt(60.0));
  ExpectAll(parameters, "critic.attention.in_proj_bias", 0);
  ExpectAll(parameters, "critic.attention.out_proj.bias", 0);
  critic->initializer = Initializer::kXavier;
  parameters = InitialParameters(spec, 7);
  ExpectUniform(parameters, "critic.embedding.1.weight", 0.5 * std::sqrt(6.0 / (102 + 60)));
  ExpectUniform(parameters, "critic.attention.in_proj_weight", std::sqrt(6.0 / (60 + 180)));
  ExpectUniform(parameters, "critic.attention.out_proj.weight", std::sqrt(6.0 / 120));
  ExpectAll(parameters, "critic.embedding.1.bias", 0);
  critic->initializer = Initializer::kOrthogonal;
  parameters = InitialParameters(spec, 7);
  EXPECT_NEAR(NumbersOf(parameters, "critic.attention.in_proj_weight").variance, 1.0 / 180, 1e-6) << "of unit columns";
  EXPECT_NEAR(NumbersOf(parameters, "critic.attention.out_proj.weight").variance, 1.0 / 60, 1e-6);
  EXPECT_NEAR(NumbersOf(parameters, "critic.embedding.1.weight").variance, 0.25 / 102, 1e-6);
}

TEST(InitializersTest, NormalizationBeginsAsNone) {
  for (const Initializer initializer : {Initializer::kOrthogonal, Initializer::kXavier, Initializer::kTorch}) {
    policy::PolicySpec spec = WideSpec(initializer);
    spec.actor.layer_norm = spec.mutable_critic()->layer_norm = true;
    const FlatParameters parameters = InitialParameters(spec, 7);
    for (const char* layer : {"actor.norm.0", "actor.norm.1", "critic.norm.0"}) {
      ExpectAll(parameters, std::string(layer) + ".weight", 1);
      ExpectAll(parameters, std::string(layer) + ".bias", 0);
    }
  }
}

// First and last numbers as they were before there were other initializers; to the last bits, which another compiler
// may round otherwise.
TEST(InitializersTest, TheDefaultsFirstWeightsAreWhatTheyWere) {
  policy::PolicySpec spec = policy::SmallSpecWithCoresForTesting(policy::CoreKind::kGru, policy::CoreKind::kLstm);
  spec.action_space = *space::Space::Box(-1, 1, {2});
  const FlatParameters parameters = InitialParameters(spec, 7);
  struct Recorded {
    const char* name;
    float first, last;
  };
  for (const Recorded& was : {Recorded{"actor.0.weight", -0.752915621f, -0.855074346f},
                              Recorded{"actor.core.weight_ih_l0", 0.016963182f, 0.0953006819f},
                              Recorded{"actor.core.weight_hh_l0", -0.167076498f, 0.232355163f},
                              Recorded{"actor.1.weight", -0.605911314f, -0.704777539f},
                              Recorded{"actor.2.weight", -0.00167863932f, -0.00118967902f},
                              Recorded{"critic.core.weight_ih_l0", -0.177078828f, 0.15891856f},
                              Recorded{"critic.core.weight_hh_l0", -0.39884764f, 0.356512368f},
                              Recorded{"critic.core.weight_ih_l1", -0.0585990213f, 0.40817681f},
                              Recorded{"critic.core.weight_hh_l1", 0.52068305f, 0.230700046f},
                              Recorded{"critic.0.weight", 0.0116968565f, -0.936556995f}}) {
    const policy::ParameterEntry& entry = *parameters.layout().Find(was.name);
    EXPECT_FLOAT_EQ(parameters.values()[static_cast<size_t>(entry.offset)], was.first) << was.name;
    EXPECT_FLOAT_EQ(parameters.values()[static_cast<size_t>(entry.offset + entry.count - 1)], was.last) << was.name;
  }
}

}  // namespace
}  // namespace troupe::training
