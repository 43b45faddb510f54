#include "lib/inference/actor.h"

#include <cmath>
#include <cstring>
#include <map>

#include "lib/base/philox.h"
#include "lib/inference/testing/backends.h"
#include "lib/inference/testing/in_double.h"
#include "lib/policy/parameter_layout.h"
#include <gtest/gtest.h>

namespace troupe::inference {
namespace {

using policy::Activation;
using policy::PolicySpec;
using space::ActionWord;
using space::Space;

PolicySpec MakeSpec(Space obs, Space action, std::vector<int64_t> hidden = {64, 64}) {
  PolicySpec spec;
  spec.id = policy::PolicyId("p");
  spec.observation_space = std::move(obs);
  spec.action_space = std::move(action);
  spec.actor.hidden_sizes = std::move(hidden);
  return spec;
}

base::PhiloxSequence TestRandom(uint32_t n) {
  return base::PhiloxSequence(base::PhiloxKey::Make(7, base::RandomStream::kTest), {n, 0, 0, 0});
}

std::shared_ptr<policy::WeightSnapshot> RandomWeights(const PolicySpec& spec, double scale = 1.0) {
  auto weights = std::make_shared<policy::WeightSnapshot>();
  weights->id = spec.id;
  weights->version = {1, 5};
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  weights->actor.resize(static_cast<size_t>(layout.acting_size()));
  base::PhiloxSequence random = TestRandom(1);
  for (const policy::ParameterEntry& entry : layout.entries()) {
    if (entry.offset >= layout.acting_size()) continue;
    const double fan_in = entry.shape.size() == 2 ? static_cast<double>(entry.shape[1]) : 16.0;
    for (int64_t i = 0; i < entry.count; ++i) {
      weights->actor[static_cast<size_t>(entry.offset + i)] =
          static_cast<float>(scale * random.Normal() / std::sqrt(fan_in));
    }
  }
  if (spec.normalize_observations) {
    for (int64_t i = 0; i < spec.observation_size(); ++i) {
      weights->observation_mean.push_back(static_cast<float>(random.Uniform(-0.5, 0.5)));
      weights->observation_inverse_std.push_back(static_cast<float>(random.Uniform(0.5, 8.0)));
    }
  }
  return weights;
}

std::unique_ptr<Actor> MakeActor(const PolicySpec& spec, Backend backend, double scale = 1.0, uint64_t seed = 3) {
  auto actor = Actor::Create(spec, seed, backend);
  EXPECT_TRUE(actor.ok()) << actor.status();
  EXPECT_TRUE((*actor)->SetWeights(RandomWeights(spec, scale)).ok());
  return *std::move(actor);
}

std::vector<RowKey> Keys(int64_t rows, int64_t slots) {
  std::vector<RowKey> keys;
  for (int64_t r = 0; r < rows; ++r) {
    keys.push_back({base::EnvId(static_cast<uint32_t>(r / 4)), static_cast<uint32_t>(r % 3),
                    base::AgentSlot(static_cast<int32_t>(r % slots)), static_cast<uint32_t>(r * 7)});
  }
  return keys;
}

std::vector<float> RandomRows(int64_t count, double span) {
  base::PhiloxSequence random = TestRandom(2);
  std::vector<float> rows(static_cast<size_t>(count));
  for (float& x : rows) x = static_cast<float>(random.Uniform(-span, span));
  return rows;
}

/// The actor by its definition, in double.
std::vector<double> ForwardInDouble(const PolicySpec& spec, const policy::WeightSnapshot& weights,
                                    const std::vector<float>& obs, const std::vector<RowKey>& keys) {
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const size_t obs_size = static_cast<size_t>(spec.observation_size());
  std::vector<double> outputs;
  for (size_t r = 0; r < keys.size(); ++r) {
    std::vector<double> x;
    for (size_t i = 0; i < obs_size; ++i) {
      double value = obs[r * obs_size + i];
      if (spec.normalize_observations) {
        value = (value - weights.observation_mean[i]) * weights.observation_inverse_std[i];
        value = std::min(std::max(value, -10.0), 10.0);
      }
      x.push_back(value);
    }
    for (int64_t s = 0; s < spec.agent_id_size; ++s) x.push_back(s == keys[r].slot.value() ? 1 : 0);
    const size_t num_layers = spec.actor.hidden_sizes.size() + 1;
    for (size_t l = 0; l < num_layers; ++l) {
      const policy::ParameterEntry& w = *layout.Find("actor." + std::to_string(l) + ".weight");
      const policy::ParameterEntry& b = *layout.Find("actor." + std::to_string(l) + ".bias");
      std::vector<double> y;
      for (int64_t o = 0; o < w.shape[0]; ++o) {
        double sum = weights.actor[static_cast<size_t>(b.offset + o)];
        for (size_t k = 0; k < x.size(); ++k)
          sum += x[k] * weights.actor[static_cast<size_t>(w.offset + o * w.shape[1]) + k];
        y.push_back(l + 1 < num_layers ? ActivationInDouble(spec.actor.activation, sum) : sum);
      }
      x = y;
    }
    outputs.insert(outputs.end(), x.begin(), x.end());
  }
  return outputs;
}

class ActorTest : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, ActorTest, kBackends, BackendCaseName);

TEST(FindKernelsTest, FindsWhatTheProcessorHasAndByDefaultTheWidest) {
  const auto expect = [](Backend backend, const char* name) {
    const absl::StatusOr<const KernelTable*> kernels = FindKernels(backend);
    if (name == nullptr) {
      EXPECT_EQ(kernels.status().code(), absl::StatusCode::kUnimplemented);
    } else {
      ASSERT_TRUE(kernels.ok()) << kernels.status();
      EXPECT_STREQ((*kernels)->name, name);
    }
  };
  const char* const avx2 = base::ProcessorHasAvx2() ? "avx2" : nullptr;
  const char* const avx512 = base::ProcessorHasAvx512() ? "avx512" : nullptr;
  expect(Backend::kEigen, "eigen");
  expect(Backend::kAvx2, avx2);
  expect(Backend::kAvx512, avx512);
  const char* const widest = avx512 != nullptr ? avx512 : avx2 != nullptr ? avx2 : "eigen";
  expect(Backend::kAuto, widest);
  const PolicySpec spec = MakeSpec(*Space::Box(-1, 1, {4}), *Space::Discrete(2));
  EXPECT_EQ((*Actor::Create(spec, 1))->backend_name(), widest) << "what nobody chose";
}

TEST_P(ActorTest, ForwardEqualsTheDefinitionForEveryActivation) {
  for (int a = 1; a <= 7; ++a) {
    PolicySpec spec = MakeSpec(*Space::Box(-10, 10, {18}), *Space::Discrete(5), {33, 70});
    spec.SetActivation(static_cast<Activation>(a));
    const auto actor = MakeActor(spec, GetParam());
    for (const int64_t rows : {1, 2, 5, 12, 49, 131}) {
      const std::vector<float> obs = RandomRows(rows * 18, 4);
      const std::vector<RowKey> keys = Keys(rows, 1);
      std::vector<float> got(static_cast<size_t>(rows * 5));
      ASSERT_TRUE(actor->Forward({rows, obs.data(), nullptr, keys.data()}, absl::MakeSpan(got)).ok());
      const std::vector<double> want = ForwardInDouble(spec, *actor->weights(), obs, keys);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 5e-6 * (1 + std::abs(want[i])))
            << policy::ActivationName(spec.actor.activation) << " rows " << rows;
      }
    }
  }
}

TEST_P(ActorTest, ActivationsHoldFarFromZero) {
  // A chain of single units with weight 1 shows the activation itself, also where exp would overflow.
  for (int a = 1; a <= 7; ++a) {
    PolicySpec spec = MakeSpec(*Space::Box(-1000, 1000, {1}), *Space::Box(-1, 1, {1}), {1});
    spec.SetActivation(static_cast<Activation>(a));
    auto weights = RandomWeights(spec, 0.0);
    const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
    weights->actor[static_cast<size_t>(layout.Find("actor.0.weight")->offset)] = 1;
    weights->actor[static_cast<size_t>(layout.Find("actor.1.weight")->offset)] = 1;
    auto actor = *Actor::Create(spec, 0, GetParam());
    ASSERT_TRUE(actor->SetWeights(weights).ok());
    std::vector<float> obs;
    for (float x = 1e-4f; x < 400; x *= 1.07f) {
      obs.push_back(x);
      obs.push_back(-x);
    }
    obs.push_back(0);
    const auto rows = static_cast<int64_t>(obs.size());
    std::vector<float> got(obs.size());
    const std::vector<RowKey> keys = Keys(rows, 1);
    ASSERT_TRUE(actor->Forward({rows, obs.data(), nullptr, keys.data()}, absl::MakeSpan(got)).ok());
    for (size_t i = 0; i < obs.size(); ++i) {
      const double want = ActivationInDouble(spec.actor.activation, obs[i]);
      ASSERT_NEAR(got[i], want, 1e-6 * (1 + std::abs(want)))
          << policy::ActivationName(spec.actor.activation) << " of " << obs[i];
    }
  }
}

TEST_P(ActorTest, NormalizesThenAppendsTheAgentId) {
  PolicySpec spec = MakeSpec(*Space::Box(-10, 10, {7}), *Space::Discrete(3), {16});
  spec.normalize_observations = true;
  spec.agent_id_size = 4;
  const auto actor = MakeActor(spec, GetParam());
  const std::vector<float> obs = RandomRows(40 * 7, 6);  // some reach the clip at 10
  const std::vector<RowKey> keys = Keys(40, 4);
  std::vector<float> got(40 * 3);
  ASSERT_TRUE(actor->Forward({40, obs.data(), nullptr, keys.data()}, absl::MakeSpan(got)).ok());
  const std::vector<double> want = ForwardInDouble(spec, *actor->weights(), obs, keys);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5);
}

TEST_P(ActorTest, Uint8ObservationsAreScaledByTheirBounds) {
  struct Case {
    std::string space;
    bool by_255;  // as before there were bounds
    float low, high;
  };
  for (const Case& each : {Case{"Box(0, 255, [9], uint8)", false, 0, 255}, Case{"Box(0, 1, [9], uint8)", false, 0, 1},
                           Case{"Box(4, 12, [9], uint8)", false, 4, 12}, Case{"Box(0, 1, [9], uint8)", true, 0, 255},
                           Case{"Box([1, 1, 1, 1, 1, 1, 1, 1, 1], [9, 9, 9, 9, 9, 9, 9, 9, 9], uint8)", false, 1, 9}}) {
    SCOPED_TRACE(each.space);
    PolicySpec spec = MakeSpec(*space::ParseSpace(each.space), *Space::Discrete(3), {16});
    spec.bytes_by_255 = each.by_255;
    const auto actor = MakeActor(spec, GetParam());
    std::vector<uint8_t> bytes;
    std::vector<float> floats;
    for (int i = 0; i < 9 * 20; ++i) {
      bytes.push_back(static_cast<uint8_t>(i * 37 % 13));
      floats.push_back((static_cast<float>(bytes.back()) - each.low) / (each.high - each.low));
    }
    const std::vector<RowKey> keys = Keys(20, 1);
    std::vector<float> got(20 * 3);
    ASSERT_TRUE(actor->Forward({20, bytes.data(), nullptr, keys.data()}, absl::MakeSpan(got)).ok());
    const std::vector<double> want = ForwardInDouble(spec, *actor->weights(), floats, keys);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5);
  }
}

TEST_P(ActorTest, SamplesFollowTheMaskedSoftmax) {
  // Two leaves, one narrower and one wider than a vector; the second's mask lies behind the first's.
  const PolicySpec base_spec = MakeSpec(*Space::Box(-1, 1, {4}), *Space::MultiDiscrete({5, 21}), {16});
  PolicySpec spec = base_spec;
  spec.has_action_mask = true;
  const auto actor = MakeActor(spec, GetParam(), 2.0);
  const int64_t rows = 20000;
  std::vector<float> obs;
  std::vector<uint8_t> mask;
  std::vector<RowKey> keys;
  for (int64_t r = 0; r < rows; ++r) {
    for (const float x : {0.3f, -0.9f, 0.5f, 0.1f}) obs.push_back(x);
    for (int c = 0; c < 26; ++c) mask.push_back(c == 1 || c == 5 || c == 24 ? 0 : 1);
    keys.push_back({base::EnvId(static_cast<uint32_t>(r % 16)), 0, {}, static_cast<uint32_t>(r / 16)});
  }
  std::vector<float> logits(static_cast<size_t>(rows * 26));
  ASSERT_TRUE(actor->Forward({rows, obs.data(), mask.data(), keys.data()}, absl::MakeSpan(logits)).ok());
  std::vector<ActionWord> actions(static_cast<size_t>(rows * 2));
  std::vector<float> logp(static_cast<size_t>(rows));
  ASSERT_TRUE(actor->Act({rows, obs.data(), mask.data(), keys.data()}, actions.data(), logp.data()).ok());
  double p[26] = {};
  for (const auto& [first, last] : {std::pair<int, int>(0, 5), std::pair<int, int>(5, 26)}) {
    double total = 0;
    for (int c = first; c < last; ++c)
      total += p[c] = mask[static_cast<size_t>(c)] != 0 ? std::exp(double{logits[static_cast<size_t>(c)]}) : 0;
    for (int c = first; c < last; ++c) p[c] /= total;
  }
  double counts[26] = {};
  for (int64_t r = 0; r < rows; ++r) {
    const int a = actions[static_cast<size_t>(2 * r)].i32;
    const int b = 5 + actions[static_cast<size_t>(2 * r + 1)].i32;
    ASSERT_TRUE(a >= 0 && a < 5 && b >= 5 && b < 26);
    ++counts[a];
    ++counts[b];
    ASSERT_NEAR(logp[static_cast<size_t>(r)], std::log(p[a]) + std::log(p[b]), 1e-5);
  }
  EXPECT_EQ(counts[1] + counts[5] + counts[24], 0) << "a forbidden category was drawn";
  for (int c = 0; c < 26; ++c) {
    const double deviation = std::sqrt(rows * p[c] * (1 - p[c]));
    EXPECT_NEAR(counts[c], rows * p[c], 4.5 * deviation + 1e-9) << "category " << c;
  }
}

TEST_P(ActorTest, DeterministicTakesTheBestAllowedCategory) {
  for (const int64_t n : {5, 30}) {
    PolicySpec spec = MakeSpec(*Space::Box(-1, 1, {4}), *Space::Discrete(n, 100), {16});
    spec.has_action_mask = true;
    const auto actor = MakeActor(spec, GetParam());
    const int64_t rows = 37;
    const std::vector<float> obs = RandomRows(rows * 4, 2);
    const std::vector<RowKey> keys = Keys(rows, 1);
    std::vector<float> logits(static_cast<size_t>(rows * n));
    std::vector<uint8_t> mask(static_cast<size_t>(rows * n), 1);
    ASSERT_TRUE(actor->Forward({rows, obs.data(), mask.data(), keys.data()}, absl::MakeSpan(logits)).ok());
    for (int64_t r = 0; r < rows; ++r) mask[static_cast<size_t>(r * n + r % n)] = 0;
    std::vector<ActionWord> actions(static_cast<size_t>(rows));
    std::vector<float> logp(static_cast<size_t>(rows));
    ASSERT_TRUE(actor->Act({rows, obs.data(), mask.data(), keys.data(), true}, actions.data(), logp.data()).ok());
    for (int64_t r = 0; r < rows; ++r) {
      int64_t best = -1;
      for (int64_t c = 0; c < n; ++c) {
        const float* row = &logits[static_cast<size_t>(r * n)];
        if (c != r % n && (best < 0 || row[c] > row[best])) best = c;
      }
      EXPECT_EQ(actions[static_cast<size_t>(r)].i32, 100 + best);
    }
  }
}

TEST_P(ActorTest, AMaskWithOneCategoryLeavesNoChoice) {
  PolicySpec spec = MakeSpec(*Space::Box(-1, 1, {4}), *Space::Discrete(6), {16});
  spec.has_action_mask = true;
  const auto actor = MakeActor(spec, GetParam(), 5.0);
  const int64_t rows = 600;
  const std::vector<float> obs = RandomRows(rows * 4, 2);
  const std::vector<RowKey> keys = Keys(rows, 1);
  std::vector<uint8_t> mask(static_cast<size_t>(rows * 6), 0);
  for (int64_t r = 0; r < rows; ++r) mask[static_cast<size_t>(r * 6 + r % 6)] = 1;
  std::vector<ActionWord> actions(static_cast<size_t>(rows));
  std::vector<float> logp(static_cast<size_t>(rows));
  ASSERT_TRUE(actor->Act({rows, obs.data(), mask.data(), keys.data()}, actions.data(), logp.data()).ok());
  for (int64_t r = 0; r < rows; ++r) {
    EXPECT_EQ(actions[static_cast<size_t>(r)].i32, r % 6);
    EXPECT_EQ(logp[static_cast<size_t>(r)], 0.0f);
  }
}

TEST_P(ActorTest, AMaskThatForbidsEverythingIsAnError) {
  for (const int64_t n : {4, 40}) {
    PolicySpec spec = MakeSpec(*Space::Box(-1, 1, {4}), *Space::Discrete(n), {16});
    spec.has_action_mask = true;
    const auto actor = MakeActor(spec, GetParam());
    const std::vector<float> obs = RandomRows(3 * 4, 1);
    std::vector<uint8_t> mask(static_cast<size_t>(3 * n), 1);
    std::fill(mask.begin() + 2 * n, mask.end(), 0);
    const std::vector<RowKey> keys = {{}, {base::EnvId(1)}, {base::EnvId(12), 34, base::AgentSlot(5), 67}};
    ActionWord actions[3];
    float logp[3];
    const absl::Status status = actor->Act({3, obs.data(), mask.data(), keys.data()}, actions, logp);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find("env 12, episode 34, agent slot 5, step 67"), std::string::npos)
        << status;
  }
}

TEST_P(ActorTest, TakenOverItIsAsANewOne) {
  PolicySpec spec = MakeSpec(*Space::Box(-1, 1, {5}), *Space::Discrete(4), {16, 8});
  spec.normalize_observations = true;
  PolicySpec other = spec;
  other.id = policy::PolicyId("other");
  const int64_t rows = 37;
  const std::vector<float> obs = RandomRows(rows * 5, 1.0);
  const std::vector<RowKey> keys = Keys(rows, 1);
  std::vector<ActionWord> actions(static_cast<size_t>(rows)), expected(actions);
  std::vector<float> logp(static_cast<size_t>(rows)), expected_logp(logp);
  const ActInput input = {rows, obs.data(), nullptr, keys.data()};

  auto actor = MakeActor(spec, GetParam(), 1.0);
  ASSERT_TRUE(actor->Act(input, actions.data(), logp.data()).ok());
  ASSERT_TRUE(actor->TakeOver(other));
  EXPECT_EQ(actor->weights(), nullptr);
  const absl::Status without = actor->Act(input, actions.data(), logp.data());
  EXPECT_EQ(without.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(without.message().find("other"), absl::string_view::npos) << without;
  ASSERT_TRUE(actor->SetWeights(RandomWeights(other, 3.0)).ok());
  ASSERT_TRUE(actor->Act(input, actions.data(), logp.data()).ok());

  auto fresh = MakeActor(other, GetParam(), 3.0);
  ASSERT_TRUE(fresh->Act(input, expected.data(), expected_logp.data()).ok());
  EXPECT_EQ(std::memcmp(actions.data(), expected.data(), actions.size() * sizeof(ActionWord)), 0);
  EXPECT_EQ(logp, expected_logp);
}

TEST_P(ActorTest, GaussianSamplesHaveTheRightMomentsAndLogProbability) {
  const PolicySpec spec = MakeSpec(*Space::Box(-1, 1, {4}), *Space::Box(-1, 1, {3}), {16});
  auto weights = RandomWeights(spec);
  const policy::ParameterEntry log_std = *policy::ParameterLayout::For(spec).Find("actor.log_std");
  const float log_stds[3] = {-0.5f, 0.0f, 0.7f};
  std::copy(log_stds, log_stds + 3, weights->actor.begin() + log_std.offset);
  auto actor = *Actor::Create(spec, 11, GetParam());
  ASSERT_TRUE(actor->SetWeights(weights).ok());
  const int64_t rows = 20000;
  std::vector<float> obs;
  for (int64_t r = 0; r < rows; ++r) obs.insert(obs.end(), {0.3f, -0.9f, 0.5f, 0.1f});
  const std::vector<RowKey> keys = Keys(rows, 1);
  std::vector<float> means(static_cast<size_t>(rows * 3));
  ASSERT_TRUE(actor->Forward({rows, obs.data(), nullptr, keys.data()}, absl::MakeSpan(means)).ok());
  std::vector<ActionWord> actions(static_cast<size_t>(rows * 3));
  std::vector<float> logp(static_cast<size_t>(rows));
  ASSERT_TRUE(actor->Act({rows, obs.data(), nullptr, keys.data()}, actions.data(), logp.data()).ok());
  double sum[3] = {}, square[3] = {}, cross = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double want = 0;
    double z[3];
    for (int i = 0; i < 3; ++i) {
      const double std = std::exp(double{log_stds[i]});
      z[i] = (actions[static_cast<size_t>(3 * r + i)].f32 - means[static_cast<size_t>(i)]) / std;
      want += -0.5 * z[i] * z[i] - log_stds[i] - 0.5 * std::log(2 * M_PI);
      sum[i] += z[i];
      square[i] += z[i] * z[i];
    }
    cross += z[0] * z[1];
    ASSERT_NEAR(logp[static_cast<size_t>(r)], want, 1e-4);
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(sum[i] / rows, 0, 4.5 / std::sqrt(rows));
    EXPECT_NEAR(square[i] / rows, 1, 4.5 * std::sqrt(2.0 / rows));
  }
  EXPECT_NEAR(cross / rows, 0, 4.5 / std::sqrt(rows));
  ASSERT_TRUE(actor->Act({rows, obs.data(), nullptr, keys.data(), true}, actions.data(), logp.data()).ok());
  EXPECT_EQ(actions[0].f32, means[0]) << "the mode is the mean";
}

TEST_P(ActorTest, MixedSpacesPutEachLeafWhereItBelongs) {
  // Output order: the logits of every discrete leaf, then the means; action words in the order of the space.
  const PolicySpec spec = MakeSpec(
      *Space::Box(-1, 1, {4}),
      *Space::Tuple({*Space::Box(-1, 1, {2}), *Space::Discrete(3, 5), *Space::MultiBinary(2), *Space::Box(-1, 1, {1})}),
      {16});
  const auto actor = MakeActor(spec, GetParam());
  const int64_t rows = 50;
  const std::vector<float> obs = RandomRows(rows * 4, 2);
  const std::vector<RowKey> keys = Keys(rows, 1);
  std::vector<float> outputs(static_cast<size_t>(rows * 10));
  ASSERT_TRUE(actor->Forward({rows, obs.data(), nullptr, keys.data()}, absl::MakeSpan(outputs)).ok());
  std::vector<ActionWord> actions(static_cast<size_t>(rows * 6));
  std::vector<float> logp(static_cast<size_t>(rows));
  ASSERT_TRUE(actor->Act({rows, obs.data(), nullptr, keys.data(), true}, actions.data(), logp.data()).ok());
  for (int64_t r = 0; r < rows; ++r) {
    const float* out = &outputs[static_cast<size_t>(r * 10)];
    const ActionWord* action = &actions[static_cast<size_t>(r * 6)];
    EXPECT_EQ(action[2].i32, 5 + (std::max_element(out, out + 3) - out));
    EXPECT_EQ(action[3].i32, out[4] > out[3] ? 1 : 0);
    EXPECT_EQ(action[4].i32, out[6] > out[5] ? 1 : 0);
    EXPECT_EQ(action[0].f32, out[7]);
    EXPECT_EQ(action[1].f32, out[8]);
    EXPECT_EQ(action[5].f32, out[9]);
  }
}

TEST_P(ActorTest, ARowDoesNotDependOnItsBatch) {
  PolicySpec spec = MakeSpec(*Space::Box(-1, 1, {18}), *Space::Tuple({*Space::Discrete(5), *Space::Box(-1, 1, {5})}));
  spec.agent_id_size = 3;
  const auto actor = MakeActor(spec, GetParam());
  const int64_t rows = 101;
  const std::vector<float> obs = RandomRows(rows * 18, 2);
  const std::vector<RowKey> keys = Keys(rows, 3);
  std::vector<ActionWord> together(static_cast<size_t>(rows * 6));
  std::vector<float> logp(static_cast<size_t>(rows));
  ASSERT_TRUE(actor->Act({rows, obs.data(), nullptr, keys.data()}, together.data(), logp.data()).ok());
  const float tolerance = GetParam() == Backend::kEigen ? 1e-5f : 0.0f;  // Eigen blocks its sums by the shape
  for (int64_t r = 0; r < rows; ++r) {
    ActionWord alone[6];
    float alone_logp = 0;
    ASSERT_TRUE(
        actor->Act({1, &obs[static_cast<size_t>(r * 18)], nullptr, &keys[static_cast<size_t>(r)]}, alone, &alone_logp)
            .ok());
    EXPECT_EQ(alone[0].i32, together[static_cast<size_t>(r * 6)].i32);
    for (int i = 1; i < 6; ++i) EXPECT_NEAR(alone[i].f32, together[static_cast<size_t>(r * 6 + i)].f32, tolerance);
    EXPECT_NEAR(alone_logp, logp[static_cast<size_t>(r)], tolerance);
  }
}

TEST_P(ActorTest, AFewRowsGiveTheBitsOfMany) {
  const float tolerance = GetParam() == Backend::kEigen ? 1e-5f : 0.0f;  // Eigen blocks its sums by the shape
  for (const int64_t width : {5, 16, 40, 64, 100}) {
    PolicySpec spec = MakeSpec(*Space::Box(-1, 1, {7}), *Space::Discrete(5));
    spec.actor.hidden_sizes = {width, width};
    const auto actor = MakeActor(spec, GetParam());
    const int64_t most = 30;
    const std::vector<float> obs = RandomRows(most * 7, 2);
    const std::vector<RowKey> keys = Keys(most, 1);
    std::vector<float> all(static_cast<size_t>(most * 5));
    ASSERT_TRUE(actor->Forward({most, obs.data(), nullptr, keys.data()}, absl::MakeSpan(all)).ok());
    for (int64_t rows = 1; rows < most; ++rows) {
      std::vector<float> few(static_cast<size_t>(rows * 5));
      ASSERT_TRUE(actor->Forward({rows, obs.data(), nullptr, keys.data()}, absl::MakeSpan(few)).ok());
      for (size_t i = 0; i < few.size(); ++i) {
        ASSERT_NEAR(few[i], all[i], tolerance) << rows << " rows, width " << width << ", output " << i;
      }
    }
  }
}

TEST_P(ActorTest, AgreesWithEigenOnWholeActions) {
  for (const bool continuous : {false, true}) {
    PolicySpec spec = MakeSpec(*Space::Box(-1, 1, {18}), continuous ? *Space::Box(-1, 1, {2}) : *Space::Discrete(5));
    const auto actor = MakeActor(spec, GetParam());
    const auto reference = MakeActor(spec, Backend::kEigen);
    const int64_t rows = 192;
    const auto words = static_cast<size_t>(spec.action_words());
    const std::vector<float> obs = RandomRows(rows * 18, 2);
    const std::vector<RowKey> keys = Keys(rows, 1);
    std::vector<ActionWord> a(rows * words), b(rows * words);
    std::vector<float> a_logp(rows), b_logp(rows);
    ASSERT_TRUE(actor->Act({rows, obs.data(), nullptr, keys.data()}, a.data(), a_logp.data()).ok());
    ASSERT_TRUE(reference->Act({rows, obs.data(), nullptr, keys.data()}, b.data(), b_logp.data()).ok());
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      if (continuous) {
        EXPECT_NEAR(a[2 * r].f32, b[2 * r].f32, 1e-5);
        EXPECT_NEAR(a[2 * r + 1].f32, b[2 * r + 1].f32, 1e-5);
      } else {
        EXPECT_EQ(a[r].i32, b[r].i32);  // no drawn number of this seed lies within 1e-6 of a boundary
      }
      EXPECT_NEAR(a_logp[r], b_logp[r], 1e-5);
    }
  }
}

TEST_P(ActorTest, RandomNumbersAreThoseOfTheCounters) {
  const KernelTable* kernels = *FindKernels(GetParam());
  const base::PhiloxKey key = base::PhiloxKey::Make(99, base::RandomStream::kAction);
  for (const int64_t blocks : {1, 3}) {
    const std::vector<RowKey> keys = Keys(53, 4);
    std::vector<uint32_t> words(static_cast<size_t>(53 * blocks * 4));
    kernels->philox({key.k0, key.k1, reinterpret_cast<const uint32_t*>(keys.data()), 53, blocks, words.data()});
    for (int64_t r = 0; r < 53; ++r) {
      for (int64_t b = 0; b < blocks; ++b) {
        const RowKey& k = keys[static_cast<size_t>(r)];
        const auto want = base::Philox4x32(key, {k.env_id.value(), k.episode, static_cast<uint32_t>(k.slot.value()),
                                                 static_cast<uint32_t>(k.env_step * blocks + b)});
        for (size_t i = 0; i < 4; ++i) ASSERT_EQ(words[static_cast<size_t>((r * blocks + b) * 4) + i], want[i]);
      }
    }
  }
}

TEST_P(ActorTest, RefusesWhatItCannotDo) {
  PolicySpec spec = MakeSpec(*Space::Box(-1, 1, {4}), *Space::Discrete(3), {8});
  spec.agent_id_size = 2;
  auto actor = *Actor::Create(spec, 0, GetParam());
  const std::vector<float> obs = RandomRows(4, 1);
  RowKey key;
  ActionWord action;
  float logp = 0;
  EXPECT_EQ(actor->Act({1, obs.data(), nullptr, &key}, &action, &logp).code(), absl::StatusCode::kFailedPrecondition);
  auto short_weights = RandomWeights(spec);
  short_weights->actor.pop_back();
  EXPECT_EQ(actor->SetWeights(short_weights).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(actor->SetWeights(RandomWeights(spec)).ok());
  key.slot = base::AgentSlot(2);
  EXPECT_EQ(actor->Act({1, obs.data(), nullptr, &key}, &action, &logp).code(), absl::StatusCode::kInvalidArgument);
  key.slot = base::AgentSlot(1);
  const uint8_t mask[3] = {1, 1, 1};
  EXPECT_EQ(actor->Act({1, obs.data(), mask, &key}, &action, &logp).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(actor->Act({1, obs.data(), nullptr, &key}, &action, &logp).ok());
  auto huge = RandomWeights(spec);
  for (float& x : huge->actor) x = 3e38f;
  ASSERT_TRUE(actor->SetWeights(huge).ok());
  EXPECT_EQ(actor->Act({1, obs.data(), nullptr, &key}, &action, &logp).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace troupe::inference
