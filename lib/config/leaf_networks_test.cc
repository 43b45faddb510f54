// Encoders of leaves of Dict and Tuple observations: model.leaf_encoders, and what model.encoder says of their images.

#include "lib/config/leaf_networks.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/config/image_networks.h"
#include "lib/config/testing/resolve_fixture.h"
#include "lib/config/worker_yaml.h"
#include "lib/policy/policy_spec.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using policy::EncoderKind;
using policy::LeafEncoder;
using testing::ElementsAre;
using testing::HasSubstr;
using Encoders = std::vector<LeafEncoder>;

class LeafNetworksTest : public ResolveFixture {
 protected:
  LeafNetworksTest() {
    AddDict("robot",
            "Dict{arm: Tuple(Box(-1, 1, [2]), Box(-1, 1, [3])), camera: Box(0, 255, [20, 16, 3], uint8), "
            "depth: Box(0, 1, [12, 12]), goal: Discrete(4), icon: Box(0, 255, [4, 4, 1], uint8)}");
    AddDict("blind", "Dict{arm: Box(-1, 1, [2]), goal: Discrete(4)}");
    AddDict("pixels", "Box(0, 255, [20, 16, 3], uint8)");
    std::vector<space::Space> leaves(65, *space::Space::Box(-1, 1, {1}));
    AddDict("many", (*space::Space::Tuple(leaves)).ToString());
  }
  void AddDict(const std::string& name, const std::string& space) {
    const space::Space observation = *space::ParseSpace(space);
    env::EnvSpec spec = Spec(name, {Agent("a", observation, *space::Space::Discrete(2)),
                                    Agent("b", observation, *space::Space::Discrete(2))});
    spec.state_kind = env::StateKind::kPerEnv;
    spec.state_space = *space::Space::Box(-1, 1, {7});
    Add(spec);
  }
  policy::PolicySpec Of(const std::string& env, const std::string& model, const std::string& algorithm = "name: ippo") {
    return Resolve(absl::StrCat("env: {name: ", env, "}\nalgorithm: {", algorithm, "}\nmodel: {", model, "}\n"))
        .policies.at(0);
  }
  std::string ErrorOfModel(const std::string& env, const std::string& model) {
    return ErrorOf(absl::StrCat("env: {name: ", env, "}\nmodel: {", model, "}\n"));
  }
};

TEST_F(LeafNetworksTest, ImagesOfBytesAmongLeavesAreConvolvedByTheirSize) {
  const policy::PolicySpec spec = Of("robot", "");
  for (const policy::NetworkSpec* const network : {&spec.actor, &spec.critic()}) {
    EXPECT_EQ(network->encoder, EncoderKind::kLeaves);
    EXPECT_EQ(network->leaf_encoders, (Encoders{{.leaf = 2, .conv_layers = {{16, 3, 2}, {32, 3, 2}}}}));
    EXPECT_EQ(network->hidden_sizes, (std::vector<int64_t>{64, 64}));
  }
  EXPECT_EQ(Of("robot", "conv_filters: [[4, 8, 4]], actor_hidden_sizes: []").actor.leaf_encoders,
            (Encoders{{.leaf = 2, .conv_layers = {{4, 8, 4}}}}));
}

TEST_F(LeafNetworksTest, WithoutAnImageAllIsAsItWas) {
  for (const char* const model : {"", "encoder: mlp", "leaf_encoders: auto", "leaf_encoders: {\"*\": flat}"}) {
    const policy::PolicySpec spec = Of("blind", model);
    EXPECT_EQ(spec.actor.encoder, EncoderKind::kMlp) << model;
    EXPECT_EQ(spec.ToString(), Of("blind", "").ToString());
    EXPECT_EQ(spec.ToString().find("leaves"), std::string::npos);
  }
  EXPECT_EQ(Of("robot", "encoder: mlp").actor.encoder, EncoderKind::kMlp);
  EXPECT_EQ(Of("robot", "leaf_encoders: {camera: flat}").actor.encoder, EncoderKind::kMlp);
}

TEST_F(LeafNetworksTest, TheFirstGlobThatMatchesIsTheLeafs) {
  const policy::PolicySpec spec = Of("robot",
                                     "leaf_encoders: {goal: flat, 'arm/*': {hidden_sizes: [32, 8]}, camera: "
                                     "{hidden_sizes: [64]}, depth: {conv_filters: [[4, [3, 3], 2]]}, '*': "
                                     "{hidden_sizes: [5]}}");
  const Encoders expected = {{.leaf = 0, .hidden_sizes = {32, 8}},
                             {.leaf = 1, .hidden_sizes = {32, 8}},
                             {.leaf = 2, .conv_layers = {{16, 3, 2}, {32, 3, 2}}, .hidden_sizes = {64}},
                             {.leaf = 3, .conv_layers = {{4, 3, 2}}},
                             {.leaf = 5, .hidden_sizes = {5}}};
  EXPECT_EQ(spec.actor.leaf_encoders, expected);
  EXPECT_EQ(spec.critic().leaf_encoders, expected);
  EXPECT_EQ(Of("robot", "encoder: mlp, leaf_encoders: {camera: {hidden_sizes: [64]}}").actor.leaf_encoders,
            (Encoders{{.leaf = 2, .hidden_sizes = {64}}}))
      << "what an entry does not say model.encoder says";
  EXPECT_EQ(Of("robot", "encoder: mlp, leaf_encoders: {depth: {conv_filters: auto}}").actor.leaf_encoders,
            (Encoders{{.leaf = 3, .conv_layers = {{16, 3, 1}, {32, 3, 2}}}}));
  EXPECT_EQ(Of("robot", "encoder: cnn, conv_filters: [[4, 4, 2]], leaf_encoders: {depth: flat}").actor.leaf_encoders,
            (Encoders{{.leaf = 2, .conv_layers = {{4, 4, 2}}}, {.leaf = 5, .conv_layers = {{4, 4, 2}}}}))
      << "images of any kind and size";
}

TEST_F(LeafNetworksTest, ACriticOfMoreThanItsAgentsObservationReadsLeavesFlat) {
  for (const char* const algorithm : {"name: mappo", "name: mappo, use_global_state: true",
                                      "name: mappo, use_global_state: true, use_agent_specific_state: true"}) {
    const policy::PolicySpec spec = Of("robot", "", algorithm);
    EXPECT_EQ(spec.actor.encoder, EncoderKind::kLeaves);
    EXPECT_EQ(spec.critic().encoder, EncoderKind::kMlp) << algorithm;
  }
}

TEST_F(LeafNetworksTest, ObservationsMayBeNormalized) {
  const policy::PolicySpec spec = Of("robot", "", "name: ippo, normalize_observations: true");
  EXPECT_TRUE(spec.normalize_observations);
  EXPECT_EQ(spec.actor.encoder, EncoderKind::kLeaves);
}

TEST_F(LeafNetworksTest, AnImageBehindALastActionIsConvolved) {
  const policy::PolicySpec spec = Of("pixels, previous_action: true", "");
  EXPECT_EQ(spec.actor.encoder, EncoderKind::kLeaves);
  EXPECT_EQ(spec.actor.leaf_encoders, (Encoders{{.leaf = 0, .conv_layers = {{16, 3, 2}, {32, 3, 2}}}}));
}

TEST_F(LeafNetworksTest, AGlobThatAnotherCoversIsAnError) {
  EXPECT_THAT(ErrorOfModel("robot", "leaf_encoders: {\"*\": flat, camera: {hidden_sizes: [8]}}"),
              HasSubstr("model.leaf_encoders.camera: got a glob behind \"*\", which takes every leaf of policy "
                        "\"default_policy\" that it matches; expected it before"));
  EXPECT_EQ(ErrorOfModel("robot", "leaf_encoders: {camera: {hidden_sizes: [8]}, \"*\": flat}"), "OK");
}

TEST_F(LeafNetworksTest, PoliciesMayDifferAndWorkersMakeTheSame) {
  const std::string yaml = R"(
env: {name: robot}
algorithm: {name: ippo}
model: {leaf_encoders: {"arm/*": {hidden_sizes: [16]}, camera: {conv_filters: [[4, 8, 4]], hidden_sizes: []}, icon: flat}}
multi_agent:
  policies: {one: {}, other: {model: {encoder: mlp, leaf_encoders: {goal: {hidden_sizes: [3]}, depth: {conv_filters: auto}}}}}
  policy_mapping: {a: one, b: other}
)";
  const ResolvedRun run = Resolve(yaml);
  EXPECT_EQ(run.policies[0].actor.leaf_encoders.size(), 3u);
  EXPECT_EQ(run.policies[1].actor.leaf_encoders,
            (Encoders{{.leaf = 3, .conv_layers = {{16, 3, 1}, {32, 3, 2}}}, {.leaf = 4, .hidden_sizes = {3}}}));
  const auto told = RunConfig::FromYaml(WelcomeYaml(run.config), "welcome");
  ASSERT_TRUE(told.ok()) << told.status();
  const absl::StatusOr<ResolvedRun> worker = ResolveRun(*told, registry_);
  ASSERT_TRUE(worker.ok()) << worker.status();
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(worker->policies[i].ToString(), run.policies[i].ToString());
  // One text for one meaning, which reads back.
  const std::string text = run.config.ToYaml();
  EXPECT_THAT(text, HasSubstr("  leaf_encoders: {\"arm/*\": {hidden_sizes: [16]}, camera: {conv_filters: [[4, 8, 4]], "
                              "hidden_sizes: []}, icon: flat}\n"));
  EXPECT_THAT(text, HasSubstr("leaf_encoders: {goal: {hidden_sizes: [3]}, depth: {conv_filters: auto}}"));
  EXPECT_EQ(*RunConfig::FromYaml(text, "again.yaml"), run.config);
}

TEST_F(LeafNetworksTest, SaysWhatDoesNotFit) {
  EXPECT_EQ(ErrorOfModel("pixels", "leaf_encoders: {camera: {hidden_sizes: [3]}}"),
            "run.yaml:2:24: model.leaf_encoders: got encoders of leaves, but policy \"default_policy\" observes Box(0, "
            "255, [20, 16, 3], uint8); expected a Dict or a Tuple, or auto, with model.encoder for the whole");
  EXPECT_EQ(ErrorOfModel("robot", "leaf_encoders: {camrea: {hidden_sizes: [3]}}"),
            "run.yaml:2:25: model.leaf_encoders.camrea: got an encoder of no leaf of policy \"default_policy\"; the "
            "nearest is \"camera\"");
  EXPECT_THAT(ErrorOfModel("robot", "leaf_encoders: {'legs/*': {hidden_sizes: [3]}}"),
              HasSubstr("these are arm/0, arm/1, camera, depth, goal, icon"));
  EXPECT_EQ(ErrorOfModel("robot", "leaf_encoders: {goal: {conv_filters: auto}}"),
            "run.yaml:2:25: model.leaf_encoders.goal: got convolutions, but policy \"default_policy\"'s leaf \"goal\" "
            "is Discrete(4); expected an image, a Box of [height, width, channels] or [height, width]");
  EXPECT_EQ(ErrorOfModel("robot", "leaf_encoders: {camera: {conv_filters: [[4, 4, 2], [4, 8, 1]]}}"),
            "run.yaml:2:25: model.leaf_encoders.camera: policy \"default_policy\"'s leaf \"camera\"'s convolution 1 "
            "has a kernel of 8 x 8, but what it reads is 9 x 7; expected a kernel that fits into it");
  EXPECT_THAT(
      ErrorOfModel("robot", "conv_filters: [[4, 17, 1]]"),
      HasSubstr("run.yaml:2:23: model.conv_filters: policy \"default_policy\"'s leaf \"camera\"'s convolution 0"));
  EXPECT_THAT(
      ErrorOfModel("robot", "encoder: cnn"),
      HasSubstr("model.conv_filters: got auto, but policy \"default_policy\"'s leaf \"icon\" is Box(0, 255, [4, "
                "4, 1], uint8); expected [[channels, kernel, stride], ...] for so small an image, or flat in"));
  EXPECT_THAT(
      ErrorOfModel("blind", "encoder: cnn"),
      HasSubstr("run.yaml:2:18: model.encoder: got cnn, but no leaf that policy \"default_policy\" observes is an "
                "image, a Box of [height, width, channels] or [height, width]; expected one, conv_filters of a "
                "leaf in model.leaf_encoders, or model.encoder: mlp"));
  EXPECT_THAT(
      ErrorOfModel("blind", "conv_filters: [[4, 3, 1]]"),
      HasSubstr("model.conv_filters: got convolutions, but no leaf that policy \"default_policy\" observes is a "
                "uint8 image of at least 10 by 10 pixels"));
  EXPECT_THAT(ErrorOfModel("many", "leaf_encoders: {'*': {hidden_sizes: [3]}}"),
              HasSubstr("model.leaf_encoders: got encoders of 65 leaves of policy \"default_policy\", expected at most "
                        "64; LEAF: flat leaves one without"));
}

TEST_F(LeafNetworksTest, BadValuesAreErrorsAtTheirPlace) {
  const auto error = [&](const std::string& value) { return ErrorOfModel("robot", "leaf_encoders: " + value); };
  EXPECT_EQ(error("[32]").find("run.yaml:2:24: model.leaf_encoders: got a list, expected a mapping from 1 to 64 globs "
                               "over leaves' names to {hidden_sizes, conv_filters} or flat, or auto"),
            0u)
      << error("[32]");
  EXPECT_THAT(error("{}"), HasSubstr("model.leaf_encoders: got a mapping, expected a mapping from 1 to 64 globs"));
  EXPECT_EQ(error("{camera: none}"),
            "run.yaml:2:33: model.leaf_encoders.camera: got \"none\", expected {hidden_sizes: [...]}, {conv_filters: "
            "...}, both, or flat");
  EXPECT_THAT(error("{camera: {}}"), HasSubstr("model.leaf_encoders.camera: got a mapping, expected {hidden_sizes"));
  EXPECT_EQ(error("{camera: {hidden: [3]}}"),
            "run.yaml:2:34: unknown key \"model.leaf_encoders.camera.hidden\"; an encoder of a leaf may have "
            "hidden_sizes and conv_filters");
  EXPECT_EQ(error("{camera: {hidden_sizes: 32}}"),
            "run.yaml:2:48: model.leaf_encoders.camera.hidden_sizes: got 32, expected a list of 0 to 8 integers in [1, "
            "16384]");
  EXPECT_THAT(error("{camera: {hidden_sizes: [1, 1, 1, 1, 1, 1, 1, 1, 1]}}"), HasSubstr("expected a list of 0 to 8"));
  EXPECT_THAT(error("{camera: {hidden_sizes: [16385]}}"),
              HasSubstr("hidden_sizes: got 16385, expected integers in [1, 16384]"));
  EXPECT_THAT(error("{camera: {conv_filters: 3}}"),
              HasSubstr("model.leaf_encoders.camera.conv_filters: got 3, expected a list of 1 to 8 convolutions, "
                        "[channels, kernel, stride] each, or auto"));
  EXPECT_THAT(error("{camera: {conv_filters: [[4, 65, 1]]}}"),
              HasSubstr("model.leaf_encoders.camera.conv_filters: got a convolution that is none"));
  EXPECT_THAT(error("{camera: {conv_filters: [[4, 3]]}}"), HasSubstr("got a convolution that is none"));
  EXPECT_THAT(error("{camera: flat, camera: flat}"), HasSubstr("is there twice"));
  EXPECT_THAT(error("{goal: {hidden_sizes: []}}"),
              HasSubstr("model.leaf_encoders.goal: got no layers, but policy \"default_policy\"'s leaf \"goal\" is "
                        "Discrete(4); expected hidden_sizes of 1 to 8 layers, or flat"));
  EXPECT_EQ(ErrorOf("env: {name: robot}\nmodel: {features_extractor_kwargs: {cnn_output_dim: 256}}")
                .find("run.yaml:2:9: unknown key \"model.features_extractor_kwargs\" (Stable-Baselines3): here it is "
                      "\"model.leaf_encoders\""),
            0u);
}

TEST_F(LeafNetworksTest, WarnsOfImagesThatAreReadAsNumbers) {
  const auto warnings = [&](const std::string& yaml) { return ImageWarnings(Resolve(yaml).policies); };
  EXPECT_THAT(warnings("env: {name: blind}"), ElementsAre());
  EXPECT_THAT(warnings("env: {name: robot}\nalgorithm: {name: ippo}"), ElementsAre());
  EXPECT_THAT(
      warnings("env: {name: robot}\nalgorithm: {name: ippo}\nmodel: {leaf_encoders: {camera: flat}}"),
      ElementsAre("policy \"default_policy\" reads an image, Box(0, 255, [20, 16, 3], uint8) at camera, as a row "
                  "of numbers; model.encoder: cnn has convolutions, for images of [height, width, channels]"));
  EXPECT_THAT(
      warnings("env: {name: robot}\nalgorithm: {name: mappo}"),
      ElementsAre(HasSubstr("the critic of policy \"default_policy\" reads the images of all agents as a row of")));
  EXPECT_THAT(warnings("env: {name: robot}\nalgorithm: {name: mappo, use_global_state: true}"), ElementsAre());
  EXPECT_THAT(
      warnings("env: {name: robot}\nalgorithm: {name: mappo, use_global_state: true, use_agent_specific_state: true}"),
      ElementsAre("the critic of policy \"default_policy\" reads its agent's image, Box(0, 255, [20, 16, 3], uint8) at "
                  "camera, as a row of numbers behind the state; algorithm.use_agent_specific_state: false leaves it "
                  "out"));
}

}  // namespace
}  // namespace troupe::config
