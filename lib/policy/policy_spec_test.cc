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
        BadSpec{"no_layers", [](PolicySpec& s) { s.actor.hidden_sizes = {}; }, "0 layers"},
        BadSpec{"nine_layers", [](PolicySpec& s) { s.mutable_critic()->hidden_sizes.assign(9, 4); }, "9 layers"},
        BadSpec{"wide", [](PolicySpec& s) { s.actor.hidden_sizes = {16385}; }, "16385 units"},
        BadSpec{"activation", [](PolicySpec& s) { s.SetActivation(Activation(99)); }, "activation"},
        BadSpec{"critic_state", [](PolicySpec& s) { s.SetCriticInput(NetworkInput::kState, 0); }, "critic_state_size"},
        BadSpec{"state_unread", [](PolicySpec& s) { s.state_size = 4; }, "critic_state_size is 4"},
        BadSpec{"role", [](PolicySpec& s) { s.learner_networks[0].role = "q1"; }, "role \"q1\"; expected critic"},
        BadSpec{"twice", [](PolicySpec& s) { s.learner_networks.push_back(DefaultCritic()); },
                "two networks of role critic"},
        BadSpec{"actor", [](PolicySpec& s) { s.actor.inputs = {NetworkInput::kState}; },
                "the acting network is actor of state; expected actor of observation+agent_id"},
        BadSpec{"critic_inputs", [](PolicySpec& s) { s.mutable_critic()->inputs = {NetworkInput::kJointAction}; },
                "the critic reads joint_action; expected observation, joint_observation or state"},
        BadSpec{"no_inputs", [](PolicySpec& s) { s.mutable_critic()->inputs = {}; }, "the critic reads nothing"},
        BadSpec{"encoder", [](PolicySpec& s) { s.actor.encoder = EncoderKind(9); }, "actor has an unknown encoder"},
        BadSpec{"core", [](PolicySpec& s) { s.mutable_critic()->core = CoreKind(9); }, "critic has an unknown core"},
        BadSpec{"gain", [](PolicySpec& s) { s.actor.output_gain = std::numeric_limits<double>::infinity(); }, "gain"},
        BadSpec{"critic_id", [](PolicySpec& s) { s.SetCriticAgentId(true); }, "agent_id_size"},
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
  b.initial_log_std = 1e-16;
  EXPECT_NE(a.ToString(), b.ToString());
}

// It is hashed into checkpoints and by workers of before: it must not change.
TEST(PolicySpecTest, TheTextOfAnActorAndACriticIsThatOfEveryVersion) {
  PolicySpec spec = SmallSpecForTesting();
  EXPECT_EQ(spec.ToString(),
            "policy p obs=Box(-1, 1, [3]) act=Discrete(2) actor=[4,4] critic=[4] activation=tanh gain=0.01 log_std=0 "
            "critic_input=1 critic_state=0 agent_id=0 critic_agent_id=0 normalize=0 mask=0 bound=2 scaling=0");
  spec.SetActivation(Activation::kRelu);
  spec.agent_id_size = 3;
  spec.SetCriticInput(NetworkInput::kJointObservation, 12);
  spec.SetCriticAgentId(true);
  EXPECT_EQ(spec.ToString(),
            "policy p obs=Box(-1, 1, [3]) act=Discrete(2) actor=[4,4] critic=[4] activation=relu gain=0.01 log_std=0 "
            "critic_input=2 critic_state=12 agent_id=3 critic_agent_id=1 normalize=0 mask=0 bound=2 scaling=0");
  spec.SetCriticInput(NetworkInput::kState, 9);
  EXPECT_NE(spec.ToString().find(" critic_input=3 critic_state=9 "), std::string::npos);
  EXPECT_EQ(spec.ToString().find(" network="), std::string::npos);
  // What it had no words for has some of its own.
  PolicySpec other = spec;
  other.mutable_critic()->activation = Activation::kTanh;
  EXPECT_EQ(other.ToString(), spec.ToString() + " network=critic:state+agent_id:[4]:tanh:1");
  other = spec;
  other.mutable_critic()->output_gain = 0.5;
  EXPECT_NE(other.ToString(), spec.ToString());
  EXPECT_EQ(ShapeOf(other), ShapeOf(spec)) << "of first weights alone";
}

// Actors of one shape take over each other's memory, and back ends share theirs.
TEST(PolicySpecTest, KindsOfNetworksAreToldApart) {
  const PolicySpec spec = SmallSpecForTesting();
  PolicySpec actor = spec;
  actor.actor.encoder = EncoderKind(9);
  EXPECT_EQ(actor.ToString(), spec.ToString() + " kind=actor:unknown");
  EXPECT_EQ(FirstDifference(actor, spec), "the actor's kind of network is unknown, expected mlp; set model alike");
  PolicySpec critic = spec;
  critic.mutable_critic()->core = CoreKind(9);
  EXPECT_EQ(critic.ToString(), spec.ToString() + " kind=critic:mlp+unknown");
  EXPECT_EQ(FirstDifference(spec, critic),
            "the critic's kind of network is mlp, expected mlp+unknown; set model alike");
  EXPECT_NE(ShapeOf(actor), ShapeOf(spec));
  EXPECT_NE(ShapeOf(critic), ShapeOf(spec));
  EXPECT_EQ(FirstDifference(spec, spec), "");
}

TEST(PolicySpecTest, CriticsAreWhatTheirInputsSay) {
  PolicySpec spec = SmallSpecForTesting();
  spec.agent_id_size = 2;
  EXPECT_EQ(spec.actor_input_size(), 5);
  EXPECT_EQ(spec.critic_input(), NetworkInput::kObservation);
  EXPECT_EQ(spec.critic_input_size(), 3);
  spec.SetCriticAgentId(true);
  spec.SetCriticInput(NetworkInput::kState, 7);
  EXPECT_TRUE(spec.critic_agent_id());
  EXPECT_EQ(spec.critic_input_size(), 9);
  EXPECT_EQ(spec.critic_state_size(), 7);
  EXPECT_TRUE(spec.Reads(NetworkInput::kState) && spec.Reads(NetworkInput::kObservation));
  EXPECT_FALSE(spec.Reads(NetworkInput::kJointObservation));
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  spec.learner_networks.clear();
  spec.state_size = 0;
  EXPECT_TRUE(spec.Validate().ok()) << "another algorithm's policy";
  EXPECT_EQ(spec.critic_input_size(), 0);
  EXPECT_EQ(spec.FindLearnerNetwork("critic"), nullptr);
}

TEST(PolicySpecTest, PoliciesOfOneShapeAreSwappable) {
  PolicySpec a = SmallSpecForTesting();
  PolicySpec b = a;
  b.id = PolicyId("q");
  b.actor.output_gain = 1;  // matters to the first weights alone
  b.initial_log_std = -1;
  EXPECT_TRUE(CheckSwappable({}).ok());
  EXPECT_TRUE(CheckSwappable({a, b}).ok());
  for (const auto& change : std::vector<std::function<void(PolicySpec*)>>{
           [](PolicySpec* s) { s->mutable_critic()->hidden_sizes = {5}; },
           [](PolicySpec* s) { s->SetActivation(Activation::kRelu); },
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
