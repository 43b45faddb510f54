#include <string>
#include <utility>
#include <vector>

#include "lib/config/run_config.h"
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

/// What follows the last "; " of the error about `yaml`.
std::string HintOf(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<RunConfig> config = RunConfig::FromYaml(yaml, "run.yaml", overrides);
  if (config.ok()) return "OK";
  const std::string error(config.status().message());
  const size_t hint = error.rfind("; ");
  return hint == std::string::npos ? "none: " + error : error.substr(hint + 2);
}

TEST(ValueHintTest, SaysWhatWasMeant) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"algorithm: {train_batch_size: 4_000}", "write 4000"},
      {"algorithm: {train_batch_size: \"4,000\"}", "write 4000"},
      {"algorithm: {train_batch_size: \"4000\"}", "write 4000"},
      {"algorithm: {lr: \"1e-3\"}", "write 0.001"},
      {"stop: {env_steps: 1M}", "write 1000000"},
      {"stop: {env_steps: 1.5m}", "write 1500000"},
      {"stop: {env_steps: 10k}", "write 10000"},
      {"stop: {wall_clock: 2h}", "write 7200"},
      {"stop: {wall_clock: 10m}", "write 600"},
      {"stop: {wall_clock: 10 min}", "write 600"},
      {"learner: {join_timeout_s: 3s}", "write 3"},
      {"stop: {env_steps: none}", "write auto"},
      {"algorithm: {max_grad_norm: None}", "write 0 for no limit"},
      {"explore: yes", "write true"},
      {"explore: 1", "write true"},
      {"explore: \"False\"", "write false"},
      {"algorithm: {name: PPO}", "write ppo"},
      {"algorithm: {name: MAPPO_Clip}", "write mappo"},
      {"algorithm: {name: APPO}", "write appo"},
      {"algorithm: {name: IMPALAConfig}", "write impala"},
      {"batch_mode: truncate_episode", "write truncate_episodes"},
      {"model: {actor_hidden_sizes: \"64,64\"}", "write [64, 64]"},
      {"model: {actor_hidden_sizes: 64x32}", "write [64, 32]"},
      {"model: {actor_hidden_sizes: 64}", "write [64]"},
      {"multi_agent: {policy_mapping: \"lambda agent: agent\"}",
       "write {function: \"python:FILE.py:NAME\"} and the function into that file"},
      {"multi_agent: {policies: main}", "write [main]"},
      {"env: {args: 3}", "write {NAME: VALUE}"},
  };
  for (const auto& [yaml, hint] : cases) EXPECT_EQ(HintOf(yaml), hint) << yaml;
}

TEST(ValueHintTest, EmptyTextWhereItMeansSomething) {
  for (const char* key : {"env.action_mask_key", "env.state_key", "env.plugin", "experiment.experiment_name"}) {
    EXPECT_EQ(HintOf("seed: 1", {std::string(key) + "="}), "write \"\" for an empty text, in a shell '\"\"'") << key;
    EXPECT_EQ(HintOf("seed: 1", {std::string(key) + "=\"\""}), "OK") << key;
  }
  EXPECT_EQ(HintOf("seed: 1", {"device="}), "the default is auto");
}

TEST(ValueHintTest, ElseTheDefault) {
  EXPECT_EQ(HintOf("algorithm: {gamma: 1.5}"), "the default is 0.99");
  EXPECT_EQ(HintOf("algorithm: {lr: fast}"), "the default is 3.0e-4");
  EXPECT_EQ(HintOf("algorithm: {train_batch_size: 0}"), "the default is 4000");
  EXPECT_EQ(HintOf("algorithm: {train_batch_size: 1.5k3}"), "the default is 4000");
  EXPECT_EQ(HintOf("seed: 1.5"), "the default is 1");
  EXPECT_EQ(HintOf("algorithm: {name: best}"), "the default is mappo");
  EXPECT_EQ(HintOf("explore: maybe"), "the default is true");
  EXPECT_EQ(HintOf("algorithm: {lr: [[0, a], [1, b]]}"), "the default is 3.0e-4");
  EXPECT_EQ(HintOf("stop: {env_steps: " + std::string(100, '9') + "k}"), "the default is auto");
}

TEST(ValueHintTest, AlgorithmsThatAreNotHereAreNoOthers) {
  for (const std::string name : {"happo", "HAPPOConfig", "HATRPO", "qmix", "MASAC", "ISAC", "MADDPG"}) {
    EXPECT_EQ(HintOf("algorithm: {name: " + name + "}"), name + " is not implemented");
  }
}

TEST(ValueHintTest, SectionsThatAreNone) {
  EXPECT_EQ(HintOf("algorithm: PPO"), "write algorithm: {name: ppo}");
  EXPECT_EQ(HintOf("algorithm: qmix"), "write algorithm: {name: mappo}");
  EXPECT_EQ(HintOf("env: CartPole-v1"), "write env: {name: CartPole-v1}");
  EXPECT_EQ(HintOf("seed: 1", {"algorithm=PPO"}), "write algorithm.name=ppo");
  EXPECT_EQ(HintOf("algorithm:\n  lr:1e-3\n"), "YAML wants a space behind the colon: lr: 1e-3");
  EXPECT_EQ(HintOf("seed:3"), "YAML wants a space behind the colon: seed: 3");
  EXPECT_EQ(HintOf("stop: 3"), "its keys are env_steps, agent_steps, updates, wall_clock, episode_return");
}

}  // namespace
}  // namespace troupe::config
