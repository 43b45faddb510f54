// Actors with a core, against a plain implementation in double, for every back end.

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/philox.h"
#include "lib/inference/testing/backends.h"
#include "lib/inference/testing/in_double.h"
#include "lib/policy/parameter_layout.h"
#include <gtest/gtest.h>

namespace troupe::inference {
namespace {

constexpr int64_t kCoreObs = 7;
constexpr int64_t kCoreActions = 5;
constexpr int64_t kCoreAgents = 4;

struct CoreCase {
  policy::CoreKind kind = policy::CoreKind::kGru;
  int64_t layers = 1;
  int64_t size = 33;
  std::vector<int64_t> encoder = {16};
  std::vector<int64_t> head = {};
  bool agent_ids = false;
  policy::Activation activation = policy::Activation::kTanh;

  std::string ToString() const {
    return absl::StrCat(kind == policy::CoreKind::kGru ? "gru " : "lstm ", layers, " x ", size, ", encoder [",
                        absl::StrJoin(encoder, ","), "], head [", absl::StrJoin(head, ","), "]",
                        agent_ids ? ", agent ids" : "");
  }
  policy::PolicySpec Spec() const {
    policy::PolicySpec spec;
    spec.id = policy::PolicyId("remembers");
    spec.observation_space = *space::Space::Box(-10, 10, {kCoreObs});
    spec.action_space = *space::Space::Discrete(kCoreActions);
    spec.actor.hidden_sizes = encoder;
    spec.actor.core = {kind, size, layers};
    spec.actor.head_hidden_sizes = head;
    spec.agent_id_size = agent_ids ? kCoreAgents : 0;
    spec.sequence_length = 4;
    spec.SetActivation(activation);
    return spec;
  }
};
constexpr policy::CoreKind kCores[] = {policy::CoreKind::kGru, policy::CoreKind::kLstm};

std::vector<CoreCase> AllCoreCases() {
  std::vector<CoreCase> cases;
  for (const policy::CoreKind kind : kCores) {
    for (const int64_t layers : {1, 2}) {
      for (const int64_t size : {5, 33, 64}) {
        for (const bool encoder : {false, true}) {
          for (const bool head : {false, true}) {
            for (const bool ids : {false, true}) {
              cases.push_back({kind, layers, size, {}, {}, ids});
              if (encoder) cases.back().encoder = {16};
              if (head) cases.back().head = {8};
              if (ids) cases.back().activation = policy::Activation::kRelu;
            }
          }
        }
      }
    }
  }
  CoreCase deep = {policy::CoreKind::kLstm, 4, 9, {}, {}, true};
  deep.encoder = {9, 10, 11, 12, 13, 14, 15, 16};
  deep.head = {17, 6, 7, 8, 9, 10, 11, 12};
  cases.push_back(deep);
  return cases;
}

base::PhiloxSequence CoreRandom(uint32_t n) {
  return base::PhiloxSequence(base::PhiloxKey::Make(17, base::RandomStream::kTest), {n, 0, 0, 0});
}

std::shared_ptr<policy::WeightSnapshot> CoreWeights(const policy::PolicySpec& spec, double scale = 1.0) {
  auto weights = std::make_shared<policy::WeightSnapshot>();
  weights->id = spec.id;
  weights->version = {1, 5};
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  weights->actor.resize(static_cast<size_t>(layout.acting_size()));
  base::PhiloxSequence random = CoreRandom(1);
  for (const policy::ParameterEntry& entry : layout.entries()) {
    if (entry.offset >= layout.acting_size()) continue;
    const double fan_in = entry.shape.size() == 2 ? static_cast<double>(entry.shape[1]) : 4.0;
    for (int64_t i = 0; i < entry.count; ++i) {
      weights->actor[static_cast<size_t>(entry.offset + i)] =
          static_cast<float>(scale * random.Normal() / std::sqrt(fan_in));
    }
  }
  return weights;
}

/// An actor with a batch of rows and what it remembers of them.
struct CoreBatch {
  CoreBatch(const policy::PolicySpec& spec, int64_t rows_, uint32_t seed = 2) : rows(rows_) {
    base::PhiloxSequence random = CoreRandom(seed);
    const auto fill = [&random](int64_t count, double span) {
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = static_cast<float>(random.Uniform(-span, span));
      return values;
    };
    obs = fill(rows * kCoreObs, 3);
    state = fill(rows * spec.actor_state_size(), 0.9);
    for (int64_t r = 0; r < rows; ++r) {
      keys.push_back({base::EnvId(static_cast<uint32_t>(r / 3)), static_cast<uint32_t>(r % 2),
                      base::AgentSlot(static_cast<int32_t>(r * 3 % kCoreAgents)), static_cast<uint32_t>(r * 5)});
    }
  }
  /// A decision in place.
  ActInput Input(bool deterministic = false) { return From(0, rows, deterministic); }
  ActInput From(int64_t first, int64_t count, bool deterministic = false) {
    const int64_t state_size = static_cast<int64_t>(state.size()) / rows;
    float* const at = state.data() + first * state_size;
    return {count, obs.data() + first * kCoreObs, nullptr, keys.data() + first, deterministic, at, at};
  }

  const int64_t rows;
  std::vector<float> obs, state;
  std::vector<RowKey> keys;
};

/// One network by its definition (torch.nn.Linear, GRU, LSTM), in double. Keeps what it remembers itself.
class CoreInDouble {
 public:
  CoreInDouble(const policy::PolicySpec& spec, const policy::WeightSnapshot& weights, const std::vector<float>& state)
      : spec_(spec),
        weights_(weights),
        layout_(policy::ParameterLayout::For(spec)),
        state_(state.begin(), state.end()) {}

  /// The last layer's outputs of all rows.
  std::vector<double> Decide(const CoreBatch& batch) {
    std::vector<double> outputs;
    const policy::NetworkSpec& network = spec_.actor;
    for (int64_t r = 0; r < batch.rows; ++r) {
      std::vector<double> x(batch.obs.begin() + r * kCoreObs, batch.obs.begin() + (r + 1) * kCoreObs);
      for (int64_t s = 0; s < spec_.agent_id_size; ++s) {
        x.push_back(s == batch.keys[static_cast<size_t>(r)].slot.value() ? 1 : 0);
      }
      size_t layer = 0;
      for (; layer < network.hidden_sizes.size(); ++layer) x = Dense(x, absl::StrCat("actor.", layer, "."), true);
      double* state = state_.data() + r * spec_.actor_state_size();
      for (int64_t l = 0; l < network.core.layers; ++l) {
        x = network.core.kind == policy::CoreKind::kGru ? Gru(x, l, state) : Lstm(x, l, state);
        state += network.core.state_size() / network.core.layers;
      }
      for (; layer < network.num_layers(); ++layer) {
        x = Dense(x, absl::StrCat("actor.", layer, "."), layer + 1 < network.num_layers());
      }
      outputs.insert(outputs.end(), x.begin(), x.end());
    }
    return outputs;
  }
  const std::vector<double>& state() const { return state_; }

 private:
  std::vector<double> Product(const std::vector<double>& x, const std::string& weight, const std::string& bias) const {
    const policy::ParameterEntry& w = *layout_.Find(weight);
    const policy::ParameterEntry& b = *layout_.Find(bias);
    EXPECT_EQ(w.shape[1], static_cast<int64_t>(x.size())) << weight;
    std::vector<double> y;
    for (int64_t o = 0; o < w.shape[0]; ++o) {
      double sum = weights_.actor[static_cast<size_t>(b.offset + o)];
      for (size_t k = 0; k < x.size(); ++k)
        sum += x[k] * weights_.actor[static_cast<size_t>(w.offset + o * w.shape[1]) + k];
      y.push_back(sum);
    }
    return y;
  }
  std::vector<double> Dense(const std::vector<double>& x, const std::string& name, bool activate) const {
    std::vector<double> y = Product(x, name + "weight", name + "bias");
    for (double& value : y) {
      if (!activate) break;
      value = spec_.actor.activation == policy::Activation::kTanh ? std::tanh(value) : std::max(value, 0.0);
    }
    return y;
  }
  std::vector<double> CoreProduct(const std::vector<double>& x, const char* of, int64_t layer) const {
    return Product(x, absl::StrCat("actor.core.weight_", of, "_l", layer),
                   absl::StrCat("actor.core.bias_", of, "_l", layer));
  }
  std::vector<double> Gru(const std::vector<double>& x, int64_t layer, double* h) const {
    const size_t size = static_cast<size_t>(spec_.actor.core.size);
    const std::vector<double> gi = CoreProduct(x, "ih", layer);
    const std::vector<double> gh = CoreProduct(std::vector<double>(h, h + size), "hh", layer);
    for (size_t i = 0; i < size; ++i) {
      const double reset = SigmoidInDouble(gi[i] + gh[i]);
      const double update = SigmoidInDouble(gi[size + i] + gh[size + i]);
      const double fresh = std::tanh(gi[2 * size + i] + reset * gh[2 * size + i]);
      h[i] = (1 - update) * fresh + update * h[i];
    }
    return std::vector<double>(h, h + size);
  }
  std::vector<double> Lstm(const std::vector<double>& x, int64_t layer, double* h) const {
    const size_t size = static_cast<size_t>(spec_.actor.core.size);
    double* cell = h + size;
    std::vector<double> sums = CoreProduct(x, "ih", layer);
    const std::vector<double> gh = CoreProduct(std::vector<double>(h, h + size), "hh", layer);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += gh[i];
    for (size_t i = 0; i < size; ++i) {
      cell[i] = SigmoidInDouble(sums[size + i]) * cell[i] + SigmoidInDouble(sums[i]) * std::tanh(sums[2 * size + i]);
      h[i] = SigmoidInDouble(sums[3 * size + i]) * std::tanh(cell[i]);
    }
    return std::vector<double>(h, h + size);
  }

  const policy::PolicySpec& spec_;
  const policy::WeightSnapshot& weights_;
  const policy::ParameterLayout layout_;
  std::vector<double> state_;
};

class ActorCoreTest : public BackendTest {
 protected:
  std::unique_ptr<Actor> MakeCoreActor(const policy::PolicySpec& spec, double scale = 1.0) const {
    auto actor = Actor::Create(spec, 3, GetParam());
    EXPECT_TRUE(actor.ok()) << actor.status();
    EXPECT_TRUE((*actor)->SetWeights(CoreWeights(spec, scale)).ok());
    return *std::move(actor);
  }
  /// Eigen blocks its sums by the shape.
  float OfTheSameBits() const { return GetParam() == Backend::kEigen ? 1e-5f : 0.0f; }
};
INSTANTIATE_TEST_SUITE_P(Backends, ActorCoreTest, kBackends, BackendCaseName);

TEST_P(ActorCoreTest, DecisionsInARowEqualTheDefinition) {
  for (const CoreCase& c : AllCoreCases()) {
    SCOPED_TRACE(c.ToString());
    const policy::PolicySpec spec = c.Spec();
    const auto actor = MakeCoreActor(spec);
    for (const int64_t rows : {1, 2, 5, 53}) {
      CoreBatch batch(spec, rows);
      CoreInDouble reference(spec, *actor->weights(), batch.state);
      for (uint32_t decision = 0; decision < 3; ++decision) {
        batch.obs = CoreBatch(spec, rows, 100 + decision).obs;
        std::vector<float> got(static_cast<size_t>(rows * kCoreActions));
        ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(got)).ok());
        const std::vector<double> want = reference.Decide(batch);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], want[i], 1e-5 * (1 + std::abs(want[i]))) << rows << " rows, decision " << decision;
        }
        for (size_t i = 0; i < batch.state.size(); ++i) {
          ASSERT_NEAR(batch.state[i], reference.state()[i], 1e-5 * (1 + std::abs(reference.state()[i])))
              << rows << " rows, decision " << decision << ", state element " << i;
        }
      }
    }
  }
}

TEST_P(ActorCoreTest, GatesHoldFarFromZero) {
  for (const policy::CoreKind kind : kCores) {
    const policy::PolicySpec spec = CoreCase{.kind = kind, .size = 20}.Spec();
    const auto actor = MakeCoreActor(spec, 200);
    CoreBatch batch(spec, 50);
    CoreInDouble reference(spec, *actor->weights(), batch.state);
    std::vector<float> got(50 * kCoreActions);
    ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(got)).ok());
    reference.Decide(batch);
    int far = 0;
    for (size_t i = 0; i < batch.state.size(); ++i) {
      // Sums of some hundreds are known to some 1e-5, which is what a sigmoid that is not saturated sees.
      ASSERT_NEAR(batch.state[i], reference.state()[i], 2e-4) << i;
      far += std::abs(reference.state()[i]) > 0.999 ? 1 : 0;
    }
    EXPECT_GT(far, 100);
  }
}

TEST_P(ActorCoreTest, ObservationsAreNormalizedBeforeTheCore) {
  policy::PolicySpec spec = CoreCase{.encoder = {}, .agent_ids = true}.Spec();
  spec.normalize_observations = true;
  auto weights = CoreWeights(spec);
  for (int64_t i = 0; i < kCoreObs; ++i) {
    weights->observation_mean.push_back(0.1f * static_cast<float>(i));
    weights->observation_inverse_std.push_back(0.5f + 0.25f * static_cast<float>(i));
  }
  auto actor = *Actor::Create(spec, 3, GetParam());
  ASSERT_TRUE(actor->SetWeights(weights).ok());
  CoreBatch batch(spec, 60);
  CoreInDouble reference(spec, *weights, batch.state);
  std::vector<float> got(60 * kCoreActions);
  ASSERT_TRUE(actor->Forward(batch.Input(), absl::MakeSpan(got)).ok());
  for (size_t i = 0; i < batch.obs.size(); ++i) {
    const size_t element = i % kCoreObs;
    batch.obs[i] = (batch.obs[i] - weights->observation_mean[element]) * weights->observation_inverse_std[element];
  }
  const std::vector<double> want = reference.Decide(batch);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5 * (1 + std::abs(want[i])));
}

TEST_P(ActorCoreTest, InPlaceGivesTheBitsOfApart) {
  for (const policy::CoreKind kind : kCores) {
    for (const int64_t size : {5, 33, 64}) {
      const policy::PolicySpec spec = CoreCase{.kind = kind, .layers = 2, .size = size, .head = {8}}.Spec();
      const auto actor = MakeCoreActor(spec);
      for (const int64_t rows : {1, 3, 16, 101}) {
        CoreBatch batch(spec, rows);
        const std::vector<float> before = batch.state;
        // Two elements beyond the end, which nobody may write.
        std::vector<float> after(batch.state.size() + 2, 77.0f);
        std::vector<space::ActionWord> apart(static_cast<size_t>(rows)), in_place(apart);
        std::vector<float> apart_logp(apart.size()), in_place_logp(apart.size());
        ActInput input = batch.Input();
        input.state_out = after.data();
        ASSERT_TRUE(actor->Act(input, apart.data(), apart_logp.data()).ok());
        EXPECT_EQ(batch.state, before) << "state_in is the caller's";
        ASSERT_TRUE(actor->Act(batch.Input(), in_place.data(), in_place_logp.data()).ok());
        EXPECT_EQ(std::memcmp(after.data(), batch.state.data(), batch.state.size() * sizeof(float)), 0)
            << size << " units, " << rows << " rows";
        EXPECT_EQ(after[batch.state.size()], 77.0f);
        EXPECT_EQ(after[batch.state.size() + 1], 77.0f);
        EXPECT_EQ(std::memcmp(apart.data(), in_place.data(), apart.size() * sizeof(apart[0])), 0);
        EXPECT_EQ(apart_logp, in_place_logp);
        EXPECT_NE(batch.state, before);
      }
    }
  }
}

TEST_P(ActorCoreTest, ARowWithACoreDoesNotDependOnItsBatch) {
  for (const policy::CoreKind kind : kCores) {
    for (const bool encoder : {false, true}) {
      for (const int64_t size : {5, 40, 64}) {
        CoreCase c = {.kind = kind, .layers = 2, .size = size, .agent_ids = true};
        if (!encoder) c.encoder.clear();
        SCOPED_TRACE(c.ToString());
        const policy::PolicySpec spec = c.Spec();
        const auto actor = MakeCoreActor(spec);
        constexpr int64_t kMost = 101;
        CoreBatch all(spec, kMost);
        std::vector<float> want(kMost * kCoreActions);
        ASSERT_TRUE(actor->Forward(all.Input(), absl::MakeSpan(want)).ok());
        const auto state_size = static_cast<size_t>(spec.actor_state_size());
        for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 50}) {
          CoreBatch some(spec, kMost);
          for (int64_t first = 0; first < kMost; first += rows) {
            const int64_t here = std::min(rows, kMost - first);
            std::vector<float> got(static_cast<size_t>(here * kCoreActions));
            ASSERT_TRUE(actor->Forward(some.From(first, here), absl::MakeSpan(got)).ok());
            for (size_t i = 0; i < got.size(); ++i) {
              ASSERT_NEAR(got[i], want[static_cast<size_t>(first * kCoreActions) + i], OfTheSameBits()) << rows;
            }
          }
          for (size_t i = 0; i < some.state.size(); ++i) {
            ASSERT_NEAR(some.state[i], all.state[i], OfTheSameBits()) << rows << " rows, row " << i / state_size;
          }
        }
      }
    }
  }
}

TEST_P(ActorCoreTest, SampledAndDeterministicActionsAreOfTheOutputs) {
  for (const policy::CoreKind kind : kCores) {
    const policy::PolicySpec spec = CoreCase{.kind = kind}.Spec();
    const auto actor = MakeCoreActor(spec, 2.0);
    // Rows that differ in their keys alone: what is drawn follows one softmax.
    constexpr int64_t kRows = 8000;
    CoreBatch batch(spec, kRows);
    const auto state_size = static_cast<size_t>(spec.actor_state_size());
    for (size_t r = 1; r < kRows; ++r) {
      std::copy_n(batch.obs.begin(), kCoreObs, batch.obs.begin() + static_cast<int64_t>(r) * kCoreObs);
      std::copy_n(batch.state.begin(), state_size, batch.state.begin() + static_cast<int64_t>(r * state_size));
    }
    CoreBatch again = batch, forward = batch;
    std::vector<float> logits(kRows * kCoreActions);
    ASSERT_TRUE(actor->Forward(forward.Input(), absl::MakeSpan(logits)).ok());
    std::vector<space::ActionWord> actions(kRows);
    std::vector<float> logp(kRows);
    double p[kCoreActions] = {}, total = 0, counts[kCoreActions] = {};
    for (int a = 0; a < kCoreActions; ++a) total += p[a] = std::exp(double{logits[static_cast<size_t>(a)]});
    ASSERT_TRUE(actor->Act(batch.Input(), actions.data(), logp.data()).ok());
    for (size_t r = 0; r < kRows; ++r) {
      ASSERT_TRUE(actions[r].i32 >= 0 && actions[r].i32 < kCoreActions);
      ++counts[actions[r].i32];
      ASSERT_NEAR(logp[r], std::log(p[actions[r].i32] / total), 2e-5);
    }
    for (int a = 0; a < kCoreActions; ++a) {
      const double share = p[a] / total;
      EXPECT_NEAR(counts[a], kRows * share, 4.5 * std::sqrt(kRows * share * (1 - share)) + 1e-9) << a;
    }
    EXPECT_EQ(batch.state, forward.state) << "what is drawn is not remembered";
    ASSERT_TRUE(actor->Act(again.Input(true), actions.data(), logp.data()).ok());
    for (size_t r = 0; r < kRows; ++r) {
      EXPECT_EQ(actions[r].i32, std::max_element(p, p + kCoreActions) - p);
    }
    EXPECT_EQ(again.state, forward.state);
  }
}

TEST_P(ActorCoreTest, WithoutItsStateItRefusesToAct) {
  for (const policy::CoreKind kind : kCores) {
    const policy::PolicySpec spec = CoreCase{.kind = kind}.Spec();
    const auto actor = MakeCoreActor(spec);
    CoreBatch batch(spec, 3);
    std::vector<space::ActionWord> actions(3);
    std::vector<float> logp(3), outputs(3 * kCoreActions);
    for (const bool in : {false, true}) {
      ActInput input = batch.Input();
      if (in) {
        input.state_in = nullptr;
      } else {
        input.state_out = nullptr;
      }
      for (const absl::Status& status :
           {actor->Act(input, actions.data(), logp.data()), actor->Forward(input, absl::MakeSpan(outputs))}) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_NE(status.message().find("\"remembers\""), absl::string_view::npos) << status;
        EXPECT_NE(status.message().find(in ? "state_in" : "state_out"), absl::string_view::npos) << status;
      }
    }
    ActInput none = {0, nullptr, nullptr, nullptr};
    EXPECT_TRUE(actor->Act(none, nullptr, nullptr).ok()) << "no rows, no state";
  }
}

TEST_P(ActorCoreTest, WithoutACoreStatesAreIgnored) {
  policy::PolicySpec spec = CoreCase{}.Spec();
  spec.actor.core = {};
  spec.sequence_length = 0;
  const auto actor = MakeCoreActor(spec);
  CoreBatch batch(spec, 20);
  std::vector<float> state(20, 5.0f), want(20 * kCoreActions), got(want);
  ActInput input = {20, batch.obs.data(), nullptr, batch.keys.data()};
  ASSERT_TRUE(actor->Forward(input, absl::MakeSpan(want)).ok());
  input.state_in = input.state_out = state.data();
  ASSERT_TRUE(actor->Forward(input, absl::MakeSpan(got)).ok());
  EXPECT_EQ(got, want);
  EXPECT_EQ(state, std::vector<float>(20, 5.0f));
}

TEST_P(ActorCoreTest, AStateThatIsNotFiniteIsAnError) {
  for (const policy::CoreKind kind : kCores) {
    const policy::PolicySpec spec = CoreCase{.kind = kind, .layers = 2}.Spec();
    const auto actor = MakeCoreActor(spec);
    std::vector<space::ActionWord> actions(50);
    std::vector<float> logp(50);
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      CoreBatch batch(spec, 50);
      batch.state.back() = bad;  // the last row's second layer: of an LSTM its cell
      const absl::Status status = actor->Act(batch.Input(), actions.data(), logp.data());
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
      EXPECT_NE(status.message().find("\"remembers\""), absl::string_view::npos) << status;
    }
    CoreBatch batch(spec, 50);
    EXPECT_TRUE(actor->Act(batch.Input(), actions.data(), logp.data()).ok()) << "the actor is as it was";
  }
}

TEST_P(ActorCoreTest, TakenOverWithACoreItIsAsANewOne) {
  for (const policy::CoreKind kind : kCores) {
    const policy::PolicySpec spec = CoreCase{.kind = kind, .head = {8}}.Spec();
    policy::PolicySpec other = spec;
    other.id = policy::PolicyId("other");
    ASSERT_EQ(policy::ShapeOf(spec), policy::ShapeOf(other));
    const auto actor = MakeCoreActor(spec);
    CoreBatch first(spec, 37), taken(spec, 60), fresh(spec, 60);
    std::vector<space::ActionWord> actions(60), expected(60);
    std::vector<float> logp(60), expected_logp(60);
    ASSERT_TRUE(actor->Act(first.Input(), actions.data(), logp.data()).ok());
    ASSERT_TRUE(actor->TakeOver(other));
    const absl::Status without = actor->Act(first.Input(), actions.data(), logp.data());
    EXPECT_EQ(without.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(without.message().find("other"), absl::string_view::npos) << without;
    ASSERT_TRUE(actor->SetWeights(CoreWeights(other, 3.0)).ok());
    ASSERT_TRUE(actor->Act(taken.Input(), actions.data(), logp.data()).ok());

    ASSERT_TRUE(MakeCoreActor(other, 3.0)->Act(fresh.Input(), expected.data(), expected_logp.data()).ok());
    EXPECT_EQ(std::memcmp(actions.data(), expected.data(), actions.size() * sizeof(actions[0])), 0);
    EXPECT_EQ(logp, expected_logp);
    EXPECT_EQ(taken.state, fresh.state);
  }
}

}  // namespace
}  // namespace troupe::inference
