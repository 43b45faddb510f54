// Attention over agents: spec, text, table, layout.

#include "lib/policy/attention.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

using Sizes = std::vector<int64_t>;

TEST(AttentionTest, ACriticOfAllObservationsAttends) {
  PolicySpec spec = AttendingSpecForTesting();
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  EXPECT_EQ(spec.critic().attention.joint_observation_size(), 18);
  EXPECT_EQ(KindName(spec.critic()), "attention");
  EXPECT_EQ(spec.critic_input_size(), 18);
  spec.SetCriticAgentId(true);
  spec.mutable_critic()->hidden_sizes = {};
  EXPECT_TRUE(spec.Validate().ok()) << "attention reads the inputs: " << spec.Validate();
  spec.mutable_critic()->core = {CoreKind::kGru, 4, 1};
  spec.sequence_length = 5;
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  EXPECT_EQ(KindName(spec.critic()), "attention+gru");
  EXPECT_EQ(CheckEncoderIsMlp("the test", spec.critic()),
            absl::UnimplementedError("the test computes encoders of kind mlp, got attention for the critic"));
  DropNetworks(&spec);
  EXPECT_EQ(spec.critic().attention, AttentionSpec());
}

TEST(AttentionTest, ItsTensorsAreTorchs) {
  PolicySpec spec = AttendingSpecForTesting();
  spec.SetCriticAgentId(true);
  const ParameterLayout layout = ParameterLayout::For(spec);
  std::vector<std::string> names;
  for (const ParameterEntry& entry : layout.entries()) {
    if (layout.sections()[entry.section].role == kCriticRole) names.push_back(entry.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"critic.embedding.0.weight", "critic.embedding.0.bias",
                                             "critic.embedding.1.weight", "critic.embedding.1.bias",
                                             "critic.attention.in_proj_weight", "critic.attention.in_proj_bias",
                                             "critic.attention.out_proj.weight", "critic.attention.out_proj.bias",
                                             "critic.0.weight", "critic.0.bias", "critic.1.weight", "critic.1.bias"}));
  const auto shape = [&](const char* name) { return layout.Find(name)->shape; };
  EXPECT_EQ(shape("critic.embedding.0.weight"), (Sizes{6, 3}));
  EXPECT_EQ(shape("critic.embedding.1.weight"), (Sizes{6, 5}));
  EXPECT_EQ(shape("critic.embedding.1.bias"), Sizes{6});
  EXPECT_EQ(shape("critic.attention.in_proj_weight"), (Sizes{18, 6}));
  EXPECT_EQ(shape("critic.attention.in_proj_bias"), Sizes{18});
  EXPECT_EQ(shape("critic.attention.out_proj.weight"), (Sizes{6, 6}));
  EXPECT_EQ(shape("critic.attention.out_proj.bias"), Sizes{6});
  EXPECT_EQ(shape("critic.0.weight"), (Sizes{4, 6 + 4})) << "the one-hot lies behind the agents' mean";
  // More agents of a space change no tensor.
  PolicySpec more = AttendingSpecForTesting();
  more.mutable_critic()->attention.agents = {0, 1, 0, 0, 1, 1};
  more.joint_observation_size += 2 * (5 + 1);
  ASSERT_TRUE(more.Validate().ok()) << more.Validate();
  EXPECT_EQ(FirstShapeDifference(more, AttendingSpecForTesting()), "");
}

TEST(AttentionTest, TextAndTableHaveIt) {
  const PolicySpec spec = AttendingSpecForTesting();
  EXPECT_TRUE(absl::EndsWith(spec.ToString(),
                             " kind=critic:attention attention=critic:6 in 2 heads over observations of [3, 5] by "
                             "agents [0, 1, 0, 0]"))
      << spec.ToString();
  EXPECT_EQ(AttentionText(spec.actor), "none");
  EXPECT_EQ(spec.actor, SmallSpecForTesting().actor);
  const PolicyTablePtr table = *PolicyTable::Make({spec}, {true}, {{"*", {{PolicyId("p")}}}}, {"a", "b", "c", "d"});
  const absl::StatusOr<PolicyTablePtr> back = PolicyTableFromJson(ToJson(*table));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ((*back)->Find(PolicySlot(0))->spec.critic(), spec.critic());
  EXPECT_EQ((*back)->Find(PolicySlot(0))->spec.ToString(), spec.ToString());
  std::string json = ToJson(*table);
  json.replace(json.find("\"attention\":{"), 11, "\"intention\"");
  EXPECT_EQ(PolicyTableFromJson(json).status(),
            absl::InvalidArgumentError("policy table: policies[].learner_networks[].attention is missing, expected an "
                                       "object"));
  json = ToJson(*table);
  json.replace(json.find("\"heads\":2"), 9, "\"heads\":5");
  EXPECT_EQ(PolicyTableFromJson(json).status(),
            absl::InvalidArgumentError("policy \"p\": critic attends with 6 numbers an agent in 5 heads; expected 1 to "
                                       "1024 in 1 to 64 that divide them"));
  json = ToJson(*table);
  json.replace(json.find("\"heads\":2"), 9, "\"heads\":-");
  EXPECT_FALSE(PolicyTableFromJson(json).ok());
}

TEST(AttentionTest, DifferencesAreSaidInWords) {
  const PolicySpec spec = AttendingSpecForTesting();
  PolicySpec other = spec;
  other.mutable_critic()->attention.heads = 3;
  EXPECT_NE(ShapeOf(other), ShapeOf(spec)) << "the weights have the same shapes, but make another network";
  EXPECT_EQ(FirstDifference(other, spec),
            "the critic's attention is 6 in 3 heads over observations of [3, 5] by agents [0, 1, 0, 0], expected 6 in "
            "2 heads over observations of [3, 5] by agents [0, 1, 0, 0]; set model.attention_size, attention_heads "
            "and env alike");
  other.mutable_critic()->encoder = EncoderKind::kMlp;
  other.mutable_critic()->attention = {};
  EXPECT_EQ(FirstDifference(other, spec), "the critic's kind of network is mlp, expected attention; set model alike");
}

struct BadAttention {
  const char* name;
  std::function<void(PolicySpec&, AttentionSpec&)> spoil;
  const char* expected;
};

class BadAttentionTest : public testing::TestWithParam<BadAttention> {};

TEST_P(BadAttentionTest, IsRefusedInWords) {
  PolicySpec spec = AttendingSpecForTesting();
  GetParam().spoil(spec, spec.mutable_critic()->attention);
  EXPECT_EQ(spec.Validate(), absl::InvalidArgumentError(absl::StrCat("policy \"p\": ", GetParam().expected)));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadAttentionTest,
    testing::Values(
        BadAttention{"state", [](PolicySpec& s, AttentionSpec&) { s.SetCriticInput(NetworkInput::kState, 18); },
                     "critic attends to agents; expected a critic that reads all their observations"},
        BadAttention{"own", [](PolicySpec& s, AttentionSpec&) { s.SetCriticInput(NetworkInput::kObservation, 0); },
                     "critic attends to agents; expected a critic that reads all their observations"},
        BadAttention{"actor",
                     [](PolicySpec& s, AttentionSpec&) {
                       s.actor.encoder = EncoderKind::kAttention;
                       s.actor.attention = s.critic().attention;
                     },
                     "actor attends to agents; expected a critic that reads all their observations"},
        BadAttention{"numbers_alone",
                     [](PolicySpec& s, AttentionSpec&) { s.mutable_critic()->encoder = EncoderKind::kMlp; },
                     "critic has no attention, but numbers of one"},
        BadAttention{"no_size", [](PolicySpec&, AttentionSpec& a) { a.size = 0; },
                     "critic attends with 0 numbers an agent in 2 heads; expected 1 to 1024 in 1 to 64 that divide "
                     "them"},
        BadAttention{"large", [](PolicySpec&, AttentionSpec& a) { a.size = 1026; },
                     "critic attends with 1026 numbers an agent in 2 heads; expected 1 to 1024 in 1 to 64 that divide "
                     "them"},
        BadAttention{"no_heads", [](PolicySpec&, AttentionSpec& a) { a.heads = 0; },
                     "critic attends with 6 numbers an agent in 0 heads; expected 1 to 1024 in 1 to 64 that divide "
                     "them"},
        BadAttention{"many_heads",
                     [](PolicySpec&, AttentionSpec& a) {
                       a.size = 65;
                       a.heads = 65;
                     },
                     "critic attends with 65 numbers an agent in 65 heads; expected 1 to 1024 in 1 to 64 that divide "
                     "them"},
        BadAttention{"nobody", [](PolicySpec&, AttentionSpec& a) { a.agents = {}; },
                     "critic attends to 0 agents; expected 1 to 256"},
        BadAttention{"everybody", [](PolicySpec&, AttentionSpec& a) { a.agents.assign(257, 0); },
                     "critic attends to 257 agents; expected 1 to 256"},
        BadAttention{"unknown_space", [](PolicySpec&, AttentionSpec& a) { a.agents[3] = 2; },
                     "critic attends to an agent of observation space 2; expected 0 to 1, since agents name them in "
                     "order"},
        BadAttention{"negative_space", [](PolicySpec&, AttentionSpec& a) { a.agents[3] = -1; },
                     "critic attends to an agent of observation space -1; expected 0 to 1, since agents name them in "
                     "order"},
        BadAttention{"another_order",
                     [](PolicySpec&, AttentionSpec& a) {
                       a.agents = {1, 0, 1, 1};
                     },
                     "critic attends to an agent of observation space 1; expected 0 to 0, since agents name them in "
                     "order"},
        BadAttention{"no_spaces", [](PolicySpec&, AttentionSpec& a) { a.observation_sizes = {}; },
                     "critic has 0 observation spaces of 4 agents; expected 1 to 4"},
        BadAttention{"many_spaces", [](PolicySpec&, AttentionSpec& a) { a.observation_sizes.assign(5, 3); },
                     "critic has 5 observation spaces of 4 agents; expected 1 to 4"},
        BadAttention{"unnamed_space",
                     [](PolicySpec&, AttentionSpec& a) {
                       a.agents = {0, 0, 0, 0};
                     },
                     "critic has 2 observation spaces, of which agents name 1"},
        BadAttention{"empty_space", [](PolicySpec&, AttentionSpec& a) { a.observation_sizes[1] = 0; },
                     "critic embeds observations of 0 elements; expected 1 to 16777216"},
        BadAttention{"other_sizes", [](PolicySpec&, AttentionSpec& a) { a.observation_sizes[1] = 6; },
                     "critic attends to agents whose observations and presence bits are 19 elements; expected those "
                     "of the joint observation, 18"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::policy
