#include "lib/training/registry.h"

#include <string>

#include "lib/policy/testing.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/ppo/ppo_options.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

policy::AlgorithmSpec Ppo(bool use_value_norm) {
  PpoOptions options;
  options.use_value_norm = use_value_norm;
  return PpoSpec(options);
}

TEST(RegistryTest, FindsAlgorithmsByName) {
  EXPECT_THAT(AlgorithmNames(), testing::ElementsAre("a2c", "appo", "custom", "impala", "ppo", "pqn"));
  for (const std::string& name : AlgorithmNames()) EXPECT_EQ((*FindAlgorithm(name))->name(), name);
  EXPECT_EQ(
      FindAlgorithm("dqn").status(),
      absl::InvalidArgumentError("there is no algorithm \"dqn\"; expected one of a2c, appo, custom, impala, ppo, pqn"));
}

TEST(RegistryTest, NamesThoseThatFitSpaces) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  EXPECT_THAT(NamesThatFit(spec), testing::ElementsAre("a2c", "appo", "impala", "ppo", "pqn"));
  spec.action_space = *space::Space::Box(-1, 1, {2});
  EXPECT_THAT(NamesThatFit(spec), testing::ElementsAre("a2c", "appo", "impala", "ppo")) << "no value is the greatest";
}

TEST(RegistryTest, ChecksOptions) {
  EXPECT_TRUE(CheckAlgorithm({}).ok()) << "a policy that is not trained";
  EXPECT_TRUE(CheckAlgorithm(Ppo(true)).ok());
  EXPECT_TRUE(CheckAlgorithm({.name = "a2c"}).ok());
  EXPECT_EQ(CheckAlgorithm({.name = "ppo"}).message(),
            "algorithm.minibatch_size is absent; expected a value (algorithm \"ppo\")");
}

TEST(RegistryTest, ChecksOptionsAgainstThePolicy) {
  const policy::PolicySpec spec = policy::SmallSpecForTesting();
  PpoOptions options;
  options.use_value_norm = false;
  options.use_popart = true;
  options.frozen_parameters = {"critic.*"};
  EXPECT_TRUE(CheckAlgorithmOf(spec, PpoSpec(options)).ok());
  options.frozen_parameters = {"critic.*.bias"};
  EXPECT_THAT(std::string(CheckAlgorithmOf(spec, PpoSpec(options)).message()),
              testing::HasSubstr("expected both or none with use_popart"));
  options.use_popart = false;
  options.use_value_norm = true;
  EXPECT_TRUE(CheckAlgorithmOf(spec, PpoSpec(options)).ok());

  PpoOptions masking;
  masking.death_masking = true;
  policy::PolicySpec images = spec;
  images.observation_space = *space::Space::Box(0, 255, {9, 8, 2}, tensor::DType::kUint8);
  images.actor.encoder = policy::EncoderKind::kCnn;
  images.actor.conv_layers = {{6, 3, 2}};
  images.normalize_observations = false;
  ASSERT_TRUE(images.image_bytes());
  EXPECT_EQ(CheckAlgorithmOf(images, PpoSpec(masking)),
            absl::InvalidArgumentError("algorithm.death_masking is true; expected no death masking: the critic of "
                                       "policy \"p\" reads images of bytes, of which none is a dead agent's"));
  EXPECT_TRUE(CheckAlgorithmOf(images, PpoSpec({})).ok());
  EXPECT_TRUE(CheckAlgorithmOf(spec, PpoSpec(masking)).ok());
  images.SetCriticInput(policy::NetworkInput::kState, 4);
  EXPECT_TRUE(CheckAlgorithmOf(images, PpoSpec(masking)).ok()) << "its critic reads no images";
}

TEST(RegistryTest, MinibatchesOfEnvStepsAreOfPoliciesThatRememberNothing) {
  PpoOptions options;
  options.minibatch_by = MinibatchBy::kEnvSteps;
  EXPECT_TRUE(CheckAlgorithmOf(policy::SmallSpecForTesting(), PpoSpec(options)).ok());
  const policy::PolicySpec cores =
      policy::SmallSpecWithCoresForTesting(policy::CoreKind::kGru, policy::CoreKind::kNone);
  EXPECT_THAT(std::string(CheckAlgorithmOf(cores, PpoSpec(options)).message()),
              testing::HasSubstr("algorithm.minibatch_by is env_steps; expected rows: policy \"p\" remembers"));
  options.minibatch_by = MinibatchBy::kRows;
  EXPECT_TRUE(CheckAlgorithmOf(cores, PpoSpec(options)).ok());
  policy::AlgorithmSpec unknown = PpoSpec(options);
  unknown.options["minibatch_by"] = std::string("episodes");
  EXPECT_THAT(std::string(CheckAlgorithm(unknown).message()),
              testing::HasSubstr("algorithm.minibatch_by is \"episodes\"; expected one of rows, env_steps"));
}

TEST(RegistryTest, StatesHaveWhatTheAlgorithmKeeps) {
  const policy::PolicySpec spec = policy::SmallSpecForTesting();
  EXPECT_EQ(InitialState(spec, Ppo(true), 1)->Moments(policy::kValueMoments).mean.size(), 1u);
  EXPECT_TRUE(InitialState(spec, Ppo(false), 1)->Moments(policy::kValueMoments).mean.empty());
  EXPECT_TRUE(InitialState(spec, policy::AlgorithmSpec{}, 1)->Moments(policy::kValueMoments).mean.empty());
  EXPECT_EQ(InitialState(spec, policy::AlgorithmSpec{}, 1)->parameters(),
            InitialState(spec, Ppo(true), 1)->parameters());
  EXPECT_FALSE(InitialState(spec, policy::AlgorithmSpec{.name = "x"}, 1).ok());

  EXPECT_EQ(*StateShape(spec, Ppo(true)), policy::ShapeOf(spec) + " value_moments");
  EXPECT_EQ(*StateShape(spec, Ppo(true)), *StateShape(spec, {.name = "a2c"}));
  EXPECT_NE(*StateShape(spec, Ppo(true)), *StateShape(spec, Ppo(false)));
}

TEST(RegistryTest, SaysWhichPoliciesCannotSwapTheirStates) {
  policy::PolicySpec first = policy::SmallSpecForTesting();
  policy::PolicySpec second = first;
  second.id = policy::PolicyId("q");
  EXPECT_TRUE(CheckSwappable({first, second}, {Ppo(true), {.name = "a2c"}}).ok());
  EXPECT_EQ(CheckSwappable({first, second}, {Ppo(true), Ppo(false)}).message(),
            "policies \"p\" and \"q\" differ in use_value_norm or use_popart (true and false)");
  second.mutable_critic()->hidden_sizes = {7};
  EXPECT_THAT(std::string(CheckSwappable({first, second}, {Ppo(true), Ppo(true)}).message()),
              testing::HasSubstr("cannot swap their states"));
}

TEST(PpoOptionsTest, AreReadByTheirKeys) {
  PpoOptions options;
  options.critic_learning_rate = 1e-4;
  options.clip_param = 0.3;
  options.use_value_clip = true;
  options.target_kl = 0.5;
  options.num_epochs = 4;
  options.minibatch_size = 12;
  options.max_grad_norm = 2;
  options.minibatch_by = MinibatchBy::kEnvSteps;
  const policy::AlgorithmSpec spec = PpoSpec(options);
  const PpoOptions read = *ParsePpoOptions(spec);
  EXPECT_EQ(PpoSpec(read), spec);
  EXPECT_EQ(read.critic_learning_rate, 1e-4);
  EXPECT_EQ(read.num_epochs, 4);
  EXPECT_EQ(read.minibatch_by, MinibatchBy::kEnvSteps);
  // Defaults where a key is absent; critic_lr is as lr then.
  const PpoOptions few = *ParsePpoOptions({.name = "ppo", .options = {{"minibatch_size", int64_t{5}}}});
  PpoOptions defaults;
  defaults.minibatch_size = 5;
  EXPECT_EQ(PpoSpec(few), PpoSpec(defaults));
  EXPECT_FALSE(few.critic_learning_rate.has_value());
}

TEST(RegistryTest, ACriticThatIsAModuleHasNoLastLayerToRescale) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.mutable_critic()->encoder = policy::EncoderKind::kTorchScript;
  spec.mutable_critic()->hidden_sizes = {};
  spec.mutable_critic()->module.sha256 = std::string(64, 'a');
  PpoOptions options;
  options.use_popart = true;
  EXPECT_THAT(std::string(CheckAlgorithmOf(spec, PpoSpec(options)).message()),
              testing::HasSubstr("algorithm.use_popart: got true, but the critic of policy \"p\" is a TorchScript "
                                 "module"));
  // Names of tensors that nobody has read are looked at by whoever trains.
  options.use_popart = false;
  options.frozen_parameters = {"critic.body.*"};
  EXPECT_EQ(CheckAlgorithmOf(spec, PpoSpec(options)), absl::OkStatus());
  spec.mutable_critic()->module.tensors = {{"w", {3}}};
  EXPECT_FALSE(CheckAlgorithmOf(spec, PpoSpec(options)).ok());
}

}  // namespace
}  // namespace troupe::training
