#include "lib/policy/leaf_encoders.h"

#include <sys/resource.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

/// Leaves arm (2), camera (12 x 10 x 3 bytes), goal (3), touch (4), of which the actor's encoders read camera and
/// touch, the critic's the arm.
PolicySpec LeavesSpec() {
  PolicySpec spec = SmallSpecForTesting();
  spec.observation_space = *space::ParseSpace(
      "Dict{arm: Box(-1, 1, [2]), camera: Box(0, 255, [12, 10, 3], uint8), goal: Discrete(3), touch: Box(0, 9, [4], "
      "uint8)}");
  spec.actor.encoder = EncoderKind::kLeaves;
  spec.actor.leaf_encoders = {{.leaf = 1, .conv_layers = {{8, 4, 2}, {6, 2, 1}}, .hidden_sizes = {7}},
                              {.leaf = 3, .hidden_sizes = {9, 5}}};
  spec.actor.hidden_sizes = {4};
  spec.mutable_critic()->encoder = EncoderKind::kLeaves;
  spec.mutable_critic()->leaf_encoders = {{.leaf = 0, .hidden_sizes = {6}}};
  return spec;
}

TEST(LeafEncodersTest, PartsAreTheWholeRow) {
  PolicySpec spec = LeavesSpec();
  EXPECT_FALSE(ObservationParts(spec, spec.actor)[1].divided) << "rows are scaled before";
  spec.bytes_by_255 = true;
  std::vector<ObservationPart> parts = ObservationParts(spec, spec.actor);
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0].size, 2);
  EXPECT_EQ(parts[0].made, 2);
  EXPECT_EQ(parts[0].encoder, nullptr);
  EXPECT_EQ(parts[1].first, 2);
  EXPECT_EQ(parts[1].size, 360);
  EXPECT_EQ(parts[1].image, (ImageShape{12, 10, 3}));
  EXPECT_TRUE(parts[1].divided);
  EXPECT_EQ(parts[1].made, 7);
  EXPECT_EQ(parts[1].stem, "leaf.1.");
  EXPECT_EQ(parts[1].encoder, &spec.actor.leaf_encoders[0]);
  EXPECT_EQ(parts[2].first, 362);
  EXPECT_EQ(parts[2].size, 3);
  EXPECT_EQ(parts[3].first, 365);
  EXPECT_EQ(parts[3].image.size(), 0);
  EXPECT_EQ(parts[3].made, 5);
  EXPECT_EQ(EncodedObservationSize(spec, spec.actor), 2 + 7 + 3 + 5);
  EXPECT_EQ(EncodedObservationSize(spec, spec.critic()), 6 + 360 + 3 + 4);
  parts = ObservationParts(spec, spec.critic());
  ASSERT_EQ(parts.size(), 2u) << "leaves without encoders stand side by side";
  EXPECT_FALSE(parts[0].divided) << "floats";
  spec.normalize_observations = true;
  for (const ObservationPart& part : ObservationParts(spec, spec.actor)) EXPECT_FALSE(part.divided);
}

TEST(LeafEncodersTest, WithoutLayersBehindThemConvolutionsAreRead) {
  PolicySpec spec = LeavesSpec();
  spec.actor.leaf_encoders[0].hidden_sizes = {};
  EXPECT_EQ(EncodedObservationSize(spec, spec.actor), 2 + 4 * 3 * 6 + 3 + 5);
  spec.actor.hidden_sizes = {};
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  EXPECT_EQ(ParameterLayout::For(spec).Find("actor.0.weight")->shape, (std::vector<int64_t>{2, 2 + 72 + 3 + 5}));
}

TEST(LeafEncodersTest, TensorsAreCalledByPlaces) {
  PolicySpec spec = LeavesSpec();
  spec.agent_id_size = 3;
  spec.actor.layer_norm = true;
  std::vector<std::pair<std::string, std::vector<int64_t>>> entries;
  const ParameterLayout layout = ParameterLayout::For(spec);
  for (const ParameterEntry& entry : layout.entries()) {
    if (entry.name.find(".bias") == std::string::npos) entries.emplace_back(entry.name, entry.shape);
  }
  EXPECT_EQ(entries,
            (std::vector<std::pair<std::string, std::vector<int64_t>>>{{"actor.leaf.1.conv.0.weight", {8, 3, 4, 4}},
                                                                       {"actor.leaf.1.conv.1.weight", {6, 8, 2, 2}},
                                                                       {"actor.leaf.1.0.weight", {7, 72}},
                                                                       {"actor.leaf.1.norm.0.weight", {7}},
                                                                       {"actor.leaf.3.0.weight", {9, 4}},
                                                                       {"actor.leaf.3.norm.0.weight", {9}},
                                                                       {"actor.leaf.3.1.weight", {5, 9}},
                                                                       {"actor.leaf.3.norm.1.weight", {5}},
                                                                       {"actor.0.weight", {4, 20}},
                                                                       {"actor.norm.0.weight", {4}},
                                                                       {"actor.1.weight", {2, 4}},
                                                                       {"critic.leaf.0.0.weight", {6, 2}},
                                                                       {"critic.0.weight", {4, 373}},
                                                                       {"critic.1.weight", {1, 4}}}));
}

TEST(LeafEncodersTest, TextAndTableSayThem) {
  const PolicySpec spec = LeavesSpec();
  const std::string text = spec.ToString();
  EXPECT_NE(text.find(" kind=actor:leaves kind=critic:leaves"), std::string::npos) << text;
  EXPECT_NE(text.find(" leaves=actor:{1: [[8, 4, 2], [6, 2, 1]] [7], 3: [] [9, 5]} leaves=critic:{0: [] [6]}"),
            std::string::npos)
      << text;
  PolicySpec other = spec;
  other.mutable_critic()->leaf_encoders[0].leaf = 3;
  EXPECT_NE(other.ToString(), text);
  EXPECT_EQ(FirstDifference(other, spec),
            "the critic's encoders of leaves is {3: [] [6]}, expected {0: [] [6]}; set model alike");
  other = spec;
  other.actor.leaf_encoders[1].hidden_sizes = {9};
  EXPECT_EQ(FirstDifference(spec, other).find("the actor's encoders of leaves is {1: "), 0u);
  EXPECT_NE(ShapeOf(other), ShapeOf(spec));

  const PolicyTablePtr table = *PolicyTable::Make({spec}, {true}, {{"*", {{PolicyId("p")}}}}, {"agent_0"});
  const std::string json = ToJson(*table, TableReader::kWorker);
  const absl::StatusOr<PolicyTablePtr> back = PolicyTableFromJson(json);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ((*back)->Find(PolicySlot(0))->spec.actor, spec.actor);
  EXPECT_EQ((*back)->Find(PolicySlot(0))->spec.critic(), spec.critic());
  EXPECT_EQ(ToJson(**back, TableReader::kWorker), json);
}

TEST(LeafEncodersTest, WithoutThemTextAndTableAreAsTheyWere) {
  PolicySpec spec = LeavesSpec();
  for (NetworkSpec* const network : {&spec.actor, spec.mutable_critic()}) {
    network->encoder = EncoderKind::kMlp;
    network->leaf_encoders = {};
  }
  EXPECT_EQ(spec.ToString(), "policy p obs=" + spec.observation_space.ToString() +
                                 " act=Discrete(2) actor=[4] critic=[4] activation=tanh gain=0.01 log_std=0 "
                                 "critic_input=1 critic_state=0 agent_id=0 critic_agent_id=0 normalize=0 mask=0 "
                                 "bound=2 scaling=0 bytes=bounds");
  const PolicyTablePtr table = *PolicyTable::Make({spec}, {true}, {{"*", {{PolicyId("p")}}}}, {"agent_0"});
  EXPECT_EQ(ToJson(*table, TableReader::kWorker).find("leaf"), std::string::npos);
}

TEST(LeafEncodersTest, ATableWithoutWhatTheyNeedIsRefused) {
  const PolicyTablePtr table = *PolicyTable::Make({LeavesSpec()}, {true}, {{"*", {{PolicyId("p")}}}}, {"agent_0"});
  const std::string json = ToJson(*table, TableReader::kWorker);
  const auto error = [&json](const std::string& from, const std::string& to) {
    std::string text = json;
    text.replace(text.find(from), from.size(), to);
    return std::string(PolicyTableFromJson(text).status().message());
  };
  EXPECT_EQ(error("\"leaf_encoders\"", "\"leaf_encoder\""),
            "policy table: policies[].actor.leaf_encoders is missing, expected a list");
  EXPECT_EQ(error("\"leaf\":3", "\"leaf\":-3").find("policy table: policies[].actor.leaf_encoders[].leaf is number"),
            0u);
  EXPECT_EQ(error("\"kernel\":4", "\"kernel\":\"4\"")
                .find("policy table: policies[].actor.leaf_encoders[].conv_layers[].kernel is string"),
            0u);
  EXPECT_EQ(error("\"leaf\":3", "\"leaf\":4").find("policy \"p\": actor has an encoder of leaf 4"), 0u);
}

TEST(LeafEncodersTest, KeysOfSomebodysSpaceCostTheirLengthOnce) {
  // A name for each leaf would be 4 GB; the text of a space may be anybody's.
  constexpr int64_t kParts = 1 << 12;
  const std::vector<space::Space> parts(kParts, *space::Space::Discrete(1));
  PolicySpec spec = LeavesSpec();
  spec.observation_space = *space::Space::Dict({{std::string(1 << 20, 'k'), *space::Space::Tuple(parts)}});
  spec.actor.leaf_encoders = {{.leaf = kParts, .hidden_sizes = {1}}};
  const auto peak_kib = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const long before = peak_kib();
  EXPECT_EQ(spec.Validate().code(), absl::StatusCode::kInvalidArgument);
  spec.actor.leaf_encoders[0].leaf = kParts - 1;
  EXPECT_EQ(spec.Validate(), absl::OkStatus());
  EXPECT_EQ(EncodedObservationSize(spec, spec.actor), kParts);
  EXPECT_LT(peak_kib() - before, 256 << 10);
}

struct BadLeaves {
  const char* name;
  std::function<void(PolicySpec&)> spoil;
  const char* expected;
};
class BadLeavesTest : public ::testing::TestWithParam<BadLeaves> {};

TEST_P(BadLeavesTest, AreRefusedInWords) {
  PolicySpec spec = LeavesSpec();
  ASSERT_TRUE(spec.Validate().ok()) << spec.Validate();
  GetParam().spoil(spec);
  const absl::Status status = spec.Validate();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(GetParam().expected), absl::string_view::npos) << status;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadLeavesTest,
    ::testing::Values(
        BadLeaves{"none", [](PolicySpec& s) { s.actor.leaf_encoders = {}; },
                  "policy \"p\": actor has 0 encoders of leaves; expected 1 to 64"},
        BadLeaves{"many", [](PolicySpec& s) { s.actor.leaf_encoders.assign(65, {.leaf = 0, .hidden_sizes = {1}}); },
                  "actor has 65 encoders of leaves; expected 1 to 64"},
        BadLeaves{"of_an_mlp", [](PolicySpec& s) { s.mutable_critic()->encoder = EncoderKind::kMlp; },
                  "critic has encoders of leaves, 1, but its own is of another kind; expected 0"},
        BadLeaves{"no_dict", [](PolicySpec& s) { s.observation_space = *space::Space::Box(0, 1, {3}); },
                  "actor has encoders of leaves, but the observation has none; expected a Dict or a Tuple"},
        BadLeaves{"joint", [](PolicySpec& s) { s.SetCriticInput(NetworkInput::kJointObservation, 741); },
                  "critic has encoders of leaves and reads joint_observation; expected one whose first input is"},
        BadLeaves{"unknown", [](PolicySpec& s) { s.actor.leaf_encoders[1].leaf = 4; },
                  "actor has an encoder of leaf 4; expected one of 4 leaves, numbered from 0, in their order and each "
                  "once"},
        BadLeaves{"negative", [](PolicySpec& s) { s.actor.leaf_encoders[0].leaf = -1; }, "an encoder of leaf -1;"},
        BadLeaves{"twice", [](PolicySpec& s) { s.actor.leaf_encoders[1].leaf = 1; }, "an encoder of leaf 1;"},
        BadLeaves{"empty", [](PolicySpec& s) { s.actor.leaf_encoders[1].hidden_sizes = {}; },
                  "actor's encoder of leaf 3 has no layers; expected convolutions or 1 to 8 hidden layers"},
        BadLeaves{"deep", [](PolicySpec& s) { s.actor.leaf_encoders[1].hidden_sizes.assign(9, 1); },
                  "actor's encoder of leaf 3 has 9 hidden layers; expected 0 to 8"},
        BadLeaves{"wide", [](PolicySpec& s) { s.actor.leaf_encoders[1].hidden_sizes[1] = 16385; },
                  "encoder of leaf 3 has a hidden layer of 16385 units; expected 1 to 16384"},
        BadLeaves{"no_image",
                  [](PolicySpec& s) {
                    s.actor.leaf_encoders[1].conv_layers = {{1, 1, 1}};
                  },
                  "actor's encoder of leaf 3 is a CNN, but Box(0, 9, [4], uint8) is no image; expected a Box of"},
        BadLeaves{"larger", [](PolicySpec& s) { s.actor.leaf_encoders[0].conv_layers[1].kernel = 5; },
                  "actor's encoder of leaf 1's convolution 1 has a kernel of 5 x 5, but what it reads is 5 x 4"},
        BadLeaves{"nine_convolutions",
                  [](PolicySpec& s) {
                    s.actor.leaf_encoders[0].conv_layers.assign(9, {1, 1, 1});
                  },
                  "encoder of leaf 1 has 9 convolutions; expected 1 to 8"},
        BadLeaves{"own_convolutions",
                  [](PolicySpec& s) {
                    s.actor.conv_layers = {{1, 1, 1}};
                  },
                  "actor is no CNN, but has 1 convolutions; expected 0"},
        BadLeaves{"too_much",
                  [](PolicySpec& s) {
                    s.observation_space = *space::ParseSpace(
                        "Dict{a: Box(0, 1, [128, 128]), b: Box(0, 1, [128, 128]), c: Box(0, 1, [4], uint8)}");
                    s.actor.leaf_encoders = {{.leaf = 0, .conv_layers = {{600, 1, 1}}},
                                             {.leaf = 1, .conv_layers = {{600, 1, 1}}}};
                  },
                  "actor's encoders make 19660804 numbers of an observation; expected at most 16777216"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace troupe::policy
