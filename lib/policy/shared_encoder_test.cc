// A critic that shares the actor's encoder (EncoderKind::kShared).

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

/// Weights of `role`, by name.
Shapes WeightsOf(const PolicySpec& spec, const std::string& role) {
  Shapes shapes;
  const ParameterLayout layout = ParameterLayout::For(spec);
  for (const ParameterEntry& entry : layout.entries()) {
    if (layout.sections()[entry.section].role != role || entry.name.find("bias") != std::string::npos) continue;
    shapes.emplace_back(entry.name, entry.shape);
  }
  return shapes;
}

TEST(SharedEncoderTest, TheCriticHasAHeadOfWhatTheActorsEncoderMakes) {
  PolicySpec spec = SharedSpecForTesting();
  spec.actor.hidden_sizes = {8, 6};
  EXPECT_EQ(spec.Validate(), absl::OkStatus());
  EXPECT_EQ(WeightsOf(spec, kActorRole),
            (Shapes{{"actor.0.weight", {8, 3}}, {"actor.1.weight", {6, 8}}, {"actor.2.weight", {2, 6}}}));
  EXPECT_EQ(WeightsOf(spec, kCriticRole), (Shapes{{"critic.0.weight", {1, 6}}}));
  spec.mutable_critic()->head_hidden_sizes = {5};
  spec.mutable_critic()->layer_norm = true;
  EXPECT_EQ(WeightsOf(spec, kCriticRole),
            (Shapes{{"critic.0.weight", {5, 6}}, {"critic.norm.0.weight", {5}}, {"critic.1.weight", {1, 5}}}));
}

TEST(SharedEncoderTest, OfACoreItsOutput) {
  PolicySpec spec = SharedSpecForTesting();
  spec.actor = SmallSpecWithCoresForTesting(CoreKind::kLstm, CoreKind::kNone).actor;
  spec.sequence_length = 7;
  EXPECT_EQ(spec.Validate(), absl::OkStatus());
  EXPECT_EQ(WeightsOf(spec, kCriticRole), (Shapes{{"critic.0.weight", {1, 5}}}));
}

TEST(SharedEncoderTest, WithoutHiddenLayersWhatConvolutionsMakeAndTheOneHot) {
  PolicySpec spec = SharedSpecForTesting();
  spec.observation_space = *space::Space::Box(0, 255, {6, 5, 2}, tensor::DType::kUint8);
  spec.actor.encoder = EncoderKind::kCnn;
  spec.actor.conv_layers = {{.channels = 4, .kernel = 3, .stride = 1}};
  spec.actor.hidden_sizes = {};
  spec.agent_id_size = 3;
  spec.SetCriticAgentId(true);
  EXPECT_EQ(spec.Validate(), absl::OkStatus());
  EXPECT_EQ(WeightsOf(spec, kCriticRole), (Shapes{{"critic.0.weight", {1, 4 * 3 * 4 + 3}}}));
  EXPECT_EQ(WeightsOf(spec, kActorRole)[1].second, (std::vector<int64_t>{2, 4 * 3 * 4 + 3}));
}

TEST(SharedEncoderTest, WorkersNeedWhatTheyNeedOfAnActor) {
  EXPECT_EQ(ParameterLayout::For(SharedSpecForTesting()).acting_size(),
            ParameterLayout::For(SmallSpecForTesting()).acting_size());
}

TEST(SharedEncoderTest, TextAndTableSayIt) {
  PolicySpec spec = SharedSpecForTesting();
  spec.mutable_critic()->head_hidden_sizes = {5, 7};
  EXPECT_NE(spec.ToString().find(" critic=[] "), std::string::npos) << spec.ToString();
  EXPECT_NE(spec.ToString().find(" kind=critic:shared head=critic:[5,7]"), std::string::npos) << spec.ToString();
  EXPECT_EQ(SmallSpecForTesting().ToString().find("head="), std::string::npos);
  PolicySpec other = spec;
  other.mutable_critic()->head_hidden_sizes = {5};
  EXPECT_NE(ShapeOf(other), ShapeOf(spec));
  EXPECT_EQ(FirstDifference(other, spec), "model.critic_head_hidden_sizes is [5], expected [5, 7]; set it alike");
  EXPECT_EQ(FirstDifference(spec, SmallSpecForTesting()),
            "the critic's kind of network is shared, expected mlp; set model alike");

  const PolicyTablePtr table = *PolicyTable::Make({spec}, {true}, {{"*", {{PolicyId("p")}}}}, {"agent_0"});
  const std::string json = ToJson(*table, TableReader::kWorker);
  const absl::StatusOr<PolicyTablePtr> back = PolicyTableFromJson(json);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ((*back)->Find(PolicySlot(0))->spec.critic(), spec.critic());
  EXPECT_EQ(ToJson(**back, TableReader::kWorker), json);
}

TEST(SharedEncoderTest, TensorsOfTheSameShapesAreNotTheSameNetwork) {
  PolicySpec shared = SharedSpecForTesting();
  shared.actor.hidden_sizes = {3};
  shared.mutable_critic()->head_hidden_sizes = {4};
  PolicySpec own = SmallSpecForTesting();
  own.actor.hidden_sizes = {3};
  EXPECT_EQ(FirstShapeDifference(shared, own), "");
  EXPECT_NE(FirstDifference(shared, own), "");
  EXPECT_NE(ShapeOf(shared), ShapeOf(own));
  own.id = PolicyId("q");
  EXPECT_FALSE(CheckSwappable({shared, own}).ok());
}

struct BadShared {
  const char* name;
  std::function<void(PolicySpec&)> spoil;
  const char* expected;
};

class BadSharedTest : public ::testing::TestWithParam<BadShared> {};

TEST_P(BadSharedTest, IsRefusedInWords) {
  PolicySpec spec = SharedSpecForTesting();
  GetParam().spoil(spec);
  EXPECT_EQ(spec.Validate(), absl::InvalidArgumentError(absl::StrCat("policy \"p\": ", GetParam().expected)));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadSharedTest,
    ::testing::Values(
        BadShared{"one_hot_of_the_actor_alone", [](PolicySpec& s) { s.agent_id_size = 2; },
                  "the critic shares the actor's encoder and reads observation; expected observation+agent_id, as the "
                  "actor"},
        BadShared{"joint", [](PolicySpec& s) { s.SetCriticInput(NetworkInput::kJointObservation, 7); },
                  "the critic shares the actor's encoder and reads joint_observation; expected observation, as the "
                  "actor"},
        BadShared{"state", [](PolicySpec& s) { s.SetCriticInput(NetworkInput::kState, 7); },
                  "the critic shares the actor's encoder and reads state; expected observation, as the actor"},
        BadShared{"core",
                  [](PolicySpec& s) {
                    s.mutable_critic()->core = {.kind = CoreKind::kGru, .size = 3, .layers = 1};
                    s.sequence_length = 4;
                  },
                  "the critic shares the actor's encoder and has a core; expected none beside the actor's"},
        BadShared{"layers", [](PolicySpec& s) { s.mutable_critic()->hidden_sizes = {4}; },
                  "critic_hidden_sizes has 1 layers; expected 0 to 0"},
        BadShared{"deep", [](PolicySpec& s) { s.mutable_critic()->head_hidden_sizes.assign(9, 4); },
                  "critic_head_hidden_sizes has 9 layers; expected 0 to 8"},
        BadShared{"wide", [](PolicySpec& s) { s.mutable_critic()->head_hidden_sizes = {16385}; },
                  "critic_head_hidden_sizes holds a layer of 16385 units; expected 1 to 16384"},
        BadShared{"convolutions", [](PolicySpec& s) { s.mutable_critic()->conv_layers = {{.channels = 1}}; },
                  "critic is no CNN, but has 1 convolutions; expected 0"},
        BadShared{"actor",
                  [](PolicySpec& s) {
                    s.actor.encoder = EncoderKind::kShared;
                    s.actor.hidden_sizes = {};
                  },
                  "the actor shares the actor's encoder, but is the actor; expected an encoder of its own"},
        BadShared{"module",
                  [](PolicySpec& s) {
                    s.actor.encoder = EncoderKind::kTorchScript;
                    s.actor.hidden_sizes = {};
                    s.actor.module.sha256 = std::string(64, 'a');
                  },
                  "the critic shares the actor's encoder, but the actor is a TorchScript module; expected one with an "
                  "encoder"}),
    [](const auto& info) { return info.param.name; });

TEST(SharedEncoderTest, EightLayersOfTheWidestAreTheMost) {
  PolicySpec spec = SharedSpecForTesting();
  spec.mutable_critic()->head_hidden_sizes.assign(8, 16384);
  EXPECT_EQ(spec.Validate(), absl::OkStatus());
}

}  // namespace
}  // namespace troupe::policy
