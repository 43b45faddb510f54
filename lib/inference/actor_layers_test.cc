// Actors whose hidden layers are normalized, and every activation with and without: random specs against the definition
// (torch.nn.Linear, LayerNorm, GRU, LSTM) in double, for every back end.

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
#include <gtest/gtest.h>

namespace troupe::inference {
namespace {

using Doubles = std::vector<double>;

base::PhiloxSequence LayersRandom(uint32_t a, uint32_t b) {
  return base::PhiloxSequence(base::PhiloxKey::Make(23, base::RandomStream::kTest), {a, b, 0, 0});
}

/// An actor by its definition.
class LayersInDouble {
 public:
  LayersInDouble(const policy::PolicySpec& spec, const policy::WeightSnapshot& weights)
      : network_(spec.actor), weights_(weights), layout_(policy::ParameterLayout::For(spec)) {}

  /// The last layer's outputs of a row; what is remembered is replaced.
  Doubles Run(Doubles x, Doubles* memory) const {
    size_t layer = 0;
    for (; layer < network_.hidden_sizes.size(); ++layer) x = Hidden(x, layer);
    const auto size = static_cast<size_t>(network_.core.size);
    for (int64_t l = 0; l < network_.core.layers; ++l) {
      const size_t of_layer = memory->size() / static_cast<size_t>(network_.core.layers);
      x = Core(x, l, memory->data() + static_cast<size_t>(l) * of_layer, size);
    }
    for (; layer + 1 < network_.num_layers(); ++layer) x = Hidden(x, layer);
    return Product(x, absl::StrCat("actor.", layer, ".weight"), absl::StrCat("actor.", layer, ".bias"));
  }

 private:
  const float* Numbers(const std::string& name, int64_t count) const {
    const policy::ParameterEntry* const entry = layout_.Find(name);
    if (entry == nullptr || entry->count != count) {
      ADD_FAILURE() << name << " is not there with " << count << " numbers";
      return nullptr;
    }
    return weights_.actor.data() + entry->offset;
  }
  Doubles Product(const Doubles& x, const std::string& weight, const std::string& bias) const {
    const int64_t rows = layout_.Find(weight)->shape[0];
    const auto in = static_cast<int64_t>(x.size());
    const float* const w = Numbers(weight, rows * in);
    const float* const b = Numbers(bias, rows);
    Doubles y;
    for (int64_t o = 0; o < rows; ++o) {
      double sum = b[o];
      for (int64_t k = 0; k < in; ++k) sum += x[static_cast<size_t>(k)] * w[o * in + k];
      y.push_back(sum);
    }
    return y;
  }
  Doubles Hidden(const Doubles& x, size_t layer) const {
    Doubles y = Product(x, absl::StrCat("actor.", layer, ".weight"), absl::StrCat("actor.", layer, ".bias"));
    if (network_.layer_norm) {
      const auto n = static_cast<double>(y.size());
      const float* const scale = Numbers(absl::StrCat("actor.norm.", layer, ".weight"), static_cast<int64_t>(y.size()));
      const float* const shift = Numbers(absl::StrCat("actor.norm.", layer, ".bias"), static_cast<int64_t>(y.size()));
      double mean = 0, variance = 0;
      for (const double value : y) mean += value / n;
      for (const double value : y) variance += (value - mean) * (value - mean) / n;
      for (size_t i = 0; i < y.size(); ++i) y[i] = (y[i] - mean) / std::sqrt(variance + 1e-5) * scale[i] + shift[i];
    }
    for (double& value : y) value = ActivationInDouble(network_.activation, value);
    return y;
  }
  Doubles Core(const Doubles& x, int64_t layer, double* h, size_t size) const {
    const auto product = [&](const Doubles& of, const char* part) {
      return Product(of, absl::StrCat("actor.core.weight_", part, "_l", layer),
                     absl::StrCat("actor.core.bias_", part, "_l", layer));
    };
    const Doubles gi = product(x, "ih");
    const Doubles gh = product(Doubles(h, h + size), "hh");
    const bool is_gru = network_.core.kind == policy::CoreKind::kGru;
    for (size_t i = 0; i < size; ++i) {
      const auto sum = [&](size_t gate) { return gi[gate * size + i] + gh[gate * size + i]; };
      if (is_gru) {
        const double fresh = std::tanh(gi[2 * size + i] + SigmoidInDouble(sum(0)) * gh[2 * size + i]);
        h[i] = (1 - SigmoidInDouble(sum(1))) * fresh + SigmoidInDouble(sum(1)) * h[i];
      } else {
        double& cell = h[size + i];
        cell = SigmoidInDouble(sum(1)) * cell + SigmoidInDouble(sum(0)) * std::tanh(sum(2));
        h[i] = SigmoidInDouble(sum(3)) * std::tanh(cell);
      }
    }
    return Doubles(h, h + size);
  }

  const policy::NetworkSpec& network_;
  const policy::WeightSnapshot& weights_;
  const policy::ParameterLayout layout_;
};

policy::PolicySpec RandomLayers(uint32_t number) {
  base::PhiloxSequence random = LayersRandom(number, 0);
  const auto below = [&random](uint32_t n) { return static_cast<int64_t>(random.Below(n)); };
  const auto sizes = [&](int64_t fewest, uint32_t more) {
    std::vector<int64_t> layers(static_cast<size_t>(fewest + below(more)));
    for (int64_t& size : layers) size = 1 + below(70);
    return layers;
  };
  policy::PolicySpec spec;
  spec.id = policy::PolicyId("layers");
  spec.observation_space = *space::Space::Box(-10, 10, {1 + below(20)});
  spec.action_space = *space::Space::Discrete(1 + below(30));
  spec.agent_id_size = below(2) * 3;
  spec.actor.activation = static_cast<policy::Activation>(1 + number % 7);
  spec.actor.layer_norm = below(3) > 0;
  spec.actor.hidden_sizes = sizes(1, 3);
  if (below(2) == 0) return spec;
  spec.actor.core = {below(2) == 0 ? policy::CoreKind::kGru : policy::CoreKind::kLstm, 1 + below(40), 1 + below(2)};
  spec.actor.hidden_sizes = sizes(0, 3);
  spec.actor.head_hidden_sizes = sizes(0, 3);
  spec.sequence_length = 4;
  return spec;
}

std::shared_ptr<policy::WeightSnapshot> RandomLayerWeights(const policy::PolicySpec& spec, uint32_t number) {
  auto weights = std::make_shared<policy::WeightSnapshot>();
  weights->id = spec.id;
  weights->version = {1, 5};
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  weights->actor.resize(static_cast<size_t>(layout.acting_size()));
  base::PhiloxSequence random = LayersRandom(number, 1);
  for (const policy::ParameterEntry& entry : layout.entries()) {
    if (entry.offset >= layout.acting_size()) continue;
    const bool scales =
        entry.name.find(".norm.") != std::string::npos && entry.name.find("weight") != std::string::npos;
    const double span = entry.shape.size() == 2 ? 1.5 / std::sqrt(static_cast<double>(entry.shape[1])) : 0.4;
    for (int64_t i = 0; i < entry.count; ++i) {
      weights->actor[static_cast<size_t>(entry.offset + i)] =
          static_cast<float>(random.Normal() * span + (scales ? 1 : 0));
    }
  }
  return weights;
}

class ActorLayersTest : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, ActorLayersTest, kBackends, BackendCaseName);

TEST_P(ActorLayersTest, RandomSpecsEqualTheDefinition) {
  int normed = 0;
  for (uint32_t number = 0; number < 70; ++number) {
    const policy::PolicySpec spec = RandomLayers(number);
    normed += spec.actor.layer_norm ? 1 : 0;
    SCOPED_TRACE(absl::StrCat("number ", number, ": ", spec.ToString()));
    const auto weights = RandomLayerWeights(spec, number);
    auto actor = *Actor::Create(spec, 3, GetParam());
    ASSERT_TRUE(actor->SetWeights(weights).ok());
    const LayersInDouble reference(spec, *weights);
    const auto inputs = static_cast<size_t>(spec.observation_size());
    const auto outputs = static_cast<size_t>(spec.actor_output_size());
    const auto state_size = static_cast<size_t>(spec.actor_state_size());
    for (const size_t rows : {size_t{1}, size_t{3}, size_t{7}, size_t{60}}) {
      base::PhiloxSequence random = LayersRandom(number, 2);
      std::vector<float> obs(rows * inputs), state(rows * state_size), got(rows * outputs);
      for (float& value : obs) value = static_cast<float>(random.Normal());
      for (float& value : state) value = static_cast<float>(random.Uniform(-0.9, 0.9));
      std::vector<RowKey> keys(rows);
      for (size_t r = 0; r < rows; ++r) keys[r].slot = base::AgentSlot(static_cast<int32_t>(r % 3));
      const std::vector<float> before = state;
      const ActInput input = {
          static_cast<int64_t>(rows), obs.data(), nullptr, keys.data(), false, state.data(), state.data()};
      ASSERT_TRUE(actor->Forward(input, absl::MakeSpan(got)).ok());
      for (size_t r = 0; r < rows; ++r) {
        Doubles x(obs.begin() + static_cast<int64_t>(r * inputs), obs.begin() + static_cast<int64_t>((r + 1) * inputs));
        for (int64_t slot = 0; slot < spec.agent_id_size; ++slot) x.push_back(keys[r].slot.value() == slot ? 1 : 0);
        Doubles memory(before.begin() + static_cast<int64_t>(r * state_size),
                       before.begin() + static_cast<int64_t>((r + 1) * state_size));
        const Doubles want = reference.Run(x, &memory);
        for (size_t i = 0; i < outputs; ++i) {
          ASSERT_NEAR(got[r * outputs + i], want[i], 1e-5 * (1 + std::abs(want[i]))) << rows << " rows, row " << r;
        }
        for (size_t i = 0; i < state_size; ++i) {
          ASSERT_NEAR(state[r * state_size + i], memory[i], 1e-5 * (1 + std::abs(memory[i]))) << rows << " rows";
        }
      }
    }
  }
  EXPECT_GT(normed, 30);
}

TEST_P(ActorLayersTest, ANormalizedRowDoesNotDependOnItsBatch) {
  policy::PolicySpec spec = RandomLayers(0);
  spec.actor.layer_norm = true;
  spec.actor.core = {};
  spec.actor.head_hidden_sizes.clear();
  spec.actor.hidden_sizes = {33, 64, 5};
  spec.sequence_length = 0;
  auto actor = *Actor::Create(spec, 3, GetParam());
  ASSERT_TRUE(actor->SetWeights(RandomLayerWeights(spec, 0)).ok());
  constexpr size_t kRows = 101;
  const auto inputs = static_cast<size_t>(spec.observation_size());
  const auto outputs = static_cast<size_t>(spec.actor_output_size());
  base::PhiloxSequence random = LayersRandom(0, 2);
  std::vector<float> obs(kRows * inputs), all(kRows * outputs);
  for (float& value : obs) value = static_cast<float>(random.Normal());
  const std::vector<RowKey> keys(kRows, RowKey{base::EnvId(0), 0, base::AgentSlot(0), 0});
  ASSERT_TRUE(actor->Forward({kRows, obs.data(), nullptr, keys.data()}, absl::MakeSpan(all)).ok());
  for (size_t rows = 1; rows < 60; ++rows) {
    std::vector<float> some(rows * outputs);
    const size_t first = kRows - rows;
    const ActInput input = {static_cast<int64_t>(rows), obs.data() + first * inputs, nullptr, keys.data()};
    ASSERT_TRUE(actor->Forward(input, absl::MakeSpan(some)).ok());
    for (size_t i = 0; i < some.size(); ++i) {
      // Eigen blocks its sums by the shape.
      ASSERT_NEAR(some[i], all[first * outputs + i], GetParam() == Backend::kEigen ? 1e-5f : 0.0f) << rows;
    }
  }
}

// The variance of a row of equal numbers is 0: epsilon keeps it finite, and what is left is the shift.
TEST_P(ActorLayersTest, ARowOfEqualNumbersBecomesItsShift) {
  policy::PolicySpec spec = RandomLayers(1);
  spec.actor.activation = policy::Activation::kIdentity;
  spec.actor.layer_norm = true;
  spec.actor.core = {};
  spec.actor.head_hidden_sizes.clear();
  spec.actor.hidden_sizes = {3};
  spec.agent_id_size = 0;
  spec.sequence_length = 0;
  spec.action_space = *space::Space::Discrete(1);
  const auto weights = RandomLayerWeights(spec, 0);
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const auto set = [&](const char* name, float value) {
    const policy::ParameterEntry& entry = *layout.Find(name);
    std::fill_n(weights->actor.begin() + entry.offset, entry.count, value);
  };
  set("actor.0.weight", 0);
  set("actor.0.bias", 5);
  set("actor.norm.0.weight", 100);
  set("actor.norm.0.bias", 0.25f);
  set("actor.1.weight", 2);
  set("actor.1.bias", 1);
  auto actor = *Actor::Create(spec, 3, GetParam());
  ASSERT_TRUE(actor->SetWeights(weights).ok());
  const std::vector<float> obs(static_cast<size_t>(spec.observation_size()), 1.0f);
  const RowKey key = {};
  float got = 0;
  ASSERT_TRUE(actor->Forward({1, obs.data(), nullptr, &key}, absl::MakeSpan(&got, 1)).ok());
  EXPECT_EQ(got, 1 + 3 * 2 * 0.25f);
}

}  // namespace
}  // namespace troupe::inference
