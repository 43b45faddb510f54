#include "lib/config/presets.h"

#include <string>
#include <vector>

#include "lib/config/schema.h"
#include "lib/config/testing/resolve_fixture.h"
#include "lib/policy/policy_spec.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using testing::HasSubstr;

class PresetsTest : public ResolveFixture {};

TEST_F(PresetsTest, EachIsReadAndSpelledOut) {
  const std::vector<std::string> words = EnumWords(*v1::PresetName_descriptor());
  EXPECT_EQ(words, (std::vector<std::string>{"mappo_mpe", "sb3_ppo", "sb3_a2c", "rllib_ppo"}));
  for (const std::string& word : words) {
    const auto name = static_cast<v1::PresetName>(FindEnumWord(*v1::PresetName_descriptor(), word)->number());
    EXPECT_FALSE(PresetYaml(name).empty()) << word;
    const ResolvedRun run = Resolve("preset: " + word + "\nenv: {name: team}\nnum_envs_per_worker: 64");
    // What is shown is all of it, and reads back.
    const std::string shown = run.config.ToYaml();
    const auto again = RunConfig::FromYaml(shown, "again.yaml");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->ToYaml(), shown);
    EXPECT_NE(shown.find("preset: " + word + "\n"), std::string::npos);
    EXPECT_EQ(run.config.Where("algorithm.lr"), "preset " + word);
  }
  EXPECT_EQ(PresetYaml(v1::PRESET_NAME_UNSPECIFIED), "");
}

TEST_F(PresetsTest, AreWhatTheOthersHave) {
  for (const std::string word : {"sb3_ppo", "sb3_a2c"}) {
    const ResolvedRun run = Resolve("preset: " + word + "\nenv: {name: continuous}");
    const policy::PolicySpec& spec = run.policies.at(0);
    // np.sqrt(2) whatever the activation (ActorCriticPolicy._build).
    EXPECT_EQ(spec.actor.hidden_gain, 1.4142135623730951) << word;
    EXPECT_EQ(spec.critic().hidden_gain, 1.4142135623730951) << word;
    EXPECT_EQ(spec.actor.output_gain, 0.01) << word;
    EXPECT_EQ(spec.critic().output_gain, 1) << word;
    EXPECT_EQ(spec.actor.hidden_sizes, (std::vector<int64_t>{64, 64})) << word;
    EXPECT_EQ(spec.actor.initializer, policy::Initializer::kOrthogonal) << word;
    EXPECT_TRUE(Option<bool>(run, 0, "time_limit_bootstrap")) << word;
  }
  EXPECT_FALSE(Option<bool>(Resolve("preset: mappo_mpe\nenv: {name: team}"), 0, "time_limit_bootstrap"));
  const policy::PolicySpec rllib = Resolve("preset: rllib_ppo\nenv: {name: continuous}").policies.at(0);
  EXPECT_EQ(rllib.actor.initializer, policy::Initializer::kTorch);
  EXPECT_EQ(rllib.critic().initializer, policy::Initializer::kTorch);
  EXPECT_FALSE(rllib.free_log_std);
  EXPECT_EQ(rllib.min_log_std, -20);
  EXPECT_EQ(rllib.max_log_std, 20);
}

TEST_F(PresetsTest, ExplicitKeysWinWhereverTheyStand) {
  const ResolvedRun run =
      Resolve("algorithm: {lr: 1.0e-3}\nenv: {name: team}\npreset: mappo_mpe", {"algorithm.huber_delta=3"});
  EXPECT_EQ(FirstLr(run, 0), 1e-3);
  EXPECT_EQ(Option<double>(run, 0, "huber_delta"), 3);
  EXPECT_EQ(Option<double>(run, 0, "max_grad_norm"), 10);
  EXPECT_EQ(run.algorithm, "mappo");
  const ResolvedRun other = Resolve("preset: mappo_mpe\nenv: {name: team}", {"preset=sb3_a2c"});
  EXPECT_EQ(Option<std::string>(other, 0, "optimizer"), "rmsprop");
  EXPECT_EQ(other.algorithm, "a2c");
  const ResolvedRun none = Resolve("preset: mappo_mpe\nenv: {name: team}", {"preset=none"});
  EXPECT_EQ(Option<double>(none, 0, "huber_delta"), 0);
}

// With a preset and two overrides the last one was lost.
TEST_F(PresetsTest, KeepsEveryOverrideHoweverManyThereAre) {
  std::vector<std::string> overrides;
  for (int count = 0; count < 10; ++count) {
    const auto config = RunConfig::FromYaml("preset: sb3_ppo\nenv: {name: team}", "run.yaml", overrides);
    ASSERT_TRUE(config.ok()) << config.status();
    for (int i = 0; i < count; ++i) {
      const std::string key = "env.args.key" + std::to_string(i);
      EXPECT_EQ(config->Where(key), "--set " + overrides[static_cast<size_t>(i)]) << count;
    }
    EXPECT_EQ(config->proto().env().args_size(), count);
    EXPECT_EQ(config->proto().env().name(), "team");
    overrides.push_back("env.args.key" + std::to_string(count) + "=" + std::to_string(count));
  }
  // The interpreter of --python is an override behind those of --set, and so may be the preset.
  const auto python =
      RunConfig::FromYaml("seed: 1", "run.yaml",
                          {"preset=sb3_ppo", "env.name=python:gymnasium:Pendulum-v1", "stop.env_steps=1",
                           "env.python.processes=1", TextOverride("env.python.interpreter", "/venv")});
  ASSERT_TRUE(python.ok()) << python.status();
  EXPECT_EQ(python->proto().env().python().interpreter(), "/venv");
  EXPECT_EQ(python->proto().env().python().processes(), 1);
}

TEST_F(PresetsTest, SaysWhatDoesNotFit) {
  EXPECT_EQ(ErrorOf("preset: mapo_mpe\nenv: {name: team}"),
            "run.yaml:1:9: preset: got \"mapo_mpe\", expected one of mappo_mpe, sb3_ppo, sb3_a2c, rllib_ppo, or none; "
            "write mappo_mpe");
  EXPECT_THAT(ErrorOf("preset: mappo_mpe\nenv: {name: team}\nalgorithm: {name: a2c}"),
              HasSubstr("preset mappo_mpe: algorithm.num_minibatches is of ppo, ippo, mappo, pqn, custom and macustom, "
                        "got algorithm.name: a2c"));
}

}  // namespace
}  // namespace troupe::config
