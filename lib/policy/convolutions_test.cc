#include "lib/policy/convolutions.h"

#include <functional>
#include <string>
#include <vector>

#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

/// Actor and critic with convolutions over 20 x 12 pixels of 3 channels.
PolicySpec CnnSpec() {
  PolicySpec spec = SmallSpecForTesting();
  spec.observation_space = *space::Space::Box(0, 255, {20, 12, 3}, tensor::DType::kUint8);
  spec.actor.encoder = EncoderKind::kCnn;
  spec.actor.conv_layers = {{16, 4, 2}, {8, 3, 1}};
  spec.mutable_critic()->encoder = EncoderKind::kCnn;
  spec.mutable_critic()->conv_layers = {{4, 5, 3}};
  return spec;
}

TEST(ConvolutionsTest, WhatALayerMakesIsTorchs) {
  const ConvLayer layer = {32, 8, 4};
  EXPECT_EQ(layer.OutputOf({84, 84, 4}), (ImageShape{20, 20, 32}));
  EXPECT_EQ(layer.OutputOf({8, 11, 4}), (ImageShape{1, 1, 32}));
  EXPECT_EQ(layer.OutputOf({7, 84, 4}).size(), 0);
  EXPECT_EQ(CnnSpec().actor.Convolved(CnnSpec().image()), (ImageShape{7, 3, 8}));
}

TEST(ConvolutionsTest, AnImageIsABoxOfTwoOrThreeDimensions) {
  PolicySpec spec = CnnSpec();
  EXPECT_EQ(spec.image(), (ImageShape{20, 12, 3}));
  EXPECT_TRUE(spec.image_bytes());
  spec.actor.encoder = EncoderKind::kMlp;
  EXPECT_TRUE(spec.image_bytes()) << "the critic's are there";
  spec.observation_space = *space::Space::Box(0, 1, {20, 12});
  EXPECT_EQ(spec.image(), (ImageShape{20, 12, 1}));
  EXPECT_FALSE(spec.image_bytes()) << "floats";
  spec = SmallSpecForTesting();
  EXPECT_EQ(spec.image().size(), 0);
  spec.observation_space = *space::Space::Box(0, 255, {20, 12}, tensor::DType::kUint8);
  EXPECT_FALSE(spec.image_bytes()) << "no convolutions";
}

TEST(ConvolutionsTest, LayoutHasThemBeforeTheLayersThatReadThem) {
  PolicySpec spec = CnnSpec();
  spec.agent_id_size = 2;
  spec.actor.hidden_sizes = {5};
  const ParameterLayout layout = ParameterLayout::For(spec);
  const auto shape = [&layout](const std::string& name) { return layout.Find(name)->shape; };
  EXPECT_EQ(layout.entries()[0].name, "actor.conv.0.weight");
  EXPECT_EQ(shape("actor.conv.0.weight"), (std::vector<int64_t>{16, 3, 4, 4}));
  EXPECT_EQ(shape("actor.conv.0.bias"), (std::vector<int64_t>{16}));
  EXPECT_EQ(shape("actor.conv.1.weight"), (std::vector<int64_t>{8, 16, 3, 3}));
  EXPECT_EQ(shape("actor.0.weight"), (std::vector<int64_t>{5, 7 * 3 * 8 + 2})) << "and the agent's one-hot";
  EXPECT_EQ(shape("critic.conv.0.weight"), (std::vector<int64_t>{4, 3, 5, 5}));
  EXPECT_EQ(shape("critic.0.weight")[1], 6 * 3 * 4);
  spec.actor.hidden_sizes = {};
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  EXPECT_EQ(ParameterLayout::For(spec).Find("actor.0.weight")->shape, (std::vector<int64_t>{2, 7 * 3 * 8 + 2}));
}

/// The critic convolves the images of three agents.
PolicySpec JointSpec() {
  PolicySpec spec = CnnSpec();
  spec.agent_id_size = 3;
  spec.SetCriticInput(NetworkInput::kJointObservation, 3 * (spec.observation_size() + 1));
  return spec;
}

TEST(ConvolutionsTest, ACriticOfTheJointObservationConvolvesEachAgentsImageAlike) {
  PolicySpec spec = JointSpec();
  EXPECT_TRUE(spec.Validate().ok()) << spec.Validate();
  EXPECT_EQ(spec.ImagesOf(spec.critic()), 3);
  EXPECT_EQ(spec.ImagesOf(spec.actor), 1);
  EXPECT_EQ(spec.ByteElements(spec.critic()), 3 * 20 * 12 * 3);
  EXPECT_EQ(spec.ByteElements(spec.actor), 20 * 12 * 3);
  spec.SetCriticAgentId(true);
  const ParameterLayout layout = ParameterLayout::For(spec);
  const auto shape = [&layout](const std::string& name) { return layout.Find(name)->shape; };
  EXPECT_EQ(shape("critic.conv.0.weight"), (std::vector<int64_t>{4, 3, 5, 5})) << "one for all agents";
  EXPECT_EQ(shape("critic.0.weight")[1], 3 * 6 * 3 * 4 + 3 + 3) << "images, presence bits, the one-hot";
  PolicySpec flat = spec;
  flat.mutable_critic()->encoder = EncoderKind::kMlp;
  flat.mutable_critic()->conv_layers = {};
  EXPECT_EQ(flat.ImagesOf(flat.critic()), 0);
  EXPECT_EQ(flat.ByteElements(flat.critic()), 0) << "as floats, though the actor's images are bytes";
  EXPECT_TRUE(flat.image_bytes());
  PolicySpec floats = spec;
  floats.observation_space = *space::Space::Box(0, 1, {20, 12, 3});
  EXPECT_EQ(floats.ByteElements(floats.critic()), 0);
  EXPECT_EQ(floats.ImagesOf(floats.critic()), 3);
}

TEST(ConvolutionsTest, SaysWhatAllAgentsImagesCannotHave) {
  const auto error = [](const std::function<void(PolicySpec*)>& spoil) {
    PolicySpec spec = JointSpec();
    spoil(&spec);
    return std::string(spec.Validate().message());
  };
  EXPECT_EQ(error([](PolicySpec* spec) { spec->joint_observation_size -= 1; }),
            "policy \"p\": critic convolves the images of all agents, but the joint observation has 2162 elements; "
            "expected 720 and a presence bit of each agent");
  EXPECT_EQ(
      error([](PolicySpec* spec) { spec->normalize_state = true; }),
      "policy \"p\": the critic reads all agents' images of bytes scaled by their bounds; expected normalize_state: "
      "false");
  EXPECT_NE(error([](PolicySpec* spec) {
              spec->mutable_critic()->conv_layers = {{1024, 1, 1}};
              spec->SetCriticInput(NetworkInput::kJointObservation, 100 * 721);
            }).find("'s convolutions make 24576000 numbers of all agents' images; expected at most "),
            std::string::npos);
}

TEST(ConvolutionsTest, TextAndTableSayThem) {
  const PolicySpec spec = CnnSpec();
  EXPECT_NE(spec.ToString().find(" kind=actor:cnn kind=critic:cnn"), std::string::npos) << spec.ToString();
  EXPECT_NE(spec.ToString().find(" conv=actor:[[16, 4, 2], [8, 3, 1]] conv=critic:[[4, 5, 3]]"), std::string::npos);
  PolicySpec other = spec;
  other.actor.conv_layers[1].stride = 2;
  EXPECT_NE(other.ToString(), spec.ToString());
  EXPECT_NE(FirstDifference(other, spec)
                .find("the actor's convolutions is [[16, 4, 2], [8, 3, 2]], expected [[16, 4, "
                      "2], [8, 3, 1]]"),
            std::string::npos)
      << FirstDifference(other, spec);
}

TEST(ConvolutionsTest, TheyComeBackFromATable) {
  const PolicyTablePtr table = *PolicyTable::Make({CnnSpec()}, {true}, {{"*", {{PolicyId("p")}}}}, {"agent_0"});
  const std::string text = ToJson(*table, TableReader::kWorker);
  const absl::StatusOr<PolicyTablePtr> back = PolicyTableFromJson(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ((*back)->Find(PolicySlot(0))->spec.ToString(), CnnSpec().ToString());
  EXPECT_EQ((*back)->Find(PolicySlot(0))->spec.actor, CnnSpec().actor);
  EXPECT_EQ(ToJson(**back, TableReader::kWorker), text);
}

struct BadImage {
  const char* name;
  std::function<void(PolicySpec&)> spoil;
  const char* expected;
};
class BadImageTest : public ::testing::TestWithParam<BadImage> {};

TEST_P(BadImageTest, IsRefusedInWords) {
  PolicySpec spec = CnnSpec();
  ASSERT_TRUE(spec.Validate().ok()) << spec.Validate();
  GetParam().spoil(spec);
  const absl::Status status = spec.Validate();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(GetParam().expected), absl::string_view::npos) << status;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadImageTest,
    ::testing::Values(
        BadImage{"none", [](PolicySpec& s) { s.actor.conv_layers = {}; }, "actor has 0 convolutions; expected 1 to 8"},
        BadImage{"nine",
                 [](PolicySpec& s) {
                   s.actor.conv_layers.assign(9, {1, 1, 1});
                 },
                 "has 9 convolutions"},
        BadImage{"of_an_mlp", [](PolicySpec& s) { s.actor.encoder = EncoderKind::kMlp; },
                 "actor is no CNN, but has 2 convolutions; expected 0"},
        BadImage{"channels", [](PolicySpec& s) { s.actor.conv_layers[0].channels = 1025; },
                 "actor's convolution 0 has 1025 channels, kernel 4, stride 2; expected 1 to 1024, 1 to 64, 1 to 64"},
        BadImage{"kernel", [](PolicySpec& s) { s.actor.conv_layers[0].kernel = 0; }, "kernel 0"},
        BadImage{"stride", [](PolicySpec& s) { s.actor.conv_layers[0].stride = 65; }, "stride 65"},
        BadImage{"too_much",
                 [](PolicySpec& s) {
                   s.observation_space = *space::Space::Box(0, 255, {1024, 1024, 1}, tensor::DType::kUint8);
                   s.actor.conv_layers = {{1024, 1, 1}, {1, 64, 64}};
                 },
                 "actor's convolution 0 makes 1073741824 numbers of an image; expected at most 16777216"},
        BadImage{
            "larger", [](PolicySpec& s) { s.actor.conv_layers[1].kernel = 6; },
            "actor's convolution 1 has a kernel of 6 x 6, but what it reads is 9 x 5; expected a kernel that fits"},
        BadImage{"no_image", [](PolicySpec& s) { s.observation_space = *space::Space::Box(0, 1, {720}); },
                 "actor is a CNN, but the observation is no image; expected a Box of [height, width]"},
        BadImage{"state", [](PolicySpec& s) { s.SetCriticInput(NetworkInput::kState, 5); },
                 "critic is a CNN that reads state; expected one whose first input is the observation"},
        BadImage{
            "normalized", [](PolicySpec& s) { s.normalize_observations = true; },
            "images of bytes, which networks read scaled by their bounds; expected normalize_observations: false"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace troupe::policy
