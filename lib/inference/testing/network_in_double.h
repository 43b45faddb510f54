#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
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

inline constexpr int64_t kActionsInTest = 5;
inline constexpr int64_t kAgentsInTest = 3;  // of whose slots rows are, in turn

inline base::PhiloxSequence RandomInTest(uint32_t n) {
  return base::PhiloxSequence(base::PhiloxKey::Make(31, base::RandomStream::kTest), {n, 0, 0, 0});
}

/// An actor's weights, as large as keep a layer's outputs about as large as its inputs.
inline std::shared_ptr<policy::WeightSnapshot> WeightsInTest(const policy::PolicySpec& spec, uint32_t seed = 1) {
  auto weights = std::make_shared<policy::WeightSnapshot>();
  weights->id = spec.id;
  weights->version = {1, 5};
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  weights->actor.resize(static_cast<size_t>(layout.acting_size()));
  base::PhiloxSequence random = RandomInTest(seed);
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
struct RowsInTest {
  RowsInTest(const policy::PolicySpec& spec, int64_t rows_, uint32_t seed = 2)
      : rows(rows_),
        size(spec.observation_size()),
        scaling(spec.observation_scaling()),
        state(static_cast<size_t>(rows_ * spec.actor_state_size()), 0.0f) {
    base::PhiloxSequence random = RandomInTest(seed);
    const bool of_bytes = spec.observation_space.flat_dtype() == tensor::DType::kUint8;
    std::vector<float> row(static_cast<size_t>(size));
    for (int64_t r = 0; r < rows; ++r) {
      spec.observation_space.SampleFlat(random, absl::MakeSpan(row));
      if (of_bytes) {
        bytes.insert(bytes.end(), row.begin(), row.end());
      } else {
        floats.insert(floats.end(), row.begin(), row.end());
      }
      keys.push_back({base::EnvId(static_cast<uint32_t>(r)), 0,
                      base::AgentSlot(static_cast<int32_t>(r % kAgentsInTest)), static_cast<uint32_t>(r)});
    }
  }
  const void* obs() const { return bytes.empty() ? static_cast<const void*>(floats.data()) : bytes.data(); }
  const void* Row(int64_t r) const {
    return bytes.empty() ? static_cast<const void*>(floats.data() + r * size) : bytes.data() + r * size;
  }
  /// A number as networks read it.
  double At(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    const double number = bytes.empty() ? static_cast<double>(floats[at]) : bytes[at];
    if (scaling.identity()) return number;
    const size_t element = scaling.is_uniform() ? 0 : at % static_cast<size_t>(size);
    return (number - scaling.offset[element]) * scaling.scale[element];
  }
  ActInput Input() { return {rows, obs(), nullptr, keys.data(), false, state.data(), state.data()}; }

  const int64_t rows;
  const int64_t size;  // of a row
  const space::RowScaling scaling;
  std::vector<uint8_t> bytes;
  std::vector<float> floats, state;
  std::vector<RowKey> keys;
};

/// An actor without a core by the definitions of torch.nn.Conv2d, Linear and LayerNorm: its parameters by their names.
class NetworkInDouble {
 public:
  using Numbers = std::vector<double>;

  NetworkInDouble(const policy::PolicySpec& spec, const policy::WeightSnapshot& weights)
      : spec_(spec), weights_(weights), layout_(policy::ParameterLayout::For(spec)) {}

  /// What convolutions or encoders of leaves make of the observation of row `r`, or itself.
  Numbers Encoded(const RowsInTest& batch, int64_t r) const {
    Numbers x;
    for (int64_t i = 0; i < batch.size; ++i) x.push_back(batch.At(r * batch.size + i));
    if (spec_.actor.encoder == policy::EncoderKind::kCnn)
      return Convolved("", spec_.actor.conv_layers, spec_.image(), x);
    if (spec_.actor.encoder != policy::EncoderKind::kLeaves) return x;
    Numbers joined;
    size_t next = 0;
    const std::vector<space::ObservationLeaf> leaves = space::ObservationLeaves(spec_.observation_space);
    for (size_t i = 0; i < leaves.size(); ++i) {
      const auto first = x.begin() + leaves[i].first;
      Numbers made(first, first + leaves[i].space.flat_size());
      if (next < spec_.actor.leaf_encoders.size() && spec_.actor.leaf_encoders[next].leaf == static_cast<int64_t>(i)) {
        made = EncodedLeaf(leaves[i].space, spec_.actor.leaf_encoders[next++], std::move(made));
      }
      joined.insert(joined.end(), made.begin(), made.end());
    }
    return joined;
  }

  /// The last layer's outputs of row `r`.
  Numbers Outputs(const RowsInTest& batch, int64_t r) const {
    Numbers x = Encoded(batch, r);
    for (int64_t s = 0; s < spec_.agent_id_size; ++s) {
      x.push_back(s == batch.keys[static_cast<size_t>(r)].slot.value() ? 1 : 0);
    }
    for (size_t l = 0; l < spec_.actor.num_layers(); ++l) x = Linear("", l, x, l + 1 < spec_.actor.num_layers());
    return x;
  }

 private:
  const float* At(const std::string& name) const {
    return weights_.actor.data() + layout_.Find(absl::StrCat("actor.", name))->offset;
  }

  Numbers EncodedLeaf(const space::Space& leaf, const policy::LeafEncoder& encoder, Numbers x) const {
    const std::string stem = absl::StrCat("leaf.", encoder.leaf, ".");
    const bool of_bytes = leaf.kind() == space::SpaceKind::kBox && leaf.dtype() == tensor::DType::kUint8;
    if (of_bytes && spec_.bytes_by_255 && !spec_.normalize_observations) {
      for (double& value : x) value /= 255;
    }
    x = Convolved(stem, encoder.conv_layers, space::ImageOf(leaf), std::move(x));
    for (size_t l = 0; l < encoder.hidden_sizes.size(); ++l) x = Linear(stem, l, x, true);
    return x;
  }

  Numbers Convolved(const std::string& stem, const std::vector<policy::ConvLayer>& layers, policy::ImageShape image,
                    Numbers x) const {
    for (size_t l = 0; l < layers.size(); ++l) {
      x = ConvolvedOnce(absl::StrCat(stem, "conv.", l), layers[l], image, x);
      image = layers[l].OutputOf(image);
    }
    return x;
  }

  Numbers ConvolvedOnce(const std::string& name, const policy::ConvLayer& layer, const policy::ImageShape& image,
                        const Numbers& x) const {
    const float* const weight = At(name + ".weight");
    const float* const bias = At(name + ".bias");
    const policy::ImageShape made = layer.OutputOf(image);
    Numbers y;
    for (int64_t place = 0; place < made.size(); ++place) {
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

/// What holds for every network that encodes its observation, on each back end.
class EncodedActorTest : public BackendTest {
 protected:
  std::unique_ptr<Actor> MakeActor(const policy::PolicySpec& spec,
                                   std::shared_ptr<policy::WeightSnapshot> weights = nullptr) const {
    auto actor = Actor::Create(spec, 3, GetParam());
    EXPECT_TRUE(actor.ok()) << actor.status();
    EXPECT_EQ((*actor)->SetWeights(weights == nullptr ? WeightsInTest(spec) : std::move(weights)), absl::OkStatus());
    return *std::move(actor);
  }

  static std::vector<float> OutputsOf(Actor* actor, const ActInput& input) {
    std::vector<float> outputs(static_cast<size_t>(input.rows * kActionsInTest));
    EXPECT_EQ(actor->Forward(input, absl::MakeSpan(outputs)), absl::OkStatus());
    return outputs;
  }

  /// `as_defined`: what the definition reads in the place of `batch`.
  static void ExpectTheDefinition(Actor* actor, RowsInTest batch, const RowsInTest& as_defined, double absolute,
                                  double relative) {
    const std::vector<float> got = OutputsOf(actor, batch.Input());
    const NetworkInDouble definition(actor->spec(), *actor->weights());
    for (int64_t r = 0; r < batch.rows; ++r) {
      const NetworkInDouble::Numbers want = definition.Outputs(as_defined, r);
      ASSERT_EQ(want.size(), static_cast<size_t>(kActionsInTest));
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[static_cast<size_t>(r * kActionsInTest) + i], want[i], absolute + relative * std::abs(want[i]))
            << "row " << r << " of " << batch.rows << ", output " << i;
      }
    }
  }
  void ExpectTheDefinition(const policy::PolicySpec& spec, int64_t rows, uint32_t seed = 2) const {
    const RowsInTest batch(spec, rows, seed);
    ExpectTheDefinition(MakeActor(spec).get(), batch, batch, 1e-5, 1e-5);
  }

  void ExpectARowDoesNotDependOnTheOthers(const policy::PolicySpec& spec, int64_t rows) const {
    const auto actor = MakeActor(spec);
    RowsInTest batch(spec, rows);
    const std::vector<float> all = OutputsOf(actor.get(), batch.Input());
    for (int64_t r = 0; r < batch.rows; ++r) {
      const std::vector<float> alone =
          OutputsOf(actor.get(), {1, batch.Row(r), nullptr, &batch.keys[static_cast<size_t>(r)]});
      for (size_t i = 0; i < alone.size(); ++i) {
        const float got = all[static_cast<size_t>(r * kActionsInTest) + i];
        if (GetParam() == Backend::kEigen) {
          ASSERT_NEAR(alone[i], got, 1e-5f);
        } else {
          ASSERT_EQ(alone[i], got) << r;
        }
      }
    }
  }

  /// `spec`, with a core, equals the same network without an encoder, which is given what that makes.
  void ExpectACoreReadsWhatWasMade(const policy::PolicySpec& spec, int64_t made) const {
    const auto actor = MakeActor(spec);
    policy::PolicySpec flat = spec;
    flat.observation_space = *space::Space::Box(-9, 9, {made});
    flat.actor.encoder = policy::EncoderKind::kMlp;
    flat.actor.conv_layers = {};
    flat.actor.leaf_encoders = {};
    const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
    const policy::ParameterLayout flat_layout = policy::ParameterLayout::For(flat);
    auto weights = std::make_shared<policy::WeightSnapshot>();
    weights->id = flat.id;
    weights->actor.resize(static_cast<size_t>(flat_layout.acting_size()));
    for (const policy::ParameterEntry& entry : flat_layout.entries()) {
      if (entry.offset >= flat_layout.acting_size()) continue;
      const policy::ParameterEntry& from = *layout.Find(entry.name);
      ASSERT_EQ(from.shape, entry.shape) << entry.name;
      std::copy_n(actor->weights()->actor.begin() + from.offset, entry.count, weights->actor.begin() + entry.offset);
    }
    const auto reader = MakeActor(flat, weights);

    RowsInTest batch(spec, 53);
    RowsInTest seen(flat, batch.rows);
    const NetworkInDouble definition(spec, *actor->weights());
    for (int64_t r = 0; r < batch.rows; ++r) {
      const NetworkInDouble::Numbers row = definition.Encoded(batch, r);
      ASSERT_EQ(static_cast<int64_t>(row.size()), made);
      std::copy(row.begin(), row.end(), seen.floats.begin() + r * made);
    }
    for (int decision = 0; decision < 3; ++decision) {
      const std::vector<float> got = OutputsOf(actor.get(), batch.Input());
      const std::vector<float> want = OutputsOf(reader.get(), seen.Input());
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << decision;
      for (size_t i = 0; i < seen.state.size(); ++i) ASSERT_NEAR(batch.state[i], seen.state[i], 2e-5) << decision;
    }
  }

  void ExpectNewWeightsTakeEffect(const policy::PolicySpec& spec) const {
    const auto actor = MakeActor(spec);
    ASSERT_EQ(actor->SetWeights(WeightsInTest(spec, 5)), absl::OkStatus());
    const RowsInTest batch(spec, 2);
    ExpectTheDefinition(actor.get(), batch, batch, 1e-5, 0);
  }
};

}  // namespace troupe::inference
