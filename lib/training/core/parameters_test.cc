#include "lib/training/core/parameters.h"

#include <cmath>
#include <string>
#include <vector>

#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

policy::PolicySpec Spec() {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.action_space = *space::Space::Box(-1, 1, {2});
  spec.actor.hidden_sizes = {16, 8};
  spec.mutable_critic()->hidden_sizes = {8};
  spec.initial_log_std = -0.5;
  return spec;
}

/// gain^2 x identity is what W W^T (or W^T W, whichever is smaller) must be.
void ExpectOrthogonal(const FlatParameters& parameters, const std::string& name, double gain) {
  const policy::ParameterEntry* entry = parameters.layout().Find(name);
  ASSERT_NE(entry, nullptr) << name;
  const int64_t rows = entry->shape[0];
  const int64_t columns = entry->shape[1];
  const auto at = [&](int64_t r, int64_t c) {
    return static_cast<double>(parameters.values()[static_cast<size_t>(entry->offset + r * columns + c)]);
  };
  const bool by_rows = rows <= columns;
  const int64_t vectors = by_rows ? rows : columns;
  for (int64_t a = 0; a < vectors; ++a) {
    for (int64_t b = 0; b < vectors; ++b) {
      double dot = 0;
      for (int64_t k = 0; k < (by_rows ? columns : rows); ++k)
        dot += by_rows ? at(a, k) * at(b, k) : at(k, a) * at(k, b);
      EXPECT_NEAR(dot, a == b ? gain * gain : 0.0, 1e-5) << name << " " << a << " " << b;
    }
  }
}

void ExpectBiasesZero(const FlatParameters& parameters) {
  int biases = 0;
  for (const policy::ParameterEntry& entry : parameters.layout().entries()) {
    if (entry.name.find("bias") == std::string::npos) continue;
    ++biases;
    for (int64_t i = entry.offset; i < entry.offset + entry.count; ++i) {
      EXPECT_EQ(parameters.values()[static_cast<size_t>(i)], 0.0f) << entry.name;
    }
  }
  EXPECT_EQ(biases, 3 + 2 + 1 + 4) << "layers and cores of actor and critic";
}

TEST(ParametersTest, LayersAreOrthogonalWithTheirGains) {
  const policy::PolicySpec spec = Spec();
  const FlatParameters parameters = InitialParameters(spec, 7);
  ExpectOrthogonal(parameters, "actor.0.weight", 5.0 / 3.0);
  ExpectOrthogonal(parameters, "actor.1.weight", 5.0 / 3.0);
  ExpectOrthogonal(parameters, "actor.2.weight", 0.01);
  ExpectOrthogonal(parameters, "critic.0.weight", 5.0 / 3.0);
  ExpectOrthogonal(parameters, "critic.1.weight", 1.0);
}

TEST(ParametersTest, ReluGain) {
  policy::PolicySpec spec = Spec();
  spec.SetActivation(policy::Activation::kRelu);
  ExpectOrthogonal(InitialParameters(spec, 7), "actor.0.weight", std::sqrt(2.0));
}

// As MAPPO's authors: all gates' rows of a matrix together, with gain 1.
TEST(ParametersTest, MatricesOfACoreAreOrthogonal) {
  policy::PolicySpec spec = policy::SmallSpecWithCoresForTesting(policy::CoreKind::kGru, policy::CoreKind::kLstm);
  spec.actor.output_gain = 0.25;
  spec.mutable_critic()->output_gain = 0.5;
  const FlatParameters parameters = InitialParameters(spec, 7);
  ExpectOrthogonal(parameters, "actor.0.weight", 5.0 / 3.0);
  ExpectOrthogonal(parameters, "actor.core.weight_ih_l0", 1.0);
  ExpectOrthogonal(parameters, "actor.core.weight_hh_l0", 1.0);
  ExpectOrthogonal(parameters, "actor.1.weight", 5.0 / 3.0);
  ExpectOrthogonal(parameters, "actor.2.weight", 0.25);
  for (const char* name : {"weight_ih_l0", "weight_hh_l0", "weight_ih_l1", "weight_hh_l1"}) {
    ExpectOrthogonal(parameters, std::string("critic.core.") + name, 1.0);
  }
  ExpectOrthogonal(parameters, "critic.0.weight", 0.5);
  ExpectBiasesZero(parameters);
}

TEST(ParametersTest, BiasesGapsAndLogStd) {
  const FlatParameters parameters = InitialParameters(Spec(), 7);
  std::vector<bool> named(static_cast<size_t>(parameters.size()), false);
  for (const policy::ParameterEntry& entry : parameters.layout().entries()) {
    for (int64_t i = entry.offset; i < entry.offset + entry.count; ++i) {
      named[static_cast<size_t>(i)] = true;
      if (entry.name.find("weight") != std::string::npos) continue;
      EXPECT_EQ(parameters.values()[static_cast<size_t>(i)], entry.name == "actor.log_std" ? -0.5f : 0.0f)
          << entry.name;
    }
  }
  for (size_t i = 0; i < named.size(); ++i) {
    if (named[i]) continue;
    EXPECT_EQ(parameters.values()[i], 0.0f) << "gap at " << i;
  }
}

TEST(ParametersTest, AFunctionOfSeedAndPolicy) {
  const auto values = [](const policy::PolicySpec& spec, uint64_t seed) {
    const FlatParameters parameters = InitialParameters(spec, seed);
    return std::vector<float>(parameters.values().begin(), parameters.values().end());
  };
  policy::PolicySpec other = Spec();
  other.id = policy::PolicyId("q");
  EXPECT_EQ(values(Spec(), 7), values(Spec(), 7));
  EXPECT_NE(values(Spec(), 7), values(Spec(), 8));
  EXPECT_NE(values(Spec(), 7), values(other, 7));
}

}  // namespace
}  // namespace troupe::training
