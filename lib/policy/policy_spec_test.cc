#include "lib/policy/policy_spec.h"

#include <functional>
#include <limits>

#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

TEST(PolicySpecTest, ValidSpecHasItsSizes) {
  const PolicySpec spec = SmallSpecForTesting();
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  EXPECT_EQ(spec.observation_size(), 3);
  EXPECT_EQ(spec.actor_input_size(), 3);
  EXPECT_EQ(spec.critic_input_size(), 3);
  EXPECT_EQ(spec.actor_output_size(), 2);
  EXPECT_EQ(spec.log_std_size(), 0);
  EXPECT_EQ(spec.mask_size(), 0);
}

struct BadSpec {
  const char* name;
  std::function<void(PolicySpec&)> spoil;
  const char* expected;
};

class BadSpecTest : public ::testing::TestWithParam<BadSpec> {};

TEST_P(BadSpecTest, IsRefusedInWords) {
  PolicySpec spec = SmallSpecForTesting();
  GetParam().spoil(spec);
  const absl::Status status = spec.Validate();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(GetParam().expected), absl::string_view::npos) << status;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadSpecTest,
    ::testing::Values(
        BadSpec{"id", [](PolicySpec& s) { s.id = PolicyId("../x"); }, "policy id"},
        BadSpec{"obs", [](PolicySpec& s) { s.observation_space = space::Space(); }, "observation space"},
        BadSpec{"act", [](PolicySpec& s) { s.action_space = space::Space(); }, "action space"},
        BadSpec{"reals", [](PolicySpec& s) { s.action_space = *space::Space::Box(-1, 1, {65537}); },
                "an action has 65537 numbers; expected at most 65536"},
        BadSpec{"bits", [](PolicySpec& s) { s.action_space = *space::Space::MultiBinary(1 << 23); },
                "an action has 8388608 numbers; expected at most 65536"},
        BadSpec{"no_layers", [](PolicySpec& s) { s.model.actor_hidden_sizes = {}; }, "0 layers"},
        BadSpec{"nine_layers", [](PolicySpec& s) { s.model.critic_hidden_sizes.assign(9, 4); }, "9 layers"},
        BadSpec{"wide", [](PolicySpec& s) { s.model.actor_hidden_sizes = {16385}; }, "16385 units"},
        BadSpec{"activation", [](PolicySpec& s) { s.model.activation = Activation(99); }, "activation"},
        BadSpec{"critic_state", [](PolicySpec& s) { s.critic_input = CriticInput::kGlobalState; }, "critic_state_size"},
        BadSpec{"critic_id", [](PolicySpec& s) { s.critic_agent_id = true; }, "agent_id_size"},
        BadSpec{"mask",
                [](PolicySpec& s) {
                  s.action_space = *space::Space::Box(-1, 1, {2});
                  s.has_action_mask = true;
                },
                "action mask needs a discrete action"},
        BadSpec{"tanh", [](PolicySpec& s) { s.action_bound_method = ActionBoundMethod::kTanh; }, "action_scaling"},
        BadSpec{"unbounded",
                [](PolicySpec& s) {
                  const double inf = std::numeric_limits<double>::infinity();
                  s.action_space = *space::Space::Box(-inf, inf, {2});
                  s.action_scaling = true;
                },
                "bounded Box"}),
    [](const auto& info) { return info.param.name; });

TEST(ActivationTest, NamesRoundTrip) {
  for (int i = 1; i <= 7; ++i) {
    const auto activation = static_cast<Activation>(i);
    EXPECT_EQ(*ParseActivation(ActivationName(activation)), activation);
  }
  const auto bad = ParseActivation("tahn");
  EXPECT_NE(bad.status().message().find("tanh, relu"), absl::string_view::npos) << bad.status();
}

TEST(PolicySpecTest, TextTellsSpecsApart) {
  PolicySpec a = SmallSpecForTesting();
  PolicySpec b = a;
  EXPECT_EQ(a.ToString(), b.ToString());
  b.model.initial_log_std = 1e-16;
  EXPECT_NE(a.ToString(), b.ToString());
}

TEST(PolicySpecTest, PoliciesOfOneShapeAreSwappable) {
  PolicySpec a = SmallSpecForTesting();
  PolicySpec b = a;
  b.id = PolicyId("q");
  b.model.actor_output_gain = 1;  // matters to the first weights alone
  b.model.initial_log_std = -1;
  EXPECT_TRUE(CheckSwappable({}).ok());
  EXPECT_TRUE(CheckSwappable({a, b}).ok());
  for (const auto& change : std::vector<std::function<void(PolicySpec*)>>{
           [](PolicySpec* s) { s->model.critic_hidden_sizes = {5}; },
           [](PolicySpec* s) { s->model.activation = Activation::kRelu; },
           [](PolicySpec* s) { s->normalize_observations = true; },
           [](PolicySpec* s) { s->action_space = *space::Space::Discrete(3); }}) {
    PolicySpec c = b;
    c.id = PolicyId("r");
    change(&c);
    const absl::Status status = CheckSwappable({a, b, c});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()).find("policies \"p\" and \"r\" cannot swap their states: got "), 0u);
  }
}

}  // namespace
}  // namespace troupe::policy
