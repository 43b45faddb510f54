// A user's module acts as the built-in network of its shape does.

#include "lib/training/script/script_actor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/philox.h"
#include "lib/inference/actor.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/inference/module_actors.h"
#include "lib/policy/testing.h"
#include "lib/training/core/policy_store.h"
#include "lib/training/testing/script_modules.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::HasSubstr;

constexpr int64_t kRows = 37;

struct ActorCase {
  const char* name;
  policy::PolicySpec spec;
};

std::vector<ActorCase> Cases() {
  policy::PolicySpec discrete = policy::SmallSpecForTesting();
  policy::PolicySpec masked = discrete;
  masked.action_space = *space::Space::MultiDiscrete({3, 4});
  masked.has_action_mask = true;
  masked.agent_id_size = 3;
  policy::PolicySpec normalized = discrete;
  normalized.normalize_observations = true;
  normalized.action_space = *space::Space::Tuple({*space::Space::Box(-1, 1, {2}), *space::Space::Discrete(3)});
  policy::PolicySpec bytes = discrete;
  bytes.observation_space = *space::Space::Box(0, 255, {5}, tensor::DType::kUint8);
  bytes.action_space = *space::Space::Box(-1, 1, {2});
  bytes.free_log_std = false;
  policy::PolicySpec beta = discrete;
  beta.action_space = *space::Space::Box(-1, 1, {2});
  policy::SetDistributionForTesting(policy::ContinuousDistribution::kBeta, &beta);
  policy::PolicySpec gru = policy::SmallSpecWithCoresForTesting(policy::CoreKind::kGru, policy::CoreKind::kGru);
  gru.agent_id_size = 3;
  policy::PolicySpec lstm = policy::SmallSpecWithCoresForTesting(policy::CoreKind::kLstm, policy::CoreKind::kGru);
  lstm.actor.core.layers = 2;
  return {{"Discrete", discrete}, {"Masked", masked}, {"Normalized", normalized}, {"Bytes", bytes}, {"Beta", beta},
          {"Gru", gru},           {"Lstm", lstm}};
}

/// Rows to act for, with all that a policy may read.
struct Rows {
  explicit Rows(const policy::PolicySpec& spec) {
    base::PhiloxSequence random(base::PhiloxKey::Make(7, base::RandomStream::kTest), {});
    for (int64_t i = 0; i < kRows * spec.observation_size(); ++i) {
      floats.push_back(static_cast<float>(random.Normal()));
      bytes.push_back(static_cast<uint8_t>(random.Below(256)));
    }
    for (int64_t i = 0; i < kRows * spec.actor_state_size(); ++i) {
      state.push_back(static_cast<float>(random.Uniform(-1, 1)));
    }
    for (int64_t i = 0; i < kRows * spec.mask_size(); ++i) mask.push_back(i % 3 == 0 || random.Below(2) == 0);
    for (int64_t i = 0; i < kRows; ++i) {
      keys.push_back({base::EnvId(static_cast<uint32_t>(i)), 2, base::AgentSlot(static_cast<int32_t>(i % 3)), 5});
    }
    input.rows = kRows;
    const bool is_bytes = spec.observation_space.flat_dtype() == tensor::DType::kUint8;
    input.obs = is_bytes ? static_cast<const void*>(bytes.data()) : floats.data();
    input.action_mask = spec.has_action_mask ? mask.data() : nullptr;
    input.keys = keys.data();
    input.state_in = state.data();
  }
  std::vector<float> floats, state;
  std::vector<uint8_t> bytes, mask;
  std::vector<inference::RowKey> keys;
  inference::ActInput input;
};

std::shared_ptr<policy::WeightSnapshot> WeightsOf(const policy::PolicySpec& spec, std::vector<float> acting) {
  auto weights = std::make_shared<policy::WeightSnapshot>();
  weights->id = spec.id;
  weights->actor = std::move(acting);
  if (spec.normalize_observations) {
    weights->observation_mean.assign(static_cast<size_t>(spec.observation_size()), 0.25f);
    weights->observation_inverse_std.assign(static_cast<size_t>(spec.observation_size()), 2.0f);
  }
  return weights;
}

std::vector<float> FirstActing(const policy::PolicySpec& spec) {
  FlatParameters parameters = InitialParameters(spec, 1);
  EXPECT_EQ(AddModuleValues(spec, &parameters), absl::OkStatus());
  return parameters.layout().ActingPart(parameters.values());
}

class ScriptActorTest : public testing::TestWithParam<size_t> {};

TEST_P(ScriptActorTest, ActsAsTheBuiltInOneOfItsShape) {
  const policy::PolicySpec built_in = Cases()[GetParam()].spec;
  const policy::PolicySpec scripted = WithTestModules(built_in, 11);
  // The same numbers in the same places: a weight and a bias of each layer, then the deviations.
  const std::vector<float> acting = FirstActing(scripted);
  auto script = inference::MakePolicyActor(scripted, 3);
  auto actor = inference::MakePolicyActor(built_in, 3);
  ASSERT_TRUE(script.ok()) << script.status();
  ASSERT_EQ((*script)->SetWeights(WeightsOf(scripted, acting)), absl::OkStatus());
  ASSERT_EQ((*actor)->SetWeights(WeightsOf(built_in, acting)), absl::OkStatus());
  Rows rows(built_in);
  const auto words = static_cast<size_t>(kRows * built_in.action_words());
  for (const bool deterministic : {false, true}) {
    rows.input.deterministic = deterministic;
    std::vector<space::ActionWord> got(words);
    std::vector<space::ActionWord> expected(words);
    std::vector<float> got_logp(kRows);
    std::vector<float> expected_logp(kRows);
    const std::vector<float> state = rows.state;
    std::vector<float> got_state(state.size());
    std::vector<float> expected_state(state.size());
    rows.input.state_out = got_state.data();
    ASSERT_EQ((*script)->Act(rows.input, got.data(), got_logp.data()), absl::OkStatus());
    rows.input.state_out = expected_state.data();
    ASSERT_EQ((*actor)->Act(rows.input, expected.data(), expected_logp.data()), absl::OkStatus());
    EXPECT_EQ(rows.state, state) << "state_in is the caller's";
    for (size_t i = 0; i < state.size(); ++i) EXPECT_NEAR(got_state[i], expected_state[i], 1e-5) << i;
    std::vector<bool> continuous(static_cast<size_t>(built_in.action_words()), false);
    for (const space::ActionLeaf& leaf : space::ActionLeaves(built_in.action_space)) {
      if (leaf.kind != space::ActionLeaf::Kind::kContinuous) continue;
      std::fill_n(continuous.begin() + leaf.word, leaf.words, true);
    }
    for (size_t i = 0; i < words; ++i) {
      if (continuous[i % continuous.size()]) {
        EXPECT_NEAR(got[i].f32, expected[i].f32, 1e-5 * std::max(1.0f, std::abs(expected[i].f32))) << i;
      } else {
        EXPECT_EQ(got[i].i32, expected[i].i32) << i;
      }
    }
    for (size_t i = 0; i < kRows; ++i) {
      EXPECT_NEAR(got_logp[i], expected_logp[i], 1e-5 * std::max(1.0f, std::abs(expected_logp[i]))) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScriptActorTest, testing::Range<size_t>(0, Cases().size()),
                         [](const testing::TestParamInfo<size_t>& info) { return Cases()[info.param].name; });

TEST(ScriptActorErrorsTest, SaysWhatItLacks) {
  const policy::PolicySpec spec = WithTestModules(policy::SmallSpecForTesting(), 11);
  auto actor = *inference::MakePolicyActor(spec, 3);
  Rows rows(spec);
  std::vector<space::ActionWord> actions(kRows);
  std::vector<float> logp(kRows);
  EXPECT_THAT(std::string(actor->Act(rows.input, actions.data(), logp.data()).message()), HasSubstr("no weights yet"));
  EXPECT_EQ(actor->SetWeights(WeightsOf(spec, {1.0f})).code(), absl::StatusCode::kInvalidArgument);
  const std::vector<float> acting = FirstActing(spec);
  ASSERT_EQ(actor->SetWeights(WeightsOf(spec, acting)), absl::OkStatus());
  rows.floats[0] = std::numeric_limits<float>::quiet_NaN();
  const absl::Status nan = actor->Act(rows.input, actions.data(), logp.data());
  EXPECT_EQ(nan.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(nan.message()), HasSubstr("the actor's output is not finite"));
  EXPECT_TRUE(actor->TakeOver(spec));
  EXPECT_FALSE(actor->Act(rows.input, actions.data(), logp.data()).ok());
}

TEST(ScriptActorTest, WritesAStateInItsPlace) {
  const policy::PolicySpec spec =
      WithTestModules(policy::SmallSpecWithCoresForTesting(policy::CoreKind::kLstm, policy::CoreKind::kGru), 11);
  auto actor = *inference::MakePolicyActor(spec, 3);
  ASSERT_EQ(actor->SetWeights(WeightsOf(spec, FirstActing(spec))), absl::OkStatus());
  Rows rows(spec);
  std::vector<float> apart(rows.state.size());
  std::vector<space::ActionWord> actions(kRows);
  std::vector<float> logp(kRows), logp_in_place(kRows);
  rows.input.state_out = apart.data();
  ASSERT_EQ(actor->Act(rows.input, actions.data(), logp.data()), absl::OkStatus());
  rows.input.state_out = rows.state.data();
  ASSERT_EQ(actor->Act(rows.input, actions.data(), logp_in_place.data()), absl::OkStatus());
  EXPECT_EQ(rows.state, apart);
  EXPECT_EQ(logp_in_place, logp);
  // A module that gives back the caller's memory.
  policy::PolicySpec keeps = policy::SmallSpecForTesting();
  keeps.sequence_length = 7;
  torch::jit::Module module = MakeTestModule({{"w", torch::ones({2, 3}) * 0.1}},
                                             ForwardSource("    return torch.linear(obs + state, self.w), state\n"));
  module.register_attribute("state_size", c10::IntType::get(), int64_t{3});
  ASSERT_EQ(SetTestModule(BytesOfModule(module), &keeps, &keeps.actor), absl::OkStatus());
  auto keeper = *inference::MakePolicyActor(keeps, 3);
  ASSERT_EQ(keeper->SetWeights(WeightsOf(keeps, FirstActing(keeps))), absl::OkStatus());
  Rows kept(keeps);
  const std::vector<float> before = kept.state;
  kept.input.state_out = kept.state.data();
  ASSERT_EQ(keeper->Act(kept.input, actions.data(), logp.data()), absl::OkStatus());
  EXPECT_EQ(kept.state, before);
}

TEST(ScriptActorErrorsTest, WithoutANumberOfItsStateItRefusesToAct) {
  const policy::PolicySpec spec =
      WithTestModules(policy::SmallSpecWithCoresForTesting(policy::CoreKind::kGru, policy::CoreKind::kGru), 11);
  auto actor = *inference::MakePolicyActor(spec, 3);
  ASSERT_EQ(actor->SetWeights(WeightsOf(spec, FirstActing(spec))), absl::OkStatus());
  Rows rows(spec);
  std::vector<space::ActionWord> actions(kRows);
  std::vector<float> logp(kRows), after(rows.state.size());
  EXPECT_EQ(actor->Act(rows.input, actions.data(), logp.data()),
            absl::InvalidArgumentError(
                "policy \"p\": no state_out for 37 rows, expected 5 elements a row, which it remembers"));
  rows.input.state_out = after.data();
  rows.input.state_in = nullptr;
  EXPECT_THAT(std::string(actor->Act(rows.input, actions.data(), logp.data()).message()), HasSubstr("no state_in for"));
  // Of the state alone, whatever the outputs are.
  policy::PolicySpec divides = policy::SmallSpecForTesting();
  divides.sequence_length = 7;
  torch::jit::Module module = MakeTestModule(
      {{"w", torch::ones({2, 3}) * 0.1}}, ForwardSource("    return torch.linear(obs, self.w), 1.0 / (2.0 - state)\n"));
  module.register_attribute("state_size", c10::IntType::get(), int64_t{3});
  ASSERT_EQ(SetTestModule(BytesOfModule(module), &divides, &divides.actor), absl::OkStatus());
  actor = *inference::MakePolicyActor(divides, 3);
  ASSERT_EQ(actor->SetWeights(WeightsOf(divides, FirstActing(divides))), absl::OkStatus());
  Rows twos(divides);
  twos.state[5] = 2.0f;
  twos.input.state_out = twos.state.data();
  EXPECT_EQ(actor->Act(twos.input, actions.data(), logp.data()),
            absl::InternalError("policy \"p\": what it remembers is not finite, weights version 0"));
}

TEST(ScriptActorErrorsTest, AProgramWithoutLibTorchRefusesInWords) {
  const policy::PolicySpec spec = WithTestModules(policy::SmallSpecForTesting(), 11);
  inference::SetModuleActors(nullptr);
  const absl::Status status = inference::MakePolicyActor(spec, 3).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("policy \"p\" is a TorchScript module, and this program has no "));
  EXPECT_THAT(std::string(inference::Actor::Create(spec, 3).status().message()), HasSubstr("expected no module"));
  InstallScriptModules();
}

}  // namespace
}  // namespace troupe::training
