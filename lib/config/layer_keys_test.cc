// What keys of `model` say of layers: normalization, activations by network, first weights.

#include <string>

#include "lib/config/testing/resolve_fixture.h"
#include "lib/config/worker_yaml.h"
#include "lib/policy/policy_spec.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using policy::Activation;
using policy::Initializer;

using LayerKeysTest = ResolveFixture;

TEST_F(LayerKeysTest, ByDefaultNetworksAreAsTheyWere) {
  const policy::PolicySpec spec = Resolve("env: {name: team}").policies[0];
  for (const policy::NetworkSpec* const network : {&spec.actor, &spec.critic()}) {
    EXPECT_EQ(network->activation, Activation::kTanh);
    EXPECT_FALSE(network->layer_norm);
    EXPECT_EQ(network->initializer, Initializer::kOrthogonal);
    EXPECT_EQ(network->hidden_gain, 0);
  }
  EXPECT_EQ(spec.actor.output_gain, 0.01);
  EXPECT_EQ(spec.critic().output_gain, 1);
  EXPECT_EQ(Resolve("env: {name: team}\nmodel: {actor_activation: auto, hidden_gain: auto, initializer: orthogonal, "
                    "layer_norm: false, critic_output_gain: 1.0}")
                .policies[0]
                .ToString(),
            spec.ToString());
}

TEST_F(LayerKeysTest, ReachBothNetworks) {
  const policy::PolicySpec spec = Resolve(R"(
env: {name: team}
model:
  {activation: silu, layer_norm: true, initializer: xavier, hidden_gain: 0.5, actor_output_gain: 0.1, critic_output_gain: 2}
)")
                                      .policies[0];
  for (const policy::NetworkSpec* const network : {&spec.actor, &spec.critic()}) {
    EXPECT_EQ(network->activation, Activation::kSilu);
    EXPECT_TRUE(network->layer_norm);
    EXPECT_EQ(network->initializer, Initializer::kXavier);
    EXPECT_EQ(network->hidden_gain, 0.5);
  }
  EXPECT_EQ(spec.actor.output_gain, 0.1);
  EXPECT_EQ(spec.critic().output_gain, 2);
}

TEST_F(LayerKeysTest, AnActivationMayBeOfOneNetwork) {
  const policy::PolicySpec actor = Resolve("env: {name: team}\nmodel: {actor_activation: gelu}").policies[0];
  EXPECT_EQ(actor.actor.activation, Activation::kGelu);
  EXPECT_EQ(actor.critic().activation, Activation::kTanh);
  const policy::PolicySpec critic =
      Resolve("env: {name: team}\nmodel: {activation: elu, critic_activation: identity}").policies[0];
  EXPECT_EQ(critic.actor.activation, Activation::kElu);
  EXPECT_EQ(critic.critic().activation, Activation::kIdentity);
}

TEST_F(LayerKeysTest, PoliciesMayDifferAndWorkersMakeTheSame) {
  const ResolvedRun run = Resolve(R"(
env: {name: mixed}
model: {critic_activation: relu, initializer: torch}
multi_agent:
  policies:
    wolves: {model: {layer_norm: true, critic_output_gain: 3}}
    sheep: {model: {initializer: orthogonal, hidden_gain: 2, actor_activation: silu}}
  policy_mapping: {"wolf_*": wolves, "*": sheep}
)");
  const policy::PolicySpec& wolves = run.policies[0];
  const policy::PolicySpec& sheep = run.policies[1];
  EXPECT_TRUE(wolves.actor.layer_norm && wolves.critic().layer_norm);
  EXPECT_EQ(wolves.critic().output_gain, 3);
  EXPECT_EQ(wolves.critic().initializer, Initializer::kTorch);
  EXPECT_FALSE(sheep.actor.layer_norm || sheep.critic().layer_norm);
  EXPECT_EQ(wolves.critic().activation, Activation::kRelu);
  EXPECT_EQ(sheep.critic().activation, Activation::kRelu);
  EXPECT_EQ(sheep.actor.activation, Activation::kSilu);
  EXPECT_EQ(sheep.actor.hidden_gain, 2);
  const auto told = RunConfig::FromYaml(WelcomeYaml(run.config), "welcome");
  ASSERT_TRUE(told.ok()) << told.status();
  const auto worker = ResolveRun(*told, registry_);
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ(worker->schema.WorkerHash(), run.schema.WorkerHash());
  for (const size_t slot : {0, 1}) EXPECT_EQ(worker->policies[slot].ToString(), run.policies[slot].ToString());
}

TEST_F(LayerKeysTest, BadValuesAreErrorsAtTheirKey) {
  const std::string model = "env: {name: team}\nmodel: ";
  EXPECT_EQ(ErrorOf(model + "{initializer: he}")
                .find("run.yaml:2:22: model.initializer: got \"he\", expected one of "
                      "orthogonal, xavier, torch"),
            0u)
      << ErrorOf(model + "{initializer: he}");
  EXPECT_EQ(ErrorOf(model + "{critic_activation: swish}").find("run.yaml:2:28: model.critic_activation: got \"swish\""),
            0u)
      << ErrorOf(model + "{critic_activation: swish}");
  EXPECT_EQ(
      ErrorOf(model + "{hidden_gain: 0}").find("run.yaml:2:22: model.hidden_gain: got 0, expected a number in (0"), 0u)
      << ErrorOf(model + "{hidden_gain: 0}");
  EXPECT_EQ(ErrorOf(model + "{critic_output_gain: -1}").find("run.yaml:2:29: model.critic_output_gain: got -1"), 0u)
      << ErrorOf(model + "{critic_output_gain: -1}");
  EXPECT_EQ(
      ErrorOf(model + "{critic_activation: relu}\nmulti_agent: {policies: {p: {model: {critic_activation: auto}}}}"),
      "run.yaml:3:57: multi_agent.policies.p.model.critic_activation: got \"auto\", expected a value: an override "
      "cannot take one back");
  EXPECT_EQ(
      ErrorOf(model + "{normalize: LayerNorm}"),
      "run.yaml:2:9: unknown key \"model.normalize\" (XuanCe): here it is \"model.layer_norm\", true for LayerNorm; "
      "there is no batch normalization");
}

TEST_F(LayerKeysTest, AutoNormalizesWhereTheAlgorithmNeedsIt) {
  const auto normalizes = [this](const std::string& rest) {
    return Resolve("env: {name: team}\n" + rest).policies[0].actor.layer_norm;
  };
  EXPECT_FALSE(normalizes("algorithm: {name: mappo}"));
  EXPECT_TRUE(normalizes("algorithm: {name: pqn}"));
  EXPECT_FALSE(normalizes("algorithm: {name: pqn}\nmodel: {layer_norm: false}"));
  // A run that began when the default was false.
  const RunConfig old = *RunConfig::FromYaml("env: {name: team}\nmodel: {layer_norm: false}", "old.yaml");
  const auto resumed = ResumeConfig(old, *RunConfig::FromYaml("env: {name: team}", "new.yaml"));
  EXPECT_TRUE(resumed.ok()) << resumed.status();
}

TEST_F(LayerKeysTest, AResumedRunKeepsThem) {
  const RunConfig old = *RunConfig::FromYaml("env: {name: team}\nmodel: {layer_norm: true}", "old.yaml");
  const auto resumed =
      ResumeConfig(old, *RunConfig::FromYaml("env: {name: team}\nmodel: {layer_norm: false}", "new.yaml"));
  ASSERT_FALSE(resumed.ok());
  EXPECT_EQ(std::string(resumed.status().message())
                .find("new.yaml:2:21: model.layer_norm: got false, but the run was started with true; "),
            0u)
      << resumed.status();
}

}  // namespace
}  // namespace troupe::config
