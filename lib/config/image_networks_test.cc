// Encoders of networks by the image that they read: model.encoder, model.conv_filters, and the wrappers of images.

#include "lib/config/image_networks.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/config/testing/resolve_fixture.h"
#include "lib/config/worker_yaml.h"
#include "lib/policy/policy_spec.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using policy::ConvLayer;
using policy::EncoderKind;
using testing::ElementsAre;
using testing::HasSubstr;
using Layers = std::vector<ConvLayer>;

class ImageNetworksTest : public ResolveFixture {
 protected:
  ImageNetworksTest() {
    AddImage("pixels", {84, 84, 4});
    AddImage("small", {42, 42, 1});
    AddImage("sixteen", {16, 20, 3});
    AddImage("grid", {10, 12, 3});
    AddImage("tiny", {7, 7, 3});
    AddImage("three", {3, 3, 3});
    AddImage("flat", {42, 50});
    AddImage("channels_first", {3, 84, 84});
    const space::Space floats = *space::Space::Box(0, 1, {12, 12, 2});
    Add(Spec("floats", {Agent("a", floats, *space::Space::Discrete(2))}));
    env::EnvSpec both = Spec("both", {Agent("eye", Pixels({20, 20, 3}), *space::Space::Discrete(2)),
                                      Agent("hand", *space::Space::Box(-1, 1, {3}), *space::Space::Discrete(2))});
    both.state_kind = env::StateKind::kPerEnv;
    both.state_space = *space::Space::Box(-1, 1, {7});
    Add(both);
  }

  static space::Space Pixels(std::vector<int64_t> shape) {
    return *space::Space::Box(0, 255, std::move(shape), tensor::DType::kUint8);
  }
  void AddImage(const std::string& name, std::vector<int64_t> shape) {
    Add(Spec(name, {Agent("a", Pixels(shape), *space::Space::Discrete(2)),
                    Agent("b", Pixels(shape), *space::Space::Discrete(2))}));
  }
  policy::PolicySpec Of(const std::string& env, const std::string& more = "") {
    return Resolve(absl::StrCat("env: {name: ", env, "}\nalgorithm: {name: ippo}\n", more)).policies.at(0);
  }
};

TEST_F(ImageNetworksTest, ImagesOfBytesAreConvolvedByTheirSize) {
  const auto layers = [&](const std::string& env, const std::string& more = "") {
    const policy::PolicySpec spec = Of(env, more);
    EXPECT_EQ(spec.actor.encoder, EncoderKind::kCnn) << env;
    EXPECT_EQ(spec.critic().encoder, EncoderKind::kCnn) << env;
    EXPECT_EQ(spec.critic().conv_layers, spec.actor.conv_layers);
    EXPECT_EQ(spec.actor.hidden_sizes, (std::vector<int64_t>{64, 64}));
    return spec.actor.conv_layers;
  };
  EXPECT_EQ(layers("pixels"), (Layers{{32, 8, 4}, {64, 4, 2}, {64, 3, 1}}));
  EXPECT_EQ(Of("pixels").actor.Convolved(Of("pixels").image()), (policy::ImageShape{7, 7, 64}));
  EXPECT_EQ(layers("small"), (Layers{{16, 4, 2}, {32, 4, 2}, {32, 3, 2}}));
  EXPECT_EQ(layers("flat"), layers("small")) << "without channels";
  EXPECT_EQ(layers("sixteen"), (Layers{{16, 3, 2}, {32, 3, 2}}));
  EXPECT_EQ(layers("grid"), (Layers{{16, 3, 1}, {32, 3, 2}}));
  EXPECT_EQ(layers("tiny", "model: {encoder: cnn}"), (Layers{{16, 3, 1}, {32, 3, 1}}));
  EXPECT_EQ(layers("floats", "model: {encoder: cnn}"), layers("grid"));
}

TEST_F(ImageNetworksTest, AStepThatNoFragmentHoldsIsRefusedBeforeAWorkerStarts) {
  AddImage("huge", {800, 800, 3});
  const std::string error = ErrorOf("env: {name: huge}\nalgorithm: {name: ippo}");
  EXPECT_THAT(error, HasSubstr("max_fragment_bytes is 4128768, but a step of environment huge may need 153"));
  EXPECT_THAT(error, HasSubstr(" bytes; env.crop, env.grayscale and env.resize make images smaller"));
  Resolve("env: {name: huge, resize: [200, 200]}\nalgorithm: {name: ippo}");
}

TEST_F(ImageNetworksTest, OthersAreNot) {
  for (const char* const env : {"team", "tiny", "channels_first", "floats"}) {
    EXPECT_EQ(Of(env).actor.encoder, EncoderKind::kMlp) << env;
  }
  EXPECT_EQ(Of("pixels", "model: {encoder: mlp, conv_filters: [[8, 8, 8]]}").actor.conv_layers, Layers());
  EXPECT_EQ(Of("team").ToString(), Of("team", "model: {encoder: mlp}").ToString());
}

TEST_F(ImageNetworksTest, ACentralizedCriticConvolvesAllAgentsImages) {
  const auto of = [&](const std::string& yaml) { return Resolve(yaml).policies[0]; };
  const policy::PolicySpec spec = of("env: {name: small}\nalgorithm: {name: mappo}");
  EXPECT_EQ(spec.actor.encoder, EncoderKind::kCnn);
  EXPECT_EQ(spec.critic().encoder, EncoderKind::kCnn);
  EXPECT_EQ(spec.critic().conv_layers, spec.actor.conv_layers);
  EXPECT_EQ(spec.critic_input_size(), 2 * 42 * 42 + 2);
  EXPECT_EQ(spec.ByteElements(spec.critic()), 2 * 42 * 42);
  const policy::PolicySpec flat = of("env: {name: small}\nalgorithm: {name: mappo}\nmodel: {critic_encoder: mlp}");
  EXPECT_EQ(flat.actor.encoder, EncoderKind::kCnn);
  EXPECT_EQ(flat.critic().encoder, EncoderKind::kMlp);
  // An agent that observes otherwise: what is of whom has no size of its own.
  const policy::PolicySpec sees =
      of("env: {name: both}\nalgorithm: {name: mappo}\nmulti_agent: {policies: {sees: {}, feels: {}}, policy_mapping: "
         "{eye: "
         "sees, hand: feels}}");
  EXPECT_EQ(sees.actor.encoder, EncoderKind::kCnn);
  EXPECT_EQ(sees.critic().encoder, EncoderKind::kMlp);
  // Of the state there is no image.
  const policy::PolicySpec state = of(
      "env: {name: both}\nalgorithm: {name: mappo, use_global_state: true}\nmulti_agent: {policies: {sees: {}, feels: "
      "{}}, policy_mapping: {eye: sees, hand: feels}}");
  EXPECT_EQ(state.critic().encoder, EncoderKind::kMlp);
  EXPECT_THAT(ErrorOf("env: {name: small}\nalgorithm: {name: mappo, normalize_state: true}"),
              HasSubstr("algorithm.normalize_state: got true, but policy \"default_policy\" observes Box(0, 255, [42, "
                        "42, 1], uint8), an image of bytes that networks read scaled by its bounds; expected false, or "
                        "model.critic_encoder: mlp"));
  EXPECT_EQ(of("env: {name: small}\nalgorithm: {name: mappo, normalize_state: true}\nmodel: {critic_encoder: mlp}")
                .critic()
                .encoder,
            EncoderKind::kMlp);
}

TEST_F(ImageNetworksTest, ACriticOfItsAgentsImageMayReadItAsARow) {
  const policy::PolicySpec spec = Of("small", "model: {critic_encoder: mlp}");
  EXPECT_EQ(spec.actor.encoder, EncoderKind::kCnn);
  EXPECT_EQ(spec.critic().encoder, EncoderKind::kMlp);
}

TEST_F(ImageNetworksTest, FiltersAreAsRllibWritesThem) {
  const std::string yaml = "model: {conv_filters: [[16, [8, 8], 4], [32, 4, 2]], actor_hidden_sizes: []}";
  const policy::PolicySpec spec = Of("small", yaml);
  EXPECT_EQ(spec.actor.conv_layers, (Layers{{16, 8, 4}, {32, 4, 2}}));
  EXPECT_EQ(spec.actor.hidden_sizes, std::vector<int64_t>());
  EXPECT_EQ(Of("floats", "model: {conv_filters: [[4, 3, 1]]}").actor.encoder, EncoderKind::kCnn) << "who gives them";
  // One text for one meaning, which reads back.
  const RunConfig config = *RunConfig::FromYaml(absl::StrCat("env: {name: small}\n", yaml), "run.yaml");
  EXPECT_THAT(config.ToYaml(), HasSubstr("  conv_filters: [[16, 8, 4], [32, 4, 2]]\n"));
  EXPECT_EQ(*RunConfig::FromYaml(config.ToYaml(), "again.yaml"), config);
}

TEST_F(ImageNetworksTest, PoliciesMayDiffer) {
  const std::string yaml = R"(
env: {name: both}
algorithm: {name: ippo}
model: {conv_filters: [[8, 4, 2]]}
multi_agent:
  policies: {sees: {model: {conv_filters: [[4, 5, 3], [6, 2, 1]]}}, feels: {model: {encoder: mlp}}}
  policy_mapping: {eye: sees, hand: feels}
)";
  const ResolvedRun run = Resolve(yaml);
  EXPECT_EQ(run.policies[0].actor.conv_layers, (Layers{{4, 5, 3}, {6, 2, 1}}));
  EXPECT_EQ(run.policies[1].actor.encoder, EncoderKind::kMlp);
  // A worker makes the same networks of what it is told.
  const auto told = RunConfig::FromYaml(WelcomeYaml(run.config), "welcome");
  ASSERT_TRUE(told.ok()) << told.status();
  const absl::StatusOr<ResolvedRun> worker = ResolveRun(*told, registry_);
  ASSERT_TRUE(worker.ok()) << worker.status();
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(worker->policies[i].ToString(), run.policies[i].ToString());
}

TEST_F(ImageNetworksTest, SaysWhatDoesNotFit) {
  EXPECT_EQ(
      ErrorOf("env: {name: team}\nmodel: {encoder: cnn}"),
      "run.yaml:2:18: model.encoder: got cnn, but policy \"default_policy\" observes Box(-1, 1, [3]); expected an "
      "image, a Box of [height, width, channels] or [height, width], or model.encoder: mlp");
  EXPECT_THAT(ErrorOf("env: {name: team}\nmodel: {conv_filters: [[4, 3, 1]]}"),
              HasSubstr("model.conv_filters: got convolutions, but policy \"default_policy\" observes Box(-1, 1, [3]); "
                        "expected an image"));
  EXPECT_THAT(
      ErrorOf("env: {name: grid}\nmodel: {conv_filters: [[4, 3, 2], [4, 6, 1]]}"),
      HasSubstr("run.yaml:2:23: model.conv_filters: policy \"default_policy\": actor's convolution 1 has a kernel "
                "of 6 x 6, but what it reads is 4 x 5; expected a kernel that fits into it"));
  EXPECT_THAT(ErrorOf("env: {name: three}\nmodel: {encoder: cnn}"),
              HasSubstr("model.conv_filters: got auto, but policy \"default_policy\" observes Box(0, 255, [3, 3, 3], "
                        "uint8); expected [[channels, kernel, stride], ...] for so small an image"));
  EXPECT_THAT(
      ErrorOf("env: {name: small}\nalgorithm: {name: ippo, normalize_observations: true}"),
      HasSubstr("algorithm.normalize_observations: got true, but policy \"default_policy\" observes Box(0, 255, "
                "[42, 42, 1], uint8), an image of bytes that networks read scaled by its bounds"));
  EXPECT_THAT(ErrorOf("env: {name: small}\nmodel: {conv_filters: []}"),
              HasSubstr("model.conv_filters: got a list, expected a list of 1 to 8 convolutions, [channels, kernel, "
                        "stride] each, or auto"));
  EXPECT_THAT(ErrorOf("env: {name: small}\nmodel: {conv_filters: [[4, 3]]}"),
              HasSubstr("model.conv_filters: got a list"));
  for (const char* const bad :
       {"[0, 3, 1]", "[1025, 3, 1]", "[4, 65, 1]", "[4, [3, 4], 1]", "[4, 3, 0]", "[4, x, 1]"}) {
    EXPECT_THAT(
        ErrorOf(absl::StrCat("env: {name: small}\nmodel: {conv_filters: [", bad, "]}")),
        HasSubstr("run.yaml:2:24: model.conv_filters: got a convolution that is none, expected [channels, kernel, "
                  "stride] with 1 to 1024 channels, a square kernel of 1 to 64 and a stride of 1 to 64"))
        << bad;
  }
}

TEST_F(ImageNetworksTest, WarnsOfNetworksThatReadImagesAsRows) {
  const auto warnings = [&](const std::string& yaml) { return ImageWarnings(Resolve(yaml).policies); };
  EXPECT_THAT(warnings("env: {name: pixels}\nalgorithm: {name: ippo}"), ElementsAre());
  EXPECT_THAT(warnings("env: {name: pixels}\nalgorithm: {name: mappo}"), ElementsAre());
  EXPECT_THAT(warnings("env: {name: team}"), ElementsAre());
  EXPECT_THAT(
      warnings("env: {name: small}\nalgorithm: {name: ippo, use_parameter_sharing: false}\nmodel: {encoder: mlp}"),
      ElementsAre("policy \"a\" reads an image, Box(0, 255, [42, 42, 1], uint8), as a row of numbers; "
                  "model.encoder: cnn has convolutions, for images of [height, width, channels]"));
  EXPECT_THAT(
      warnings("env: {name: small}\nalgorithm: {name: mappo}\nmodel: {critic_encoder: mlp}"),
      ElementsAre(HasSubstr("the critic of policy \"default_policy\" reads the images of all agents as a row of "
                            "3530 numbers of 4 bytes; algorithm.name: ippo has a critic with convolutions")));
  EXPECT_THAT(warnings("env: {name: channels_first}\nalgorithm: {name: ippo}"),
              ElementsAre(HasSubstr("[3, 84, 84], uint8), as a row of numbers")));
  EXPECT_THAT(warnings("env: {name: small}\nmulti_agent: {policies: {p: {class: random}}}"), ElementsAre());
}

TEST_F(ImageNetworksTest, WrappersMakeTheImageThatNetworksSee) {
  const std::string yaml = R"(
env: {name: sixteen, crop: [2, 0, 14, 20], grayscale: true, resize: [12, 10], frame_stack: 2}
algorithm: {name: ippo}
)";
  const ResolvedRun run = Resolve(yaml);
  EXPECT_EQ(run.policies[0].observation_space.ToString(), "Box(0, 255, [12, 10, 2], uint8)");
  EXPECT_EQ(run.policies[0].actor.encoder, EncoderKind::kCnn);
  EXPECT_THAT(run.env.wrappers.crop, ElementsAre(2, 0, 14, 20));
  EXPECT_THAT(run.env.wrappers.resize, ElementsAre(12, 10));
  EXPECT_TRUE(run.env.wrappers.grayscale);
  EXPECT_THAT(run.config.ToYaml(), HasSubstr("  resize: [12, 10]\n"));
  EXPECT_THAT(ErrorOf("env: {name: sixteen, crop: [2, 0, 15, 20]}"),
              HasSubstr("env.crop: agent \"a\" observes Box(0, 255, [16, 20, 3], uint8); got the part [2, 0, 15, 20]"));
  EXPECT_THAT(ErrorOf("env: {name: sixteen, resize: [12]}"), HasSubstr("env.resize: got [12], expected two numbers"));
  EXPECT_THAT(ErrorOf("env: {name: pixels, grayscale: true}"), HasSubstr("env.grayscale: agent \"a\" observes"));
  EXPECT_THAT(ErrorOf("env: {name: team, resize: [2, 2]}"), HasSubstr("expected an image, a uint8 Box"));
  EXPECT_THAT(ErrorOf("env: {name: sixteen, resize: [12, 0]}"), HasSubstr("env.resize: got 0"));
  EXPECT_EQ(Resolve("env: {name: sixteen, resize: none, crop: none}").env_spec.ToString(),
            Resolve("env: {name: sixteen}").env_spec.ToString());
}

}  // namespace
}  // namespace troupe::config
