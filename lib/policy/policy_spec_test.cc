#include "lib/policy/policy_spec.h"

#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
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

PolicySpec WithCores() { return SmallSpecWithCoresForTesting(CoreKind::kGru, CoreKind::kLstm); }

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
        BadSpec{"role", [](PolicySpec& s) { s.learner_networks[0].role = "q-1"; }, "role \"q-1\"; expected 1 to 32"},
        BadSpec{"twice", [](PolicySpec& s) { s.learner_networks.push_back(DefaultCritic()); },
                "two networks of role critic"},
        BadSpec{"actor", [](PolicySpec& s) { s.actor.inputs = {NetworkInput::kState}; },
                "the acting network is actor of state; expected actor of observation+agent_id"},
        BadSpec{
            "critic_inputs", [](PolicySpec& s) { s.mutable_critic()->inputs = {NetworkInput::kJointAction}; },
            "the critic reads joint_action; expected observation, joint_observation, state or state and observation"},
        BadSpec{"no_inputs", [](PolicySpec& s) { s.mutable_critic()->inputs = {}; }, "the critic reads nothing"},
        BadSpec{"encoder", [](PolicySpec& s) { s.actor.encoder = EncoderKind(9); }, "actor has an unknown encoder"},
        BadSpec{"core", [](PolicySpec& s) { s.mutable_critic()->core.kind = CoreKind(9); },
                "critic has an unknown core"},
        BadSpec{"gain", [](PolicySpec& s) { s.actor.output_gain = std::numeric_limits<double>::infinity(); }, "gain"},
        BadSpec{"critic_id", [](PolicySpec& s) { s.SetCriticAgentId(true); }, "agent_id_size"},
        BadSpec{"mask",
                [](PolicySpec& s) {
                  s.action_space = *space::Space::Box(-1, 1, {2});
                  s.has_action_mask = true;
                },
                "action mask needs a discrete action"},
        BadSpec{"discount", [](PolicySpec& s) { s.reward_discount = 1.5; },
                "reward_discount is 1.5; expected a number in [0, 1]"},
        BadSpec{"tanh", [](PolicySpec& s) { s.action_bound_method = ActionBoundMethod::kTanh; }, "action_scaling"},
        BadSpec{"unbounded",
                [](PolicySpec& s) {
                  const double inf = std::numeric_limits<double>::infinity();
                  s.action_space = *space::Space::Box(-inf, inf, {2});
                  s.action_scaling = true;
                },
                "bounded Box"}),
    [](const auto& info) { return info.param.name; });

// Of a policy that is valid with its cores.
class BadCoreTest : public ::testing::TestWithParam<BadSpec> {};

TEST_P(BadCoreTest, IsRefusedInWords) {
  PolicySpec spec = WithCores();
  ASSERT_TRUE(spec.Validate().ok()) << spec.Validate();
  GetParam().spoil(spec);
  const absl::Status status = spec.Validate();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(absl::StrCat("policy \"p\": ", GetParam().expected)), absl::string_view::npos)
      << status;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadCoreTest,
    ::testing::Values(
        BadSpec{"no_units", [](PolicySpec& s) { s.actor.core.size = 0; },
                "actor has a core of 1 layers of 0 units; expected 1 to 4 of 1 to 4096"},
        BadSpec{"wide", [](PolicySpec& s) { s.actor.core.size = 4097; }, "actor has a core of 1 layers of 4097 units"},
        BadSpec{"no_layers", [](PolicySpec& s) { s.mutable_critic()->core.layers = 0; },
                "critic has a core of 0 layers of 3 units"},
        BadSpec{"deep", [](PolicySpec& s) { s.mutable_critic()->core.layers = 5; },
                "critic has a core of 5 layers of 3 units"},
        BadSpec{"negative", [](PolicySpec& s) { s.actor.core.layers = -1; }, "actor has a core of -1 layers"},
        BadSpec{"unknown", [](PolicySpec& s) { s.actor.core.kind = CoreKind(9); }, "actor has an unknown core"},
        BadSpec{"nine_before", [](PolicySpec& s) { s.actor.hidden_sizes.assign(9, 4); },
                "actor_hidden_sizes has 9 layers; expected 0 to 8"},
        BadSpec{"nine_behind", [](PolicySpec& s) { s.mutable_critic()->head_hidden_sizes.assign(9, 4); },
                "critic_head_hidden_sizes has 9 layers; expected 0 to 8"},
        BadSpec{"wide_head",
                [](PolicySpec& s) {
                  s.actor.head_hidden_sizes = {4, 16385};
                },
                "actor_head_hidden_sizes holds a layer of 16385 units; expected 1 to 16384"},
        BadSpec{"no_sequence", [](PolicySpec& s) { s.sequence_length = 0; },
                "sequence_length is 0; expected 1 to 65536"},
        BadSpec{"long_sequence", [](PolicySpec& s) { s.sequence_length = 65537; },
                "sequence_length is 65537; expected 1 to 65536"},
        // What belongs to a core is refused without one.
        BadSpec{"head_alone",
                [](PolicySpec& s) {
                  s.actor.core = {};
                  s.actor.head_hidden_sizes = {6};
                },
                "actor_head_hidden_sizes has 1 layers; expected 0 to 0"},
        BadSpec{"nothing_at_all", [](PolicySpec& s) { s.mutable_critic()->core = {}; },
                "critic_hidden_sizes has 0 layers; expected 1 to 8"},
        BadSpec{"numbers_alone", [](PolicySpec& s) { s.actor = SmallSpecForTesting().actor, s.actor.core.size = 5; },
                "actor has no core, but core layers: 0 of 5 units; expected 0 of 0"},
        BadSpec{"sequence_alone",
                [](PolicySpec& s) {
                  s = SmallSpecForTesting();
                  s.sequence_length = 20;
                },
                "sequence_length is 20 of networks that remember nothing; expected 0"}),
    [](const auto& info) { return info.param.name; });

TEST(PolicySpecTest, CoresHaveTheirSizes) {
  PolicySpec spec = WithCores();
  EXPECT_TRUE(spec.remembers());
  EXPECT_EQ(spec.actor.core.gates(), 3);
  EXPECT_EQ(spec.actor_state_size(), 5);
  EXPECT_EQ(spec.actor.num_layers(), 3u);
  EXPECT_EQ(spec.critic().core.gates(), 4);
  EXPECT_EQ(spec.critic().core.state_size(), 2 * 2 * 3) << "output and cell of two layers";
  EXPECT_EQ(spec.critic().num_layers(), 1u);
  EXPECT_EQ(KindName(spec.actor), "mlp+gru");
  EXPECT_TRUE(CheckEncoderIsMlp("the test", spec.critic()).ok());
  spec.mutable_critic()->encoder = EncoderKind(9);
  EXPECT_EQ(CheckEncoderIsMlp("the test", spec.critic()),
            absl::UnimplementedError("the test computes encoders of kind mlp, got unknown for the critic"));
  spec.mutable_critic()->encoder = EncoderKind::kMlp;
  spec.actor = SmallSpecForTesting().actor;
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  EXPECT_TRUE(spec.remembers()) << "the critic does";
  EXPECT_EQ(spec.actor_state_size(), 0) << "which workers need not know";
  EXPECT_FALSE(SmallSpecForTesting().remembers());
}

TEST(PolicySpecTest, APolicyWithoutNetworksRemembersNothing) {
  PolicySpec spec = WithCores();
  spec.policy_class = *ParsePolicyClass("random");
  DropNetworks(&spec);
  EXPECT_FALSE(spec.remembers());
  EXPECT_EQ(spec.sequence_length, 0);
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
}

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
// A spec without bytes, or with images of 0 to 255, has the text of every version, and so have policies of older runs.
TEST(PolicySpecTest, TextSaysWhereBytesAreScaledByTheirBounds) {
  PolicySpec spec = SmallSpecForTesting();
  const auto with = [&spec](const std::string& observation) -> PolicySpec& {
    spec.observation_space = *space::ParseSpace(observation);
    return spec;
  };
  for (const std::string same : {"Box(0, 1, [3])", "Box(0, 255, [3], uint8)", "Box([0, 0], [255, 255], uint8)",
                                 "Dict{a: Box(0, 9, [2], int32)}"}) {
    EXPECT_FALSE(with(same).bytes_have_bounds()) << same;
    const std::string text = spec.ToString();
    spec.bytes_by_255 = true;
    EXPECT_EQ(spec.ToString(), text) << same;
    spec.bytes_by_255 = false;
  }
  for (const std::string other : {"Box(0, 1, [3], uint8)", "Box([0, 0], [1, 255], uint8)",
                                  "Dict{a: Box(0, 255, [2], uint8)}", "Tuple(Discrete(2), Box(0, 1, [2], uint8))"}) {
    const PolicySpec by_bounds = with(other);
    EXPECT_TRUE(spec.bytes_have_bounds()) << other;
    spec.bytes_by_255 = true;
    EXPECT_EQ(by_bounds.ToString(), spec.ToString() + " bytes=bounds") << other;
    EXPECT_NE(ShapeOf(by_bounds), ShapeOf(spec)) << other;
    EXPECT_EQ(FirstDifference(spec, by_bounds),
              "the scaling of bytes is by_255, expected by_space; set model.scaling alike");
    spec.bytes_by_255 = false;
  }
  spec.policy_class = *ParsePolicyClass("random");
  EXPECT_FALSE(spec.bytes_have_bounds()) << "it has no networks";
}

TEST(PolicySpecTest, RewardsThatAreDiscountedWithinWaitsAreInTheTextAlone) {
  const PolicySpec spec = SmallSpecForTesting();
  PolicySpec by_env_step = spec;
  by_env_step.reward_discount = 0.9;
  EXPECT_EQ(by_env_step.ToString(), spec.ToString() + " reward_discount=0.90000000000000002");
  EXPECT_EQ(ShapeOf(by_env_step), ShapeOf(spec)) << "weights fit either";
  EXPECT_EQ(FirstDifference(by_env_step, spec), "");
}

TEST(PolicySpecTest, KindsOfNetworksAreToldApart) {
  const PolicySpec spec = SmallSpecForTesting();
  PolicySpec actor = spec;
  actor.actor.encoder = EncoderKind(9);
  EXPECT_EQ(actor.ToString(), spec.ToString() + " kind=actor:unknown");
  EXPECT_EQ(FirstDifference(actor, spec), "the actor's kind of network is unknown, expected mlp; set model alike");
  PolicySpec critic = spec;
  critic.mutable_critic()->core.kind = CoreKind(9);
  EXPECT_EQ(critic.ToString(), spec.ToString() + " kind=critic:mlp+unknown(unknown of 0 x 0, then [])");
  EXPECT_EQ(FirstDifference(spec, critic),
            "the critic's kind of network is mlp, expected mlp+unknown; set model alike");
  EXPECT_NE(ShapeOf(actor), ShapeOf(spec));
  EXPECT_NE(ShapeOf(critic), ShapeOf(spec));
  EXPECT_EQ(FirstDifference(spec, spec), "");
}

TEST(PolicySpecTest, TextAndShapeHaveEveryNumberOfACore) {
  const PolicySpec spec = WithCores();
  EXPECT_EQ(CoreText(spec.actor), "gru of 1 x 5, then [6]");
  EXPECT_EQ(CoreText(spec.critic()), "lstm of 2 x 3, then []");
  EXPECT_EQ(CoreText(SmallSpecForTesting().actor), "none");
  EXPECT_EQ(spec.ToString(),
            "policy p obs=Box(-1, 1, [3]) act=Discrete(2) actor=[4] critic=[] activation=tanh gain=0.01 log_std=0 "
            "critic_input=1 critic_state=0 agent_id=0 critic_agent_id=0 normalize=0 mask=0 bound=2 scaling=0"
            " kind=actor:mlp+gru(gru of 1 x 5, then [6]) kind=critic:mlp+lstm(lstm of 2 x 3, then []) sequence=7");
  const struct {
    std::function<void(PolicySpec*)> change;
    const char* difference;
  } kChanges[] = {
      {[](PolicySpec* s) { s->actor.core.kind = CoreKind::kLstm; },
       "the actor's kind of network is mlp+lstm, expected mlp+gru; set model alike"},
      {[](PolicySpec* s) { s->mutable_critic()->core.kind = CoreKind::kGru; },
       "the critic's kind of network is mlp+gru, expected mlp+lstm; set model alike"},
      {[](PolicySpec* s) { s->actor.core.size = 8; },
       "the actor's core is gru of 1 x 8, then [6], expected gru of 1 x 5, then [6]; set model alike"},
      {[](PolicySpec* s) { s->mutable_critic()->core.layers = 1; },
       "the critic's core is lstm of 1 x 3, then [], expected lstm of 2 x 3, then []; set model alike"},
      {[](PolicySpec* s) { s->actor.head_hidden_sizes = {}; },
       "the actor's core is gru of 1 x 5, then [], expected gru of 1 x 5, then [6]; set model alike"},
      {[](PolicySpec* s) { s->sequence_length = 8; }, "model.max_seq_len is 8, expected 7; set it alike"},
  };
  for (const auto& [change, difference] : kChanges) {
    PolicySpec other = spec;
    change(&other);
    EXPECT_TRUE(other.Validate().ok()) << other.Validate();
    EXPECT_NE(other.ToString(), spec.ToString()) << difference;
    EXPECT_NE(ShapeOf(other), ShapeOf(spec)) << difference;
    EXPECT_EQ(FirstDifference(other, spec), difference);
  }
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
